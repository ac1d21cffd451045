"""Going through packs front to back, on all cores: blobs are hashed where they are mapped, or read and hashed there.

Packs are written past the page cache, so the first load of a commit finds nothing in memory, and page faults alone
would fetch it in small steps, one after the other. So each stretch of neighbouring blobs is asked for well before it is
used, and the system reads many at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from cairn.ids import blob_id, new_hasher
from cairn.io.disk import Disk
from cairn.io.handles import OpenFile
from cairn.objects.reader import SCARCE, PackReader

T = TypeVar("T")

STRETCH_BYTES = 8 << 20
AHEAD = 16
"""How many stretches are asked for before they are used."""
ALONE_BYTES = 1 << 20
"""Less than this is done by the caller's own thread, and not asked for ahead."""
_CHUNK_BYTES = 1 << 20
"""A long blob is read and hashed in steps of this size: what was just read is still near the core."""
_MOST_PIECES = 512
"""Blobs that one system call reads."""


class Wanted(NamedTuple):
    """A blob in a pack: where it lies, its id, and where to read it to; None to look at it where it is mapped."""

    offset: int
    size: int
    blob: str
    target: memoryview | None


class _Stretch(NamedTuple):
    reader: PackReader
    items: list[Wanted]

    @property
    def start(self) -> int:
        return self.items[0].offset

    @property
    def stop(self) -> int:
        return self.items[-1].offset + self.items[-1].size


def sweep(disk: Disk, wanted: Mapping[PackReader, Sequence[Wanted]], threads: int | None = None) -> set[str]:
    """Read and check blobs, each where it is wanted; return those that cannot be read or are wrong there.

    `threads` bounds the cores that this takes.
    """
    stretches = list(_stretches(wanted))
    check = partial(_check, disk, threads=threads)
    if sum(stretch.stop - stretch.start for stretch in stretches) < ALONE_BYTES:
        return {blob for stretch in stretches for blob in check(stretch)}

    def step(at: int) -> list[str]:
        if at + ahead < len(stretches):
            _ask_for(disk, stretches[at + ahead])
        return check(stretches[at]) if at >= 0 else []

    ahead = min(AHEAD, len(stretches))
    steps = [partial(step, at) for at in range(-ahead, len(stretches))]
    return {blob for found in in_threads(steps, threads) for blob in found}


def in_threads(work: Sequence[Callable[[], T]], threads: int | None = None) -> list[T]:
    """Do pieces of work on all cores, or on so many, the caller's thread included; return what they return, in order.

    Where no thread can be started, there are fewer. The first error ends it.
    """
    todo = deque(enumerate(work))
    done: dict[int, T] = {}
    errors: list[BaseException] = []

    def labour() -> None:
        while todo and not errors:
            try:
                at, do = todo.popleft()
            except IndexError:
                return
            try:
                done[at] = do()
            except BaseException as error:
                errors.append(error)

    helpers = []
    for _ in range(min(threads or len(os.sched_getaffinity(0)), len(work)) - 1):
        helper = threading.Thread(target=labour, name="cairn-read", daemon=True)
        try:
            helper.start()
        except RuntimeError:
            break
        helpers.append(helper)
    try:
        labour()
    finally:
        todo.clear()
        for helper in helpers:
            helper.join()
    if errors:
        raise errors[0]
    return [done[at] for at in range(len(work))]


def _stretches(wanted: Mapping[PackReader, Sequence[Wanted]]) -> Iterator[_Stretch]:
    """Part what is wanted of each pack, in its order; who looks at the same bytes twice looks once."""
    for reader, unordered in wanted.items():
        items: list[Wanted] = []
        for item in sorted(unordered, key=lambda item: item.offset):
            if items and (item.offset + item.size - items[0].offset > STRETCH_BYTES):
                yield _Stretch(reader, items)
                items = []
            if not (items and item.target is None and items[-1][:3] == item[:3]):
                items.append(item)
        yield _Stretch(reader, items)


def _ask_for(disk: Disk, stretch: _Stretch) -> None:
    with contextlib.suppress(OSError):
        disk.read_ahead(stretch.reader.path, stretch.start, stretch.stop - stretch.start)


def _check(disk: Disk, stretch: _Stretch, *, threads: int | None) -> list[str]:
    """Read and hash one stretch; return the blobs that are wrong."""
    wrong = []
    reads = []
    start = stretch.start
    mapped: memoryview | None = None
    for item in stretch.items:
        if item.target is not None:
            reads.append(item)
            continue
        if mapped is None:
            mapped = stretch.reader.bytes_at(start, stretch.stop - start)
        at = item.offset - start
        if blob_id(mapped[at : at + item.size], threads) != item.blob:
            wrong.append(item.blob)
    if reads:
        try:
            with disk.open_file(stretch.reader.path) as file:
                wrong += [blob for run in _runs(reads) for blob in _read(file, run, threads)]
        except OSError as error:
            # Gone, or a bad block: the one who asked looks for each of these by itself.
            if error.errno in SCARCE:
                raise
            wrong += [item.blob for item in reads]
    return wrong


def _runs(items: list[Wanted]) -> Iterator[list[Wanted]]:
    """Blobs that one call can read: neighbours, and not long ones."""
    run: list[Wanted] = []
    for item in items:
        beside = run and run[-1].offset + run[-1].size == item.offset and item.size < _CHUNK_BYTES
        if run and (not beside or run[-1].size >= _CHUNK_BYTES or len(run) == _MOST_PIECES):
            yield run
            run = []
        run.append(item)
    yield run


def _read(file: OpenFile, run: list[Wanted], threads: int | None) -> list[str]:
    """Read blobs to where they are wanted, and hash them there; return those that are wrong."""
    if len(run) > 1:
        file.read_into(run[0].offset, [item.target for item in run if item.target is not None])
        return [item.blob for item in run if item.target is not None and blob_id(item.target, threads) != item.blob]
    ((offset, size, blob, target),) = run
    hasher = new_hasher(size, threads)
    for start in range(0, size, _CHUNK_BYTES):
        part = (target or memoryview(b""))[start : start + _CHUNK_BYTES]
        file.read_into(offset + start, [part])
        hasher.update(part)
    return [] if hasher.hexdigest() == blob else [blob]
