"""The words of the cutters: what they read from, what they answer, and how they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter

ReadAt = Callable[[int, int], bytes]
"""Offset and size to exactly that many bytes, or fewer at the end of the file."""

MAX_HEADER = 100_000_000
"""Longest header or directory that is read; safetensors' own limit."""
MAX_TENSORS = 200_000
MAX_DIMENSIONS = 64
MEMBER_BYTES = 64 * 1024
"""A zip member that is no tensor is a slice of its own when it is larger than this."""


class Refused(ValueError):
    """The file is not exactly as its format says; the text says what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes of the file that are worth sharing. `itemsize` divides the length; a reader wants that alignment."""

    start: int
    stop: int
    itemsize: int


@dataclass(frozen=True, slots=True)
class Cut:
    """How a file is stored: sorted, disjoint, non-empty slices; all bytes between them are kept in order.

    `format` is `safetensors`, `torch`, `npz`, `zip`, `npy`, `gguf` or `opaque`. `reason` is set only for an opaque file
    that looks like one of the others, and says what was expected and what was found.
    """

    format: str
    slices: tuple[Slice, ...]
    reason: str | None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor inside a file, as the file describes it.

    `dtype` is the name in `cairn.state.dtypes`; a type that is not there keeps the name its format gives it. `start`
    and `stop` are the tensor's bytes in the file, or those of the storage that it is a view of: element `offset` of
    the range is its first, and `strides` (in elements; None means C order) lead to the others. `big_endian` says the
    order of bytes in an element; `conjugate` and `negative` say that the stored elements are to be read that way.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
    offset: int = 0
    strides: tuple[int, ...] | None = None
    big_endian: bool = False
    conjugate: bool = False
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A file of a known size that is read in pieces."""

    read_at: ReadAt
    size: int
    ahead: bool = True
    """Whether to read ahead in archives; not where every read costs a whole blob."""

    def exact(self, offset: int, size: int, what: str) -> bytes:
        """Read exactly these bytes. Raises Refused when the file ends before, without asking for them."""
        if size < 0 or not 0 <= offset <= self.size - size:
            raise Refused(f"expected {what} of {size} bytes at {offset}, found a file of {self.size} bytes")
        data = self.read_at(offset, size) if size else b""
        if len(data) != size:
            raise Refused(f"expected {what} of {size} bytes at {offset}, found {len(data)} bytes")
        return data


def tiled(ranges: Iterable[Slice], start: int, stop: int, what: str) -> tuple[Slice, ...]:
    """Sort ranges that must fill `start` to `stop` without hole or overlap; drop the empty ones. Raises Refused."""
    at = start
    kept = []
    for piece in sorted(ranges, key=attrgetter("start", "stop")):
        if piece.start != at:
            raise Refused(f"expected {what} to continue at byte {at}, found one at {piece.start} to {piece.stop}")
        at = piece.stop
        if piece.start < piece.stop:
            kept.append(piece)
    if at != stop:
        raise Refused(f"expected {what} up to the end of the file at byte {stop}, found an end at {at}")
    return tuple(kept)


def elements(shape: tuple[int, ...]) -> int:
    """Count the elements of a shape. Raises Refused when no file can hold them."""
    count = math.prod(shape) if len(shape) <= MAX_DIMENSIONS else -1
    if not 0 <= count < 1 << 63:
        raise Refused(f"expected a shape of fewer than 2^63 elements, found {len(shape)} dimensions: {shape!s:.60}")
    return count


def alignment(size: int) -> int:
    """The largest power of two, up to 16, that divides a length: never less than what its elements need."""
    return min(size & -size, 16)
