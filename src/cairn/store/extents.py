"""Where the bytes of tensors lie in the store, and their reading in windows, one blob at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from cairn.files.formats import TensorInfo
from cairn.ids import BlobRef
from cairn.state.stored import BlobSource, StoredFile


@dataclass(frozen=True, slots=True)
class Extent:
    """Some bytes of a blob."""

    blob: BlobRef
    offset: int
    size: int


class Bytes:
    """Bytes that lie in blobs, or in parts of blobs, one after the other.

    The blob that was read last is kept, so reading windows from front to back reads and checks each blob once.
    """

    def __init__(self, source: BlobSource, extents: Sequence[Extent]) -> None:
        """Read from `source` what is asked for."""
        self._source = source
        self._extents = extents
        self._stops = list(accumulate(extent.size for extent in extents))
        self._held = ("", memoryview(b""))

    def part(self, start: int, stop: int) -> list[Extent]:
        """The extents of some of the bytes: where these are the same, so are the bytes."""
        found = []
        index = bisect_right(self._stops, start)
        while start < stop:
            extent = self._extents[index]
            low = start - (self._stops[index] - extent.size)
            size = min(stop - start, extent.size - low)
            found.append(Extent(extent.blob, extent.offset + low, size))
            start += size
            index += 1
        return found

    def read(self, start: int, stop: int) -> memoryview:
        """Some of the bytes, checked; a copy only where they lie in several blobs. Raises Damaged."""
        views = [self._view(extent) for extent in self.part(start, stop)]
        return views[0] if len(views) == 1 else memoryview(b"".join(views))

    def _view(self, extent: Extent) -> memoryview:
        if self._held[0] != extent.blob.id:
            # One blob is let go before the next is read.
            self._held = ("", memoryview(b""))
            self._held = (extent.blob.id, self._source.data([extent.blob]))
        return self._held[1][extent.offset : extent.offset + extent.size]


@dataclass(frozen=True, slots=True)
class Elements:
    """A tensor as it lies in the store: what it is, and the bytes that its places count from."""

    info: TensorInfo
    data: Bytes

    def is_same(self, other: Elements) -> bool:
        """Whether two tensors of one type and shape are the same, told without reading."""
        return _order(self.info) == _order(other.info) and self._extents() == other._extents()

    def _extents(self) -> object:
        return self.data.part(self.info.start, self.info.stop)


def _order(info: TensorInfo) -> object:
    """How elements are read from the bytes."""
    return info.offset, info.strides, info.big_endian, info.conjugate, info.negative


def windows(count: int, step: int) -> Iterator[tuple[int, int]]:
    """Part a count into windows: where each begins and ends."""
    for start in range(0, count, step):
        yield start, min(start + step, count)


def of_blobs(source: BlobSource, refs: Sequence[BlobRef]) -> Bytes:
    """The bytes of blobs."""
    return Bytes(source, [Extent(ref, 0, ref.size) for ref in refs])


def of_file(file: StoredFile) -> Bytes:
    """The bytes of a committed file."""
    rest = of_blobs(file.source, file.refs.rest)
    extents: list[Extent] = []
    at = 0
    for piece in file.refs.slices:
        if piece.blob is not None:
            extents.append(Extent(piece.blob, 0, piece.size))
        else:
            extents += rest.part(at, at + piece.size)
            at += piece.size
    return Bytes(file.source, extents)
