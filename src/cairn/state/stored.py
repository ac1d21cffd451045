"""A committed file: its bytes, read and checked when they are asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from cairn.errors import UsageError
from cairn.ids import BlobRef
from cairn.state.nodes import FileRefs


class BlobSource(Protocol):
    """Where blobs come from, checked."""

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        """The bytes of blobs one after the other. Raises Damaged."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class StoredFile:
    """A file of a commit. Nothing is read before it is asked for."""

    mode: int
    refs: FileRefs
    source: BlobSource
    path: str

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.refs.size

    @property
    def hash(self) -> str:
        """The BLAKE3 of all bytes."""
        return self.refs.hash

    def __repr__(self) -> str:
        return f"<stored file {self.path} of {self.size} bytes>"

    def chunks(self, read: Callable[[BlobRef], memoryview] | None = None) -> Iterator[memoryview]:
        """Yield the bytes from front to back, in runs of at most 64 MiB. Raises Damaged.

        With `read`, blobs come from there, and who asks checks them.
        """
        rest = self.source.data(self.refs.rest) if self.refs.rest else memoryview(b"")
        at = 0
        for part in self.refs.slices:
            if part.blob is not None:
                yield self.source.data([part.blob]) if read is None else read(part.blob)
            else:
                yield rest[at : at + part.size]
                at += part.size

    def read(self) -> bytes:
        """Return all bytes. Raises Damaged."""
        return b"".join(self.chunks())

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from an offset, reading only the blobs they are in. Raises Damaged."""
        return StoredReader(self).read_at(offset, size)


class StoredReader:
    """Reads a committed file here and there; what was checked last is not checked again."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file
        self._ends = list(accumulate(part.size for part in file.refs.slices))
        rest = accumulate(part.size if part.blob is None else 0 for part in file.refs.slices)
        self._rest_ends = list(rest)
        self._rest: memoryview | None = None
        self._last: tuple[BlobRef, memoryview] | None = None

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from an offset, reading only the blobs they are in. Raises Damaged."""
        if offset < 0 or size < 0:
            raise UsageError(f"{self._file.path}: expected an offset and a size, found {offset} and {size}")
        found: list[memoryview] = []
        at = bisect_right(self._ends, offset)
        while size > 0 and at < len(self._ends):
            data = self._slice(at)
            start = offset - (self._ends[at] - data.nbytes)
            found.append(data[start : start + size])
            offset, size = offset + found[-1].nbytes, size - found[-1].nbytes
            at += 1
        return b"".join(found)

    def _slice(self, at: int) -> memoryview:
        part = self._file.refs.slices[at]
        if part.blob is None:
            if self._rest is None:
                self._rest = self._file.source.data(self._file.refs.rest)
            return self._rest[self._rest_ends[at] - part.size : self._rest_ends[at]]
        if self._last is None or self._last[0] != part.blob:
            self._last = (part.blob, self._file.source.data([part.blob]))
        return self._last[1]
