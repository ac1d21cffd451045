"""What the reading of every kind of node needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cairn.ids import BlobRef, is_id


class Malformed(ValueError):
    """What is wrong with a node; who knows its place makes it a Damaged."""


@dataclass(frozen=True, slots=True)
class Body:
    """A container: its type, and its entries or the parts that hold them."""

    kind: str
    """"dict", "OrderedDict", "Counter", "list", "tuple" or "folder"."""

    shape: str
    """How the entries are spelled: "fields", "items" or "pairs"."""

    raw: Any
    parts: bool
    mode: int = 0
    """The permission bits of a folder."""
    metadata: tuple[Any, ...] = ()
    """The node of an OrderedDict's attribute `_metadata`, if it has one."""


def parse_refs(raw: Any) -> tuple[BlobRef, ...]:
    """Read a blob list. Raises Malformed."""
    if type(raw) is not list:
        raise Malformed(f"expected a list of blobs, found {raw!r:.60}")
    return tuple([parse_ref(item) for item in raw])


def parse_ref(raw: Any) -> BlobRef:
    """Read a reference to a blob. Raises Malformed."""
    if type(raw) is list and len(raw) == 2:
        blob, size = raw
        if type(size) is int and size > 0 and is_id(blob):
            return BlobRef(blob, size)
    raise Malformed(f'expected a blob as ["<id>", length], found {raw!r:.90}')


def members(raw: Any, *expected: str) -> list[Any]:
    """The values of an object that has exactly these members in this order. Raises Malformed."""
    if type(raw) is not dict or list(raw) != list(expected):
        raise Malformed(f"expected an object with {', '.join(expected)}, found {raw!r:.90}")
    return list(raw.values())
