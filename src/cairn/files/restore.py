"""A committed folder back on disk, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from blake3 import blake3

from cairn.errors import Conflict, Damaged
from cairn.files.words import show
from cairn.io.disk import Disk
from cairn.state.nodes import Folder, Link, Name, name_bytes
from cairn.state.stored import StoredFile


def fill(disk: Disk, folder: Folder, path: bytes, advance: Callable[[int], None]) -> None:
    """Write a folder's entries into a new, empty folder. Raises Damaged for bytes that are wrong."""
    for name, entry in folder.entries.items():
        here = os.path.join(path, name_bytes(name))
        if isinstance(entry, Folder):
            disk.make_folder(Path(os.fsdecode(here)), sync=False)
            fill(disk, entry, here, advance)
        elif isinstance(entry, Link):
            disk.symlink(name_bytes(entry.target), here)
        elif isinstance(entry, StoredFile):
            _write(disk, entry, here, advance)
    # The mode comes last: a folder may be read-only.
    disk.sync_folder(Path(os.fsdecode(path)))
    disk.set_mode(path, folder.mode)


def _write(disk: Disk, stored: StoredFile, path: bytes, advance: Callable[[int], None]) -> None:
    whole = blake3(max_threads=blake3.AUTO)
    file = disk.create(Path(os.fsdecode(path)), 0o600)
    try:
        for chunk in stored.chunks():
            whole.update(chunk)
            file.write(chunk)
            advance(chunk.nbytes)
        if whole.hexdigest() != stored.hash:
            raise Damaged(
                f"{show(path)}: expected bytes that hash to {stored.hash}, found {whole.hexdigest()}; "
                f"the tree of this file is wrong; run `cairn verify`"
            )
        file.set_mode(stored.mode)
        file.sync()
    finally:
        file.close()


def check_case(disk: Disk, folder: Folder, beside: Path) -> None:
    """Refuse names that would be one file here: on a file system that takes upper and lower case for the same."""
    pairs = list(_meeting(folder, b""))
    if not pairs:
        return
    probe = beside / "cairn-case"
    disk.create(probe, 0o600).close()
    same = (beside / "CAIRN-CASE").exists()
    disk.unlink(probe)
    if same:
        one, other = pairs[0]
        raise Conflict(
            f"{show(one)} and {show(other)} differ only by case, and this file system takes them for one file; "
            f"check out to another file system, or a part with --only"
        )


def _meeting(folder: Folder, path: bytes) -> Iterator[tuple[bytes, bytes]]:
    seen: dict[str, bytes] = {}
    for name, entry in folder.entries.items():
        here = os.path.join(path, name_bytes(name))
        other = seen.setdefault(_folded(name), here)
        if other != here:
            yield other, here
        if isinstance(entry, Folder):
            yield from _meeting(entry, here)


def _folded(name: Name) -> str:
    return name_bytes(name).decode("utf-8", "surrogateescape").casefold()
