"""Blob ids: the BLAKE3-256 of the bytes and of nothing else, as 64 lower-case hex digits.

`b3sum` prints the same digits for the same bytes, so a store can be checked without cairn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from blake3 import blake3

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
PARALLEL_BYTES = 1 << 18
"""From this size on one hash is worth several cores."""


class BlobRef(NamedTuple):
    """A blob as trees name it: its id and its length in bytes, which makes truncation cheap to see."""

    id: str
    size: int


def blob_id(data: Buffer, threads: int | None = None) -> str:
    """Hash bytes; large ones on all cores, or on so many."""
    view = memoryview(data).cast("B")
    if view.nbytes < PARALLEL_BYTES:
        return blake3(view).hexdigest()
    return blake3(view, max_threads=_most(view.nbytes, threads)).hexdigest()


def new_hasher(nbytes: int, threads: int | None = None) -> blake3:
    """Begin a hash of so many bytes that come in parts; of large ones on all cores, or on so many."""
    return blake3(max_threads=_most(nbytes, threads))


def blob_id_of(parts: Sequence[memoryview], threads: int | None = None) -> str:
    """Hash the concatenation of bytes; large ones on all cores, or on so many."""
    hasher = new_hasher(sum(part.nbytes for part in parts), threads)
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def _most(nbytes: int, threads: int | None) -> int:
    if nbytes < PARALLEL_BYTES:
        return 1
    # A pool of threads for one hash costs more than the machine's own, which is always there.
    return blake3.AUTO if threads is None or threads >= (os.cpu_count() or 1) else threads


def is_id(text: object) -> bool:
    """Whether this is the text of an id: a `str` of exactly 64 lower-case hex digits."""
    return isinstance(text, str) and HEX.fullmatch(text) is not None
