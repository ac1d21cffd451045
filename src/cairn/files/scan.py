"""A folder or file on disk as a value that can be committed.

Symbolic links are kept as links: their text, whether it leads out of the folder, in a circle or nowhere. Hard links are
files of equal content, stored once. What is neither file, folder nor link is refused by name, before anything is
opened that could block. A store inside the folder is left out, and named: it changes with every commit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cairn.errors import NotFound, UnsupportedValue
from cairn.files.source import FileSource, Root
from cairn.files.words import being_read, check_regular, show
from cairn.io.disk import Disk
from cairn.io.layout import CONFIG
from cairn.state.nodes import MAX_MODE, Folder, Link, Name, NewFile, name_of
from cairn.state.stored import StoredFile
from cairn.state.trees import MAX_DATA_BYTES

_MAX_DEPTH = 80
_STORE = b'{"format":"cairn",'
"""How the file begins that makes a folder a store."""


def folder(path: Path | str, *, disk: Disk | None = None) -> Folder:
    """Describe a folder, or a single file as a folder of one, to be committed as a component.

    Files are opened when they are committed. One that changes in between is committed as it is then; one that changes
    while it is read fails the commit. Raises NotFound, UnsupportedValue, and CairnError for what cannot be read.
    """
    raw = os.fsencode(path)
    disk = disk or Disk()
    # A link to a file is followed, but does not give its name away.
    root = Root(os.path.realpath(raw), show(raw))
    with being_read(root.words):
        try:
            found = os.stat(raw)
        except FileNotFoundError:
            raise NotFound(f"{root.words}: expected a folder or file to commit, found nothing there") from None
    scan = _Scan(disk, root)
    if not stat.S_ISDIR(found.st_mode):
        return Folder(0o755, {name_of(os.path.basename(os.path.abspath(raw))): scan.file(b"", found)})
    if scan.is_store(b""):
        raise UnsupportedValue(f"{root.words}: expected a folder of files, found a store; to copy one, use `cp -a`")
    return replace(scan.folder(b"", found.st_mode), left_out=tuple(scan.left_out))


def files_of(value: object) -> Iterator[FileSource | StoredFile]:
    """Yield the files of a folder, in order."""
    if isinstance(value, Folder):
        for entry in value.entries.values():
            yield from files_of(entry)
    elif isinstance(value, StoredFile):
        yield value
    elif isinstance(value, NewFile):
        yield value.bytes


class _Scan:
    """One walk over a folder; paths are relative to it."""

    def __init__(self, disk: Disk, root: Root) -> None:
        self._disk = disk
        self._root = root
        self.left_out: list[str] = []

    def folder(self, path: bytes, mode: int, depth: int = 0) -> Folder:
        words = self._root.show(path)
        if depth > _MAX_DEPTH:
            raise UnsupportedValue(f"{words}: expected at most {_MAX_DEPTH} folders inside each other, found more")
        with being_read(words):
            names = sorted(os.listdir(self._root.join(path)))
        entries: dict[Name, object] = {}
        for raw in names:
            entry = self._entry(os.path.join(path, raw), depth)
            if entry is not None:
                entries[name_of(raw)] = entry
        return Folder(stat.S_IMODE(mode) & MAX_MODE, entries)

    def file(self, path: bytes, found: os.stat_result) -> NewFile:
        words = self._root.show(path)
        check_regular(words, found.st_mode)
        if found.st_size > MAX_DATA_BYTES:
            raise UnsupportedValue(f"{words}: expected at most {MAX_DATA_BYTES} bytes, found {found.st_size}")
        return NewFile(stat.S_IMODE(found.st_mode) & MAX_MODE, FileSource(self._disk, self._root, path, found.st_size))

    def is_store(self, path: bytes) -> bool:
        """Whether a folder is a store: what its `cairn.json` begins with says so."""
        try:
            with self._disk.open_file(os.path.join(self._root.join(path), CONFIG.encode())) as config:
                return stat.S_ISREG(config.mode) and config.read_at(0, len(_STORE)) == _STORE
        except OSError:
            return False

    def _entry(self, path: bytes, depth: int) -> object | None:
        with being_read(self._root.show(path)):
            found = os.lstat(self._root.join(path))
            if stat.S_ISLNK(found.st_mode):
                return Link(name_of(os.readlink(self._root.join(path))))
        if not stat.S_ISDIR(found.st_mode):
            return self.file(path, found)
        if self.is_store(path):
            self.left_out.append(show(path))
            return None
        return self.folder(path, found.st_mode, depth + 1)
