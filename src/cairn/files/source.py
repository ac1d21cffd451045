"""A file on disk while it is committed: read once, front to back, in the pieces that become blobs.

The cutter looks at headers first. Its slices, and what lies between them, tile the file; every piece is hashed from the
very bytes that are stored, and the whole file's hash is taken in the same pass. So a file that changes meanwhile is
noticed, or stored as one consistent version, but never under a wrong hash. Files are read, not mapped: one that
shrinks is an error, not a bus error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from blake3 import blake3

from cairn.errors import CairnError
from cairn.files.formats import Cut, cut_file
from cairn.ids import PARALLEL_BYTES, BlobRef
from cairn.io.disk import Disk
from cairn.io.handles import OpenFile
from cairn.objects.cutting import cut
from cairn.objects.gather import Gather
from cairn.objects.intake import Intake
from cairn.state.nodes import FileRefs, Slice
from cairn.state.stored import StoredFile

REST_BYTES = 1 << 16
"""A gap between slices that is longer than this becomes a blob of its own."""

REST_TOTAL_BYTES = 1 << 24
"""So does every gap once this much rest has been kept, which bounds memory."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of a file's bytes that is read at once: a blob's, or rest."""

    start: int
    stop: int
    itemsize: int
    is_rest: bool


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file to be committed."""

    disk: Disk
    raw_path: bytes
    path: str

    def take_in(self, intake: Intake, gather: Gather, advance: Callable[[int], None]) -> tuple[FileRefs, str | None]:
        """Store the file; return what its tree says, and why it was not cut. Raises CairnError when it changes.

        Memory: one piece of at most 64 MiB, and the rest, at most 16 MiB and a file without structure under 64 MiB.
        """
        with self.disk.open_file(self.raw_path) as file:
            how = cut_file(file.read_at, file.size)
            whole = blake3(max_threads=blake3.AUTO if file.size >= PARALLEL_BYTES else 1)
            rest: list[memoryview] = []
            slices: list[Slice] = []
            for piece in pieces(how, file.size):
                data = self._read(file, piece.start, piece.stop)
                whole.update(data)
                if piece.is_rest:
                    rest.append(data)
                    slices.append(Slice(data.nbytes, None))
                else:
                    ref = intake.put(gather, data, piece.itemsize, self.path, _Again(self, piece.start, piece.stop))
                    slices.append(Slice(ref.size, ref))
                advance(data.nbytes)
            if file.has_changed():
                raise CairnError(f"{self.path} changed while it was being read; nothing was published, commit again")
            put_rest = self._put_rest(intake, gather, rest)
        return FileRefs(file.size, whole.hexdigest(), put_rest, tuple(slices)), how.reason

    def read_again(self, start: int, stop: int) -> memoryview:
        """Return some of the file's bytes as they are now."""
        with self.disk.open_file(self.raw_path) as file:
            return self._read(file, start, stop)

    def _put_rest(self, intake: Intake, gather: Gather, rest: list[memoryview]) -> tuple[BlobRef, ...]:
        data = memoryview(b"".join(rest))
        return tuple(
            intake.put(gather, data[start:stop], 1, self.path, _Same(data[start:stop]))
            for start, stop in cut(data.nbytes)
        )

    def _read(self, file: OpenFile, start: int, stop: int) -> memoryview:
        data = file.read_at(start, stop - start)
        if len(data) != stop - start:
            raise CairnError(
                f"{self.path}: expected {file.size} bytes, found {start + len(data)}; it became shorter while it was "
                f"being read; nothing was published, commit again"
            )
        return memoryview(data)


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A committed file that is committed again."""

    file: StoredFile

    @property
    def path(self) -> str:
        """The words for it in messages."""
        return self.file.path

    def take_in(self, intake: Intake, gather: Gather, advance: Callable[[int], None]) -> tuple[FileRefs, str | None]:
        """Store the file's blobs, most of which are there already."""
        refs = self.file.refs
        for ref in refs.blobs:
            fetch = partial(self.file.source.data, [ref])
            intake.put(gather, fetch(), 1, self.path, fetch)
            advance(ref.size)
        return refs, None


def pieces(how: Cut, size: int) -> list[Piece]:
    """Tile a file: the cutter's slices, long ones cut further, and what lies between them."""
    tiles: list[Piece] = []
    position = rest = 0
    for start, stop, itemsize in [*((s.start, s.stop, s.itemsize) for s in how.slices), (size, size, 1)]:
        gap = start - position
        if gap > REST_BYTES or (gap and (rest + gap > REST_TOTAL_BYTES or not how.slices)):
            tiles += [Piece(position + a, position + b, 1, is_rest=False) for a, b in cut(gap)]
        elif gap:
            tiles.append(Piece(position, start, 1, is_rest=True))
            rest += gap
        tiles += [Piece(start + a, start + b, itemsize, is_rest=False) for a, b in cut(stop - start)]
        position = stop
    return tiles


@dataclass(frozen=True, slots=True)
class _Again:
    source: FileSource
    start: int
    stop: int

    def __call__(self) -> memoryview:
        return self.source.read_again(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class _Same:
    data: memoryview

    def __call__(self) -> memoryview:
        return self.data
