"""A committed file: its bytes, read and checked when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes from front to back, in runs of at most 64 MiB. Raises Damaged."""
        rest = self.source.data(self.refs.rest) if self.refs.rest else memoryview(b"")
        at = 0
        for part in self.refs.slices:
            if part.blob is not None:
                yield self.source.data([part.blob])
            else:
                yield rest[at : at + part.size]
                at += part.size

    def read(self) -> bytes:
        """Return all bytes. Raises Damaged."""
        return b"".join(self.chunks())

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from an offset, reading only the blobs they are in. Raises Damaged."""
        if offset < 0 or size < 0:
            raise UsageError(f"{self.path}: expected an offset and a size, found {offset} and {size}")
        found: list[bytes] = []
        start = at = 0
        for part in self.refs.slices:
            low, high = max(offset - start, 0), min(offset + size - start, part.size)
            if low < high:
                if part.blob is not None:
                    found.append(bytes(self.source.data([part.blob])[low:high]))
                else:
                    found.append(bytes(self.source.data(self.refs.rest)[at + low : at + high]))
            start += part.size
            at += part.size if part.blob is None else 0
            if start >= offset + size:
                break
        return b"".join(found)
