"""Which packs say that they have which blobs: exact, entered one pack at a time, in some 60 bytes a blob.

A dict of a million blobs takes several hundred MB. Here the copies of blobs whose ids begin alike stand in one
bytearray, record after record, and a look-up scans a few of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.objects.pack import Header

_SHELF = 2
"""Bytes of an id that choose the bytearray: 65 536 of them, so 15 records in each for a million blobs."""

_REST = 32 - _SHELF
_PLACE = struct.Struct(">I?QQ")
_RECORD = _REST + _PLACE.size


@dataclass(frozen=True, slots=True)
class Copy:
    """One place where a blob should be."""

    pack: str
    """The name under which the pack was entered."""
    offset: int
    size: int
    is_tree: bool


class Inventory:
    """The blobs of the packs whose headers were entered."""

    def __init__(self) -> None:
        self._packs: list[str] = []
        self._gone: set[int] = set()
        self._shelves: dict[bytes, bytearray] = {}
        self.blobs = 0
        """How many blobs have been entered, each counted once."""

    def enter(self, pack: str, header: Header) -> None:
        """Take in what a pack has."""
        number = len(self._packs)
        self._packs.append(pack)
        for blob, place in header.places.items():
            key = bytes.fromhex(blob)
            shelf = self._shelves.setdefault(key[:_SHELF], bytearray())
            self.blobs += _find(shelf, key[_SHELF:], 0) < 0
            shelf += key[_SHELF:] + _PLACE.pack(number, place.is_tree, place.offset, place.size)

    def forget(self, pack: str) -> None:
        """Leave a pack out from now on."""
        self._gone.update(number for number, known in enumerate(self._packs) if known == pack)

    def copies(self, blob: str) -> Iterator[Copy]:
        """Return where a blob should be, in the order in which the packs were entered."""
        key = bytes.fromhex(blob)
        shelf = self._shelves.get(key[:_SHELF], bytearray())
        at = _find(shelf, key[_SHELF:], 0)
        while at >= 0:
            number, is_tree, offset, size = _PLACE.unpack_from(shelf, at + _REST)
            if number not in self._gone:
                yield Copy(self._packs[number], offset, size, is_tree)
            at = _find(shelf, key[_SHELF:], at + _RECORD)


def _find(shelf: bytearray, rest: bytes, start: int) -> int:
    """The next record with these digits, or -1; the same bytes across two records are none."""
    at = shelf.find(rest, start)
    while at >= 0 and at % _RECORD:
        at = shelf.find(rest, at + 1)
    return at
