"""Memory that files are written from: page-aligned buffers, used again and again.

Memory that is touched for the first time costs several times as much as a copy into memory that is warm, and small
pages cost the disk time, too. So buffers lie in huge pages where the system has them, and some are kept by the process.
They are private to it: a forked child that writes has its own.
"""

from __future__ import annotations

import mmap

BUFFER_BYTES = 8 << 20
KEPT_BUFFERS = 8
"""How many a process keeps when nothing is being written."""

_free: list[memoryview] = []


def take() -> memoryview:
    """Return a buffer that nobody else has; what is in it is of no meaning."""
    try:
        return _free.pop()
    except IndexError:
        memory = mmap.mmap(-1, BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(memory)


def give(buffer: memoryview) -> None:
    """Give back a buffer that nothing refers to any more."""
    if len(_free) < KEPT_BUFFERS:
        _free.append(buffer)
