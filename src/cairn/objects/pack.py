"""Packs: immutable `.safetensors` files whose tensor names are blob ids.

A pack is 8 bytes of little-endian header length, a JSON header padded with spaces, and the blobs without holes. Its
id is the BLAKE3 of everything before the data. The header names every blob, so the id is the root of a Merkle tree:
a pack whose name is right and whose blobs hash right is right in every byte.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from cairn.errors import Damaged
from cairn.ids import BlobRef, blob_id, is_id

FORMAT = "1"
MAX_HEADER = 100_000_000
MAX_BYTES = 4 << 30
MAX_BLOBS = 500_000
"""Keeps every header well under its limit."""
ALIGN = 64
ALIGN_LARGE = 4096
LARGE_BYTES = 1 << 20

_START = re.compile(
    rb'\{"__metadata__":\{"cairn.pack":"1","write_id":"([0-9a-f]{32})","serial":"(\d{1,9})","trees":"(\d{1,9})"\},'
)
_BLOB = re.compile(rb'"([0-9a-f]{64})":\{"dtype":"U8","shape":\[([1-9]\d{0,9})\]')
_WRITE_ID = 32


class Place(NamedTuple):
    """Where a blob lies in its pack: offset from the start of the file, and size in bytes."""

    offset: int
    size: int
    is_tree: bool


@dataclass(frozen=True)
class Header:
    """What a pack says about itself, checked against its name."""

    pack_id: str
    write_id: str
    size: int
    places: dict[str, Place] = field(repr=False)

    @cached_property
    def trees(self) -> list[str]:
        """The blobs that are trees."""
        return [blob for blob, place in self.places.items() if place.is_tree]


def encode_header(
    blobs: list[BlobRef], *, trees: int, write_id: str, serial: int, reserved: int | None = None
) -> tuple[str, bytes]:
    """Spell the header of a pack with these blobs in this order, the last `trees` of them trees.

    Returns the pack's id and all bytes before the data: exactly `reserved` of them, or as few as the padding allows.
    `serial` tells packs of one operation apart, so that no pack id ever comes back.
    """
    metadata = {"cairn.pack": FORMAT, "write_id": write_id, "serial": str(serial), "trees": str(trees)}
    parts = ['"__metadata__":' + json.dumps(metadata, separators=(",", ":"))]
    offset = 0
    for blob, size in blobs:
        parts.append(_entry(blob, size, offset, offset + size))
        offset += size
    text = ("{" + ",".join(parts) + "}").encode()
    total = padded(8 + len(text), offset) if reserved is None else reserved
    if total < 8 + len(text):
        raise ValueError(f"a header of {len(text)} bytes does not fit the {total} reserved")
    head = struct.pack("<Q", total - 8) + text.ljust(total - 8)
    return blob_id(head), head


def places(blobs: Sequence[BlobRef], head: int, trees: int) -> dict[str, Place]:
    """Say where blobs lie that follow a head of this size, the last `trees` of them trees."""
    found: dict[str, Place] = {}
    offset, first_tree = head, len(blobs) - trees
    for number, (blob, size) in enumerate(blobs):
        found[blob] = Place(offset, size, number >= first_tree)
        offset += size
    return found


def padded(head: int, data: int) -> int:
    """Return how long the head becomes so that the data starts aligned."""
    align = ALIGN_LARGE if head + data > LARGE_BYTES else ALIGN
    return -(-head // align) * align


def head_bound(blobs: int) -> int:
    """Return a length that the head of a pack with up to this many blobs never exceeds."""
    widest = len(_entry("0" * 64, MAX_BYTES, MAX_BYTES, MAX_BYTES)) + 1
    return padded(8 + 256 + blobs * widest, LARGE_BYTES)


def decode_header(head: bytes, file_size: int, what: str, expected_id: str | None) -> Header:
    """Check and read everything before the data. Raises Damaged.

    Every length, offset and count is checked against the file's size before it is used.
    """
    pack_id = blob_id(head)
    if expected_id is not None and pack_id != expected_id:
        raise Damaged(f"{what}: expected a header that hashes to its name {expected_id}, found {pack_id}")
    known = _as_cairn_writes(head, file_size)
    if known is not None:
        return known
    try:
        document = json.loads(head[8:].decode("utf-8"), object_pairs_hook=_members)
        metadata = document.pop("__metadata__")
        trees = _count(metadata["trees"])
        if metadata["cairn.pack"] != FORMAT:
            raise ValueError(f"pack format {metadata['cairn.pack']!r:.40} (this version reads {FORMAT})")
        write_id = metadata["write_id"]
        if not isinstance(write_id, str) or len(write_id) != _WRITE_ID:
            raise ValueError("a write id that is none")
        places = _places(document, len(head), file_size, trees)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{what}: expected the header of a pack, found {type(error).__name__}: {error}") from None
    return Header(pack_id, write_id, file_size, places)


def head_size(prefix: bytes, file_size: int, what: str) -> int:
    """Read the length of the head from a file's first 8 bytes. Raises Damaged when it cannot be."""
    size = struct.unpack("<Q", prefix)[0] + 8 if len(prefix) == 8 else 0
    if not 10 <= size <= min(file_size, MAX_HEADER + 8):
        raise Damaged(f"{what}: expected a header length that fits the file, found {size - 8} in {file_size} bytes")
    return size


def _entry(blob: str, size: int, begin: int, end: int) -> str:
    return f'"{blob}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{begin},{end}]}}'


def _as_cairn_writes(head: bytes, file_size: int) -> Header | None:
    """Read a header that is, byte for byte, what `encode_header` spells; None for others, which may be right, too."""
    start = _START.match(head, 8)
    if start is None:
        return None
    write_id, serial, trees = start[1].decode(), int(start[2]), int(start[3])
    blobs = [BlobRef(blob.decode(), int(size)) for blob, size in _BLOB.findall(head, start.end())]
    try:
        pack_id, again = encode_header(blobs, trees=trees, write_id=write_id, serial=serial, reserved=len(head))
    except ValueError:
        return None
    found = places(blobs, len(head), trees)
    if again != head or len(found) != len(blobs) or trees > len(blobs):
        return None
    if len(head) + sum(size for _, size in blobs) != file_size:
        return None
    return Header(pack_id, write_id, file_size, found)


def _places(document: dict[str, Any], start: int, file_size: int, trees: int) -> dict[str, Place]:
    places: dict[str, Place] = {}
    offset, first_tree = 0, len(document) - trees
    if first_tree < 0:
        raise ValueError(f"{trees} trees among {len(document)} blobs")
    for number, (blob, entry) in enumerate(document.items()):
        begin, end = entry["data_offsets"]
        if begin != offset or entry["shape"] != [end - begin] or entry["dtype"] != "U8" or len(entry) != 3:
            raise ValueError(f"an entry {blob!r:.80} that does not continue at {offset}")
        if type(end) is not int or type(begin) is not int or not offset < end <= file_size - start:
            raise ValueError(f"blob {blob} with offsets [{begin}, {end}] in a file of {file_size} bytes")
        if not is_id(blob):
            raise ValueError(f"a name {blob!r:.80} that is no id")
        places[blob] = Place(start + offset, end - offset, number >= first_tree)
        offset = end
    if start + offset != file_size:
        raise ValueError(f"blobs up to byte {start + offset} in a file of {file_size} bytes")
    return places


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a duplicate key")
    return document


def _count(text: object) -> int:
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError(f"a count {text!r:.40}")
    return int(text)
