"""A folder or file on disk as a value that can be committed.

Symbolic links are kept as links: their text, whether it leads out of the folder, in a circle or nowhere. Hard links are
files of equal content, stored once. What is neither file, folder nor link is refused by name, before anything is
opened that could block.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cairn.errors import NotFound, UnsupportedValue
from cairn.files.source import FileSource
from cairn.io.disk import Disk
from cairn.state.nodes import MAX_MODE, Folder, Link, Name, NewFile, name_of

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MAX_DEPTH = 90


def folder(path: Path | str, *, disk: Disk | None = None) -> Folder:
    """Describe a folder, or a single file as a folder of one. Raises NotFound, UnsupportedValue, OSError.

    Files are opened when they are committed. One that changes in between is committed as it is then.
    """
    root = os.fsencode(path)
    disk = disk or Disk()
    try:
        mode = os.stat(root).st_mode
    except FileNotFoundError:
        raise NotFound(f"{show(root)}: expected a folder or file to commit, found nothing there") from None
    if stat.S_ISDIR(mode):
        return _folder(root, mode, disk, 0)
    name = name_of(os.path.basename(os.path.realpath(root) if os.path.islink(root) else root))
    return Folder(0o755, {name: _file(root, mode, disk)})


def show(raw: bytes) -> str:
    """A path for people: bytes that are no text, and control characters, are escaped."""
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _folder(path: bytes, mode: int, disk: Disk, depth: int) -> Folder:
    if depth > _MAX_DEPTH:
        raise UnsupportedValue(f"{show(path)}: expected at most {_MAX_DEPTH} folders inside each other, found more")
    entries: dict[Name, object] = {}
    with os.scandir(path) as found:
        raw_names = sorted(entry.name for entry in found)
    for raw in raw_names:
        entries[name_of(raw)] = _entry(os.path.join(path, raw), disk, depth)
    return Folder(stat.S_IMODE(mode) & MAX_MODE, entries)


def _entry(path: bytes, disk: Disk, depth: int) -> object:
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        return _folder(path, mode, disk, depth + 1)
    if stat.S_ISLNK(mode):
        return Link(name_of(os.readlink(path)))
    return _file(path, mode, disk)


def _file(path: bytes, mode: int, disk: Disk) -> NewFile:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise UnsupportedValue(
            f"{show(path)}: expected a file, folder or link, found {kind}, which has no content to keep; "
            f"remove it or commit a folder without it; nothing was written"
        )
    return NewFile(stat.S_IMODE(mode) & MAX_MODE, FileSource(disk, path, show(path)))
