"""A committed folder back on disk, byte for byte."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from cairn.errors import Conflict, Damaged
from cairn.files.pour import Pour, Tap, write_file
from cairn.files.words import show
from cairn.ids import new_hasher
from cairn.io.disk import Disk
from cairn.state.nodes import Folder, Link, name_bytes
from cairn.state.stored import StoredFile

SMALL_BYTES = 1 << 20
"""Files up to this size are made durable together, which is ten times as fast as one after the other."""


def fill(disk: Disk, folder: Folder, place: Path, tap: Tap) -> None:
    """Write a folder's entries into a new, empty folder. Raises Damaged for bytes that are wrong, and Conflict.

    Nothing is written when two names would be one file on this file system.
    """
    _check_names(disk, folder, place)
    path = os.fsencode(place)
    disk.sync_files(list(_write_all(disk, folder, path, tap)))
    _close_folder(disk, folder, path)


def _write_all(disk: Disk, folder: Folder, path: bytes, tap: Tap) -> Iterator[Path]:
    """Write the entries; yield the files that are not durable yet."""
    for name, entry in folder.entries.items():
        here = os.path.join(path, name_bytes(name))
        if isinstance(entry, Folder):
            disk.make_folder(Path(os.fsdecode(here)), sync=False)
            yield from _write_all(disk, entry, here, tap)
        elif isinstance(entry, Link):
            disk.symlink(name_bytes(entry.target), here)
        elif isinstance(entry, StoredFile):
            # One that its owner may not read could not be opened again.
            later = entry.size <= SMALL_BYTES and bool(entry.mode & stat.S_IRUSR)
            _write(disk, entry, here, tap, sync=not later)
            if later:
                yield Path(os.fsdecode(here))


def _close_folder(disk: Disk, folder: Folder, path: bytes) -> None:
    """Make the names durable and set the modes, which may forbid all else, inner folders first."""
    for name, entry in folder.entries.items():
        if isinstance(entry, Folder):
            _close_folder(disk, entry, os.path.join(path, name_bytes(name)))
    disk.sync_folder(Path(os.fsdecode(path)))
    disk.set_mode(path, folder.mode)


def _write(disk: Disk, stored: StoredFile, path: bytes, tap: Tap, *, sync: bool) -> None:
    place = Path(os.fsdecode(path))
    if not write_file(disk, place, stored.mode, tap, partial(_pour, stored, tap), sync=sync):
        raise Damaged(
            f"{show(path)}: expected bytes that hash to {stored.hash}, found others; "
            f"the tree of this file is wrong; run `cairn verify`"
        )


def _pour(stored: StoredFile, tap: Tap, pour: Pour) -> bool:
    whole = new_hasher(stored.size)
    blobs = tap.ahead([part.blob for part in stored.refs.slices if part.blob is not None])
    for chunk in stored.chunks(lambda _: pour.read(next(blobs))):
        pour.put(chunk, whole.update)
    return bool(whole.hexdigest() == stored.hash)


def _check_names(disk: Disk, folder: Folder, place: Path) -> None:
    for same, what, probe, other in (
        (_same_case, "case", "cairn-case", "CAIRN-CASE"),
        (_same_accents, "how their accents are spelled", "cairn-\u00e9", "cairn-e\u0301"),
    ):
        pair = next(_meeting(folder, b"", same), None)
        if pair is not None and _is_one_file(disk, place / probe, place / other):
            raise Conflict(
                f"{show(pair[0])} and {show(pair[1])} differ only by {what}, and this file system takes them for one "
                f"file; check out to another file system, or a part with --only"
            )


def _is_one_file(disk: Disk, probe: Path, other: Path) -> bool:
    disk.create(probe, 0o600).close()
    try:
        return disk.size(other) is not None
    finally:
        disk.unlink(probe)


def _meeting(folder: Folder, path: bytes, same: Callable[[str], str]) -> Iterator[tuple[bytes, bytes]]:
    seen: dict[str, bytes] = {}
    for name, entry in folder.entries.items():
        here = os.path.join(path, name_bytes(name))
        other = seen.setdefault(same(name_bytes(name).decode("utf-8", "surrogateescape")), here)
        if other != here:
            yield other, here
        if isinstance(entry, Folder):
            yield from _meeting(entry, here, same)


def _same_case(name: str) -> str:
    return name.casefold()


def _same_accents(name: str) -> str:
    return unicodedata.normalize("NFD", name)
