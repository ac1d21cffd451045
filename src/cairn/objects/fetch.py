"""What a load reads: first it says what it needs, then all of it is read and checked together.

A blob is wanted where it lies in a mapped pack, or in memory of the caller's. Nothing that was handed out may be
believed before `finish`. Where a blob is wrong, or its pack is gone, `fetched` does everything once more with that blob
looked for at once, in all packs and the trash: so the usual case has one way, and damage costs time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from cairn.errors import Damaged
from cairn.ids import BlobRef
from cairn.io.disk import Disk
from cairn.objects.blobs import Blobs
from cairn.objects.pack import Place
from cairn.objects.reader import PackReader
from cairn.objects.sweep import Wanted, in_threads, sweep

T = TypeVar("T")

_GROUPS = 64
"""Into how many parts the work that comes after the reading is cut, for threads."""


class Fetch:
    """Collects what is to be read. Blobs in `doubtful` are looked for and checked when they are asked for."""

    def __init__(self, blobs: Blobs, disk: Disk, doubtful: set[str], threads: int | None) -> None:
        self._blobs, self._disk = blobs, disk
        self._doubtful = doubtful
        self._threads = threads
        self._wanted: defaultdict[PackReader, list[Wanted]] = defaultdict(list)
        self._after: list[Callable[[], None]] = []

    def tree(self, ref: BlobRef) -> bytes:
        """Return a tree's bytes, checked now. Raises Damaged."""
        return bytes(self._blobs.read(ref))

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        """Return blobs one after the other, checked now. Raises Damaged."""
        return self._blobs.data(refs)

    def view(self, refs: Sequence[BlobRef]) -> memoryview | None:
        """Return blobs as they lie side by side in a mapped pack, to be checked; None where they do not.

        Where packs are mapped, one blob alone always has a view. Raises Damaged.
        """
        if not self._blobs.mapped:
            return None
        reader: PackReader | None = None
        wanted: list[Wanted] = []
        stop = 0
        for ref in refs:
            found = self._locate(ref)
            # Trees are read, not mapped.
            if found is None or found[1].is_tree or (wanted and (found[0] is not reader or found[1].offset != stop)):
                return self._blobs.data(refs) if len(refs) == 1 else None
            reader, place = found
            wanted.append(Wanted(place.offset, ref.size, ref.id, None))
            stop = place.offset + ref.size
        if reader is None:
            return None
        try:
            view = reader.bytes_at(wanted[0].offset, stop - wanted[0].offset)
        except (FileNotFoundError, Damaged):
            return self._blobs.data(refs)
        self._wanted[reader] += wanted
        return view

    def fill(self, refs: Sequence[BlobRef], target: memoryview) -> None:
        """Have blobs read, one after the other, into memory that is as long. Raises Damaged."""
        at = 0
        for ref in refs:
            part = target[at : at + ref.size]
            at += ref.size
            found = self._locate(ref)
            if found is None:
                part[:] = self._blobs.read(ref)
            else:
                reader, place = found
                self._wanted[reader].append(Wanted(place.offset, place.size, ref.id, part))

    def after(self, do: Callable[[], None]) -> None:
        """Have something done when all is read and right, perhaps by another thread."""
        self._after.append(do)

    def finish(self) -> set[str]:
        """Read and check everything; return the blobs that were wrong, or not where they had been."""
        wrong = sweep(self._disk, self._wanted, self._threads)
        if not wrong:
            step = -(-len(self._after) // _GROUPS) or 1
            groups = [self._after[at : at + step] for at in range(0, len(self._after), step)]
            in_threads([partial(_do_all, group) for group in groups], self._threads)
        return wrong

    def _locate(self, ref: BlobRef) -> tuple[PackReader, Place] | None:
        """Where a blob lies, if that is the only place to look at."""
        if ref.id in self._doubtful:
            return None
        reader = self._blobs.find(ref.id, everywhere=True)
        if reader is None:
            return None
        place = reader.header.places[ref.id]
        return (reader, place) if place.size == ref.size else None


def _do_all(group: Sequence[Callable[[], None]]) -> None:
    for do in group:
        do()


def fetched(blobs: Blobs, disk: Disk, build: Callable[[Fetch], T], threads: int | None = None) -> T:
    """Return what is built of what a Fetch hands out, when all of that is there and right. Raises Damaged."""
    doubtful: set[str] = set()
    while True:
        fetch = Fetch(blobs, disk, doubtful, threads)
        made = build(fetch)
        wrong = fetch.finish()
        if not wrong:
            return made
        doubtful |= wrong
        # Given back before it is built anew.
        del made, fetch
