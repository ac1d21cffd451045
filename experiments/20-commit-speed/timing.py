"""One timing, and the page cache it is taken with."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Timing:
    """What one tool took once for one operation on one state; `nbytes` are those of the whole state."""

    state: str
    tool: str
    what: str
    round: int
    seconds: float
    nbytes: int


def seconds(work: Callable[[], object]) -> float:
    """Return what the work takes; whatever other work left to be written or freed is out of the way first."""
    gc.collect()
    os.sync()
    start = time.perf_counter()
    result = work()
    took = time.perf_counter() - start
    # Freeing memory is no part of a load.
    del result
    return took


def files_below(folder: Path) -> list[Path]:
    """Every file in a folder."""
    return [Path(above, name) for above, _, names in os.walk(folder) for name in names]


def warm(paths: Iterable[Path]) -> None:
    """Bring files into the page cache."""
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def evict(paths: Iterable[Path]) -> None:
    """Drop files from the page cache: their bytes are on the medium, and nobody has them mapped."""
    gc.collect()
    os.sync()
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def make_durable(paths: Iterable[Path]) -> None:
    """Force files and their folders, as a tool would have to that promises them after a power cut."""
    paths = list(paths)
    for path in [*paths, *{path.parent for path in paths}]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
