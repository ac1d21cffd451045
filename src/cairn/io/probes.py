"""What a file system can do, tried out on files of one's own in `tmp/`. Nothing is left behind."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cairn.io.disk import Disk
from cairn.io.handles import NewFile
from cairn.io.layout import Layout

_TEXT = b"cairn\n"


@dataclass(frozen=True, slots=True)
class Room:
    """What is free on a file system; `files` is None where files are not counted."""

    free: int
    total: int
    files: int | None


def room(path: Path) -> Room:
    """Return what is free for this user."""
    found = os.statvfs(path)
    return Room(
        found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail if found.f_files else None
    )


def links(disk: Disk, layout: Layout) -> str | None:
    """Say why a file cannot be created under a name only if that is free; None when it can."""
    with _file(disk, layout) as (_, path):
        other = path.with_name(path.name + "-link")
        try:
            disk.link(path, other)
            try:
                disk.link(path, other)
            except FileExistsError:
                return None
            return "a link replaced another"
        except OSError as error:
            return error.strerror or str(error)
        finally:
            disk.unlink(other)


def locks(disk: Disk, layout: Layout) -> str | None:
    """Say why a lock tells nobody that its holder is alive; None when it does."""
    with _file(disk, layout) as (file, path):
        if not file.lock():
            return "there are none"
        return None if disk.is_locked(path) else "they keep nobody out"


def mapping(disk: Disk, layout: Layout) -> str | None:
    """Say why files cannot be mapped; None when they can."""
    with _file(disk, layout) as (_, path):
        try:
            return None if bytes(disk.map(path)) == _TEXT else "other bytes than those in the file"
        except (OSError, ValueError) as error:
            return str(error)


def folder_sync(disk: Disk, layout: Layout) -> str | None:
    """Say why names cannot be made durable; None when they can."""
    try:
        disk.sync_folder(layout.tmp)
        descriptor = os.open(layout.tmp, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        known = error.errno in (errno.EINVAL, errno.ENOTSUP)
        return "the file system has no such call" if known else error.strerror or str(error)
    return None


def clock(disk: Disk, layout: Layout) -> float:
    """Return by how many seconds the store's clock is ahead of this host's."""
    with _file(disk, layout) as (_, path):
        return (disk.modified(path) or 0.0) - disk.now().timestamp()


@contextmanager
def _file(disk: Disk, layout: Layout) -> Iterator[tuple[NewFile, Path]]:
    disk.make_folder(layout.tmp)
    path = layout.temporary(disk.new_id(), "probe")
    file = disk.create(path, 0o644)
    try:
        file.write(_TEXT)
        yield file, path
    finally:
        file.close()
        with contextlib.suppress(OSError):
            disk.unlink(path)
