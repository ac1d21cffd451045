"""Reading packs from end to end and checking the hash of every blob, at the speed of the disk.

Work is parted into stretches of neighbouring blobs, which threads read front to back in large reads. Memory is
bounded: a window for each thread, and the headers of the packs that are being read.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from cairn.io.disk import Disk
from cairn.objects.pack import Header, Place
from cairn.objects.reader import SCARCE

STRETCH_BYTES = 64 << 20
WINDOW_BYTES = 4 << 20
MOST_THREADS = 8
ALONE_BYTES = 16 << 20
"""Less than this is read by the caller's own thread."""

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A blob whose bytes are not its own, and what was found in their place."""

    blob: str
    found: str


@dataclass(frozen=True, slots=True)
class _Stretch:
    pack: str
    path: Path
    blobs: list[tuple[str, Place]]
    is_last: bool


def check_packs(
    disk: Disk, packs: Iterable[tuple[str, Header, Path]], nbytes: int, advance: Advance
) -> Iterator[tuple[str, list[Wrong] | None]]:
    """Check every blob of packs, named by the caller, of so many bytes in all; yield the name and what is wrong.

    They come in their order, with None for one that is gone.
    """
    wrong: list[Wrong] | None = []
    for stretch, found in _mapped(disk, _stretches(packs), nbytes, advance):
        wrong = None if wrong is None or found is None else wrong + found
        if stretch.is_last:
            yield stretch.pack, wrong
            wrong = []


def _stretches(packs: Iterable[tuple[str, Header, Path]]) -> Iterator[_Stretch]:
    for pack, header, path in packs:
        blobs: list[tuple[str, Place]] = []
        size = 0
        for item in header.places.items():
            if size >= STRETCH_BYTES:
                yield _Stretch(pack, path, blobs, False)
                blobs, size = [], 0
            blobs.append(item)
            size += item[1].size
        yield _Stretch(pack, path, blobs, True)


def _mapped(
    disk: Disk, stretches: Iterator[_Stretch], nbytes: int, advance: Advance
) -> Iterator[tuple[_Stretch, list[Wrong] | None]]:
    """Check stretches, several at a time, and return them in their order."""
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)))
    if nbytes < ALONE_BYTES or threads == 1:
        yield from ((stretch, _check(disk, stretch, advance)) for stretch in stretches)
        return
    pool = ThreadPoolExecutor(threads)
    waiting: deque[tuple[_Stretch, Future[list[Wrong] | None]]] = deque()
    try:
        for stretch in stretches:
            waiting.append((stretch, pool.submit(_check, disk, stretch, advance)))
            if len(waiting) > 2 * threads:
                first, result = waiting.popleft()
                yield first, result.result()
        for first, result in waiting:
            yield first, result.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _check(disk: Disk, stretch: _Stretch, advance: Advance) -> list[Wrong] | None:
    """Hash one stretch; None when the file is gone."""
    window = _Window(disk, stretch)
    wrong = []
    for blob, place in stretch.blobs:
        try:
            found = window.hash_of(place)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in SCARCE:
                raise
            wrong.append(Wrong(blob, f"bytes that cannot be read ({error.strerror or error})"))
        else:
            if found != blob:
                wrong.append(Wrong(blob, f"bytes that hash to {found}"))
        advance(place.size)
    return wrong


class _Window:
    """Bytes of a file that move forward with the reading."""

    def __init__(self, disk: Disk, stretch: _Stretch) -> None:
        self._disk, self._path = disk, stretch.path
        last = stretch.blobs[-1][1] if stretch.blobs else Place(0, 0, False)
        self._stop = last.offset + last.size
        self._start = 0
        self._bytes = memoryview(b"")

    def hash_of(self, place: Place) -> str:
        """Return the hash of what stands in a place; of less where the file ends before it."""
        hasher = blake3()
        at, stop = place.offset, place.offset + place.size
        while at < stop:
            if not self._start <= at < self._start + len(self._bytes):
                self._move(at, stop)
            part = self._bytes[at - self._start : stop - self._start]
            if not part:
                break
            hasher.update(part)
            at += len(part)
        return hasher.hexdigest()

    def _move(self, at: int, stop: int) -> None:
        try:
            data = self._disk.read_at(self._path, at, min(WINDOW_BYTES, self._stop - at))
        except FileNotFoundError:
            raise
        except OSError:
            # A bad block in the window: the blobs beside it may be whole.
            data = self._disk.read_at(self._path, at, min(WINDOW_BYTES, stop - at))
        self._start, self._bytes = at, memoryview(data)
