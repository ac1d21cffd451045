"""Blob ids: the BLAKE3-256 of the bytes and of nothing else, as 64 lower-case hex digits.

`b3sum` prints the same digits for the same bytes, so a store can be checked without cairn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
PARALLEL_BYTES = 1 << 18
"""From this size on one hash is worth several cores."""


class BlobRef(NamedTuple):
    """A blob as trees name it: its id and its length in bytes, which makes truncation cheap to see."""

    id: str
    size: int


def blob_id(data: Buffer, threads: int | None = None) -> str:
    """Hash bytes; large ones on all cores, or on so many."""
    view = memoryview(data).cast("B")
    if view.nbytes < PARALLEL_BYTES:
        return blake3(view).hexdigest()
    return blake3(view, max_threads=hashing_threads(view.nbytes, threads)).hexdigest()


def new_hasher(nbytes: int, threads: int | None = None) -> blake3:
    """Begin a hash of so many bytes that come in parts; of large ones on all cores, or on so many."""
    return blake3(max_threads=hashing_threads(nbytes, threads))


def blob_id_of(parts: Sequence[memoryview], threads: int | None = None) -> str:
    """Hash the concatenation of bytes; large ones on all cores, or on so many."""
    if len(parts) == 1:
        return blob_id(parts[0], threads)
    hasher = new_hasher(sum(part.nbytes for part in parts), threads)
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def hashing_threads(nbytes: int, threads: int | None = None) -> int:
    """On how many threads to hash so many bytes, as `blake3` counts them: on all cores, or on so many."""
    if nbytes < PARALLEL_BYTES:
        return 1
    # A pool of threads for one hash costs more than the machine's own, which is always there.
    return _all_cores if threads is None or threads >= (os.cpu_count() or 1) else threads


_all_cores = blake3.AUTO


def _after_fork() -> None:
    # The threads that AUTO shares were the parent's: a forked child would wait for them for ever.
    global _all_cores
    _all_cores = len(os.sched_getaffinity(0))


os.register_at_fork(after_in_child=_after_fork)


def is_id(text: object) -> bool:
    """Whether this is the text of an id: a `str` of exactly 64 lower-case hex digits."""
    return isinstance(text, str) and HEX.fullmatch(text) is not None
