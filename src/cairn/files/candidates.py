"""Blobs that other people's files hold: tensors inside them, and their bytes as a commit would cut them."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from cairn.errors import CairnError
from cairn.files.formats import cut_file
from cairn.files.source import pieces
from cairn.io.disk import Disk
from cairn.io.handles import OpenFile
from cairn.objects.cutting import cut

Spans = tuple[tuple[int, int], ...]
"""Runs of a file's bytes that make one blob together."""


def files_below(path: Path) -> Iterator[Path]:
    """Yield a file, or the files in a folder, in order; links are not followed."""
    if not path.is_dir():
        yield path
        return
    for above, folders, names in os.walk(path):
        folders.sort()
        yield from (Path(above, name) for name in sorted(names))


def candidates(disk: Disk, path: Path, sizes: Collection[int]) -> Iterator[tuple[memoryview, Spans]]:
    """Yield every run of a file's bytes that may be a blob of one of these sizes; what cannot be read has none.

    That is each tensor or member inside it, what lies between them, and the file without regard to its format.
    """
    try:
        with disk.open_file(path) as file:
            if stat.S_ISREG(file.mode):
                for spans in _spans(file):
                    if sum(stop - start for start, stop in spans) in sizes:
                        yield _read(file, spans), spans
    except (OSError, CairnError):
        return


def read_again(disk: Disk, path: Path, spans: Spans) -> memoryview:
    """Return such a run as it is now. Raises OSError."""
    with disk.open_file(path) as file:
        return _read(file, spans)


def _read(file: OpenFile, spans: Spans) -> memoryview:
    return memoryview(b"".join(file.read_at(start, stop - start) for start, stop in spans))


def _spans(file: OpenFile) -> Iterator[Spans]:
    how = cut_file(file.read_at, file.size)
    tiles = pieces(how, file.size)
    yield from (((tile.start, tile.stop),) for tile in tiles if not tile.is_rest)
    rest = [(tile.start, tile.stop) for tile in tiles if tile.is_rest]
    yield from _cut_rest(rest)
    if how.slices:
        yield from (((start, stop),) for start, stop in cut(file.size))


def _cut_rest(rest: list[tuple[int, int]]) -> Iterator[Spans]:
    """The pieces of what lies between slices, which is stored as one value."""
    total = sum(stop - start for start, stop in rest)
    for first, last in cut(total):
        spans, at = [], 0
        for start, stop in rest:
            low, high = max(first, at), min(last, at + stop - start)
            if low < high:
                spans.append((start + low - at, start + high - at))
            at += stop - start
        yield tuple(spans)
