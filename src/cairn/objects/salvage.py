"""What can be proven of a pack whose header cannot be believed.

The text of the header is taken as a list of places to look at, no more. The bytes of a place are a blob if their hash
is one that is asked for, or that the header names: a hash that comes out right is no guess.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

from cairn.ids import BlobRef, blob_id
from cairn.io.disk import Disk
from cairn.objects.pack import MAX_HEADER

_ENTRY = re.compile(rb'\{"dtype":"U8","shape":\[(\d{1,12})\],"data_offsets":\[(\d{1,12}),(\d{1,12})\]\}')
_TREES = re.compile(rb'"trees":"(\d{1,6})"')
_ID = re.compile(rb'"([0-9a-f]{64})":')


def salvage(disk: Disk, path: Path, wanted: Collection[str]) -> Iterator[tuple[BlobRef, int, bool]]:
    """Yield the blobs of a damaged pack that can be proven: where they begin, and whether they seem to be trees.

    Raises OSError.
    """
    size = disk.size(path) or 0
    head = disk.read_at(path, 0, min(size, MAX_HEADER + 8))
    places = list(_places(head))
    trees = _TREES.search(head)
    first_tree = len(places) - int(trees[1] if trees else 0)
    named = {match.decode() for match in _ID.findall(head)}
    for start in _starts(head, size, places):
        found = False
        for number, (begin, end) in enumerate(places):
            data = disk.read_at(path, start + begin, end - begin)
            ref = BlobRef(blob_id(data), len(data))
            if ref.id in named or ref.id in wanted:
                found = True
                yield ref, start + begin, number >= first_tree
        if found:
            return


def _places(head: bytes) -> Iterator[tuple[int, int]]:
    """The places that entries name, and the gaps that entries left which cannot be read."""
    last = 0
    for match in _ENTRY.finditer(head):
        length, begin, end = map(int, match.groups())
        if begin < last:
            return  # No longer the header: blobs may hold such text, too.
        if end - begin == length > 0:
            if begin > last:
                yield last, begin
            yield begin, end
            last = end


def _starts(head: bytes, size: int, places: list[tuple[int, int]]) -> list[int]:
    """Where the data may begin: where the header's length says, and where the file's size does."""
    if len(head) < 8 or not places:
        return []
    says = int(struct.unpack("<Q", head[:8])[0]) + 8
    return [start for start in dict.fromkeys((says, size - places[-1][1])) if 8 <= start < size]
