"""Every blob of every pack that is in place: which are needed, and where each of their copies lies.

Made of the packs' own headers, one at a time, never of the index, and for one question: it ages at once. A store may
have millions of blobs, so columns hold them: some 60 bytes for a blob and 16 for a copy of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from cairn.objects.pack import Header

_PREFIX = 2
_TAIL = 32 - _PREFIX
_ENTRY = _TAIL + 4


class Copy(NamedTuple):
    """One copy of a blob: its pack, and where it lies in that file."""

    pack_id: str
    offset: int
    size: int


class Catalogue:
    """Packs, their copies of blobs, and the blobs, each numbered from 0 in the order in which they came."""

    def __init__(self) -> None:
        self.packs: list[str] = []
        self.writers: list[str] = []
        """The operation that wrote each pack."""
        self.sizes = array("Q")
        """The length of each pack's file."""
        self.unreadable: list[str] = []
        """Packs whose header cannot be read; nothing is known of their blobs."""
        self.blob_of = array("I")
        """The blob of each copy."""
        self.lengths = array("Q")
        """The bytes of each blob."""
        self.turns = array("I")
        """When each blob was found to be needed: 1, 2, …; 0 for those that are not."""
        self._first = array("Q", [0])
        self._offsets = array("Q")
        self._next = array("I")
        self._newest = array("I")
        self._pack_of = array("I")
        self._numbers = _Numbers()
        self._absent: set[str] = set()
        self._turn = 0

    def add(self, header: Header) -> None:
        """Enter a pack."""
        pack = len(self.packs)
        self.packs.append(header.pack_id)
        self.writers.append(header.write_id)
        self.sizes.append(header.size)
        for blob, place in header.places.items():
            copy = len(self.blob_of)
            number, is_new = self._numbers.enter(bytes.fromhex(blob))
            if is_new:
                self.lengths.append(place.size)
                self.turns.append(0)
                self._next.append(0)
                self._newest.append(copy)
            else:
                self._next.append(self._newest[number] + 1)
                self._newest[number] = copy
            self.blob_of.append(number)
            self._offsets.append(place.offset)
            self._pack_of.append(pack)
            if blob in self._absent:
                self._absent.remove(blob)
                self.need(blob)
        self._first.append(len(self.blob_of))

    def need(self, blob: str) -> None:
        """Note that something needs a blob, be it in no pack that is in place."""
        number = self.number(blob)
        if number is None:
            self._absent.add(blob)
        elif not self.turns[number]:
            self._turn += 1
            self.turns[number] = self._turn

    def is_needed(self, blob: str) -> bool:
        """Whether something was found to need a blob."""
        number = self.number(blob)
        return blob in self._absent if number is None else self.turns[number] > 0

    def number(self, blob: str) -> int | None:
        """Return a blob's number, or None when no pack has it."""
        return self._numbers.get(bytes.fromhex(blob))

    def copies_in(self, pack: int) -> range:
        """Return the copies in a pack, in the order of its header."""
        return range(self._first[pack], self._first[pack + 1])

    def copies_of(self, blob: str) -> Iterator[Copy]:
        """Yield where a blob lies."""
        number = self.number(blob)
        copy = 0 if number is None else self._newest[number] + 1
        while copy and number is not None:
            yield Copy(self.packs[self._pack_of[copy - 1]], self._offsets[copy - 1], self.lengths[number])
            copy = self._next[copy - 1]


class _Numbers:
    """A map from ids to numbers in the order of entry, without an object for each.

    Ids are hashes, so their first bytes spread them evenly over short runs of bytes, which are searched.
    """

    def __init__(self) -> None:
        self._runs: list[bytearray | None] = [None] * (1 << 8 * _PREFIX)
        self._count = 0

    def get(self, digest: bytes) -> int | None:
        run = self._runs[int.from_bytes(digest[:_PREFIX], "big")]
        if run is None:
            return None
        tail = digest[_PREFIX:]
        at = run.find(tail)
        while at >= 0 and at % _ENTRY:
            at = run.find(tail, at + 1)
        return None if at < 0 else int.from_bytes(run[at + _TAIL : at + _ENTRY], "little")

    def enter(self, digest: bytes) -> tuple[int, bool]:
        """Return an id's number, and whether it is new."""
        known = self.get(digest)
        if known is not None:
            return known, False
        key = int.from_bytes(digest[:_PREFIX], "big")
        run = self._runs[key]
        if run is None:
            run = self._runs[key] = bytearray()
        run += digest[_PREFIX:] + self._count.to_bytes(4, "little")
        self._count += 1
        return self._count - 1, True
