"""A file on disk while it is committed: read once, front to back, in the pieces that become blobs.

The cutter looks at headers first. Its slices, and what lies between them, tile the file; every piece is hashed from the
very bytes that are stored, and the whole file's hash is taken in the same pass. So a file that changes meanwhile is
noticed, and never stored under a wrong hash. Files are read, not mapped: one that shrinks is an error, not a bus error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from blake3 import blake3

from cairn.files.formats import Cut, cut_file
from cairn.files.words import being_read, changed, check_regular, show
from cairn.ids import BlobRef, hashing_threads
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
class Root:
    """What is committed: where it is, whatever the process' folder is by then, and what it was called."""

    absolute: bytes
    words: str

    def join(self, path: bytes) -> bytes:
        """A path below it that can be opened."""
        return os.path.join(self.absolute, path) if path else self.absolute

    def show(self, path: bytes) -> str:
        """The words for a path below it."""
        return os.path.join(self.words, show(path)) if path else self.words


@dataclass(frozen=True, slots=True)
class Kept:
    """A file as it is stored, its format, and why it was not cut although it looks like a known one."""

    refs: FileRefs
    format: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file to be committed."""

    disk: Disk
    root: Root
    name: bytes
    """The path below the root; nothing when the root is the file."""
    size: int
    """In bytes, when the folder was looked through."""

    @property
    def path(self) -> str:
        """The words for it in messages."""
        return self.root.show(self.name)

    def take_in(self, intake: Intake, gather: Gather, advance: Callable[[int], None]) -> Kept:
        """Store the file; `advance` may raise to stop. Raises CairnError when it cannot be read or changes meanwhile.

        Memory: one piece of at most 64 MiB, and the rest, at most 16 MiB and a file without structure under 64 MiB.
        """
        words = self.path
        with self._open() as file:
            how, tiles = self._cut(file)
            gather.expect(len(tiles) - 1)
            # A file that is one blob has the blob's hash.
            whole = None if [tile.is_rest for tile in tiles] == [False] else _hasher(file.size)
            rest: list[memoryview] = []
            slices: list[Slice] = []
            for tile in tiles:
                data = self._read(file, tile.start, tile.stop)
                if whole is not None:
                    whole.update(data)
                if tile.is_rest:
                    rest.append(data)
                    slices.append(Slice(data.nbytes, None))
                else:
                    again = partial(self.read_again, tile.start, tile.stop)
                    ref = intake.put(gather, data, tile.itemsize, words, again)
                    slices.append(Slice(ref.size, ref))
                advance(data.nbytes)
            self._check_unchanged(file)
        put_rest = self._put_rest(intake, gather, memoryview(b"".join(rest)))
        digest = whole.hexdigest() if whole is not None else ref.id
        return Kept(FileRefs(file.size, digest, put_rest, tuple(slices)), how.format, how.reason)

    def read_again(self, start: int, stop: int) -> memoryview:
        """Return some of the file's bytes as they are now."""
        with self._open() as file:
            return self._read(file, start, stop)

    def rest_again(self, start: int, stop: int) -> memoryview:
        """Return some of the file's rest as it is now: found anew, since keeping it would take memory."""
        with self._open() as file:
            tiles = [tile for tile in self._cut(file)[1] if tile.is_rest]
            return memoryview(b"".join([self._read(file, tile.start, tile.stop) for tile in tiles]))[start:stop]

    @contextmanager
    def _open(self) -> Iterator[OpenFile]:
        with being_read(self.path):
            file = self.disk.open_file(self.root.join(self.name))
        with file:
            check_regular(self.path, file.mode)
            yield file

    def _cut(self, file: OpenFile) -> tuple[Cut, list[Piece]]:
        with being_read(self.path):
            how = cut_file(file.read_at, file.size)
        return how, pieces(how, file.size)

    def _read(self, file: OpenFile, start: int, stop: int) -> memoryview:
        with being_read(self.path):
            data = file.read_at(start, stop - start)
        if len(data) != stop - start:
            raise changed(self.path, f"became shorter (expected {file.size} bytes, found {start + len(data)})")
        return memoryview(data)

    def _check_unchanged(self, file: OpenFile) -> None:
        with being_read(self.path):
            how = file.how_changed(self.root.join(self.name))
        if how is not None:
            raise changed(self.path, how)

    def _put_rest(self, intake: Intake, gather: Gather, data: memoryview) -> tuple[BlobRef, ...]:
        return tuple(
            intake.put(gather, data[start:stop], 1, self.path, partial(self.rest_again, start, stop))
            for start, stop in cut(data.nbytes)
        )


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A committed file that is committed again."""

    file: StoredFile

    @property
    def path(self) -> str:
        """The words for it in messages."""
        return self.file.path

    def take_in(self, intake: Intake, gather: Gather, advance: Callable[[int], None]) -> Kept:
        """Store the file's blobs, most of which are there already."""
        refs = self.file.refs
        gather.expect(len(refs.blobs) - 1)
        for ref in refs.blobs:
            fetch = partial(self.file.source.data, [ref])
            intake.put(gather, fetch(), 1, self.path, fetch)
            advance(ref.size)
        return Kept(refs, "stored")


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


def _hasher(size: int) -> blake3:
    return blake3(max_threads=hashing_threads(size))
