"""A folder that is filled out of sight and then stands in its place.

Usually it is made beside the target and takes its place by one rename: the target is as before or as asked for, at
every moment. A target that cannot be replaced (the folder a shell stands in, a mount point, one whose parent may not
be written) keeps its place, and its entries are exchanged one by one; that is undone when it fails, but not when the
process dies in between. Nothing is left over either way, unless the process dies.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from cairn.errors import CairnError, Conflict
from cairn.io.disk import Disk

Fill = Callable[[Path], None]


def put_in_place(disk: Disk, target: Path, fill: Fill, *, force: bool, store: Path) -> None:
    """Make a folder that `fill` fills, at a target that is new or empty. Raises Conflict.

    With `force` what stood there is gone afterwards; but a store is never removed.
    """
    _check_target(disk, target, force=force, store=store)
    place = target.resolve() if target.name in ("", "..") else target.parent.resolve() / target.name
    if place.is_dir() and _stays(disk, place):
        _within(disk, place, fill, force=force)
    else:
        _beside(disk, place, fill, force=force)


def _check_target(disk: Disk, target: Path, *, force: bool, store: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise Conflict(f"{target}: expected a folder to write to, found something else; choose another place")
    if any(_is_same(folder, target) for folder in (store, *store.parents)):
        raise Conflict(f"{target}: expected a folder without this store, found {store}; choose another place")
    if any(_is_same(folder, store) for folder in target.resolve().parents):
        raise Conflict(f"{target}: expected a folder outside the store {store}, found one inside; choose another place")
    if disk.names(target) and not force:
        raise Conflict(f"{target}: expected a new or empty folder, found files; choose another place or use --force")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _stays(disk: Disk, target: Path) -> bool:
    """Whether the folder cannot be replaced, or somebody would be left standing in the old one."""
    return _is_same(target, Path()) or target.is_mount() or not disk.can_write(target.parent)


def _beside(disk: Disk, target: Path, fill: Fill, *, force: bool) -> None:
    stage = target.parent / f".cairn.{disk.new_id()}.checkout"
    made = [folder for folder in target.parents if not folder.exists()]
    old: Path | None = None
    try:
        for folder in (*reversed(made), stage):
            disk.make_folder(folder)
        fill(stage)
        old = disk.replace_folder(stage, target, force=force)
        disk.sync_folder(target.parent)
    except BaseException:
        # Either it did not come to the rename, or what the target held before lies there now.
        _remove(disk, old or stage)
        for folder in made:
            disk.remove_empty(folder)
        raise
    if old is not None:
        _remove_old(disk, old, target)


def _within(disk: Disk, target: Path, fill: Fill, *, force: bool) -> None:
    aside = target / f".cairn.{disk.new_id()}.checkout"
    new, old = aside / "new", aside / "old"
    moved: list[tuple[Path, Path]] = []

    def move(names: list[str], source: Path, place: Path) -> None:
        for name in names:
            moved.append((source / name, place / name))
            _move(disk, source / name, place / name)

    was = _mode(target)
    before = disk.names(target) if force else []
    try:
        for folder in (aside, new, old):
            disk.make_folder(folder)
        fill(new)
        mode = _mode(new)
        disk.set_mode(os.fsencode(new), 0o700)
        move(before, target, old)
        move(disk.names(new), new, target)
        disk.set_mode(os.fsencode(target), mode | 0o700)
        disk.sync_folder(target)
    except BaseException:
        for source, place in reversed(moved):
            if os.path.lexists(place) and not os.path.lexists(source):
                _move(disk, place, source)
        _remove(disk, aside)
        disk.set_mode(os.fsencode(target), was)
        raise
    _remove_old(disk, aside, target)
    if mode != mode | 0o700:
        # Only now, since a folder that may not be written could not be cleared.
        disk.set_mode(os.fsencode(target), mode)


def _mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def _move(disk: Disk, source: Path, target: Path) -> None:
    found = source.lstat().st_mode
    # A folder that may not be written cannot get another parent.
    locked = stat.S_ISDIR(found) and not found & stat.S_IWUSR
    if locked:
        disk.set_mode(os.fsencode(source), 0o700)
    disk.rename(source, target)
    if locked:
        disk.set_mode(os.fsencode(target), stat.S_IMODE(found))


def _remove_old(disk: Disk, old: Path, target: Path) -> None:
    try:
        disk.remove_tree(old)
    except OSError as error:
        raise CairnError(
            f"{target} holds the commit, but what it held before cannot be removed ({error.strerror}): it lies in {old}"
        ) from error
    except BaseException:
        disk.remove_tree(old)
        raise


def _remove(disk: Disk, path: Path) -> None:
    if path.exists():
        disk.remove_tree(path)
