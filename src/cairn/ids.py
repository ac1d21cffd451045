"""Blob ids: the BLAKE3-256 of the bytes and of nothing else, as 64 lower-case hex digits.

`b3sum` prints the same digits for the same bytes, so a store can be checked without cairn.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
PARALLEL_BYTES = 1 << 20
"""From this size on one hash is worth several cores."""


class BlobRef(NamedTuple):
    """A blob as trees name it: its id and its length in bytes, which makes truncation cheap to see."""

    id: str
    size: int


def blob_id(data: Buffer, threads: int | None = None) -> str:
    """Hash bytes; large ones on all cores, or on so many."""
    view = memoryview(data).cast("B")
    most = (threads or blake3.AUTO) if view.nbytes >= PARALLEL_BYTES else 1
    return blake3(view, max_threads=most).hexdigest()


def is_id(text: object) -> bool:
    """Whether this is the text of an id: a `str` of exactly 64 lower-case hex digits."""
    return isinstance(text, str) and HEX.fullmatch(text) is not None
