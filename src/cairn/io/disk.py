"""The seam: every step that outlives the process goes through one `Disk`.

Nothing above this layer opens a file for writing, knows a descriptor, or asks for the time. A test replaces the
disk by one that counts, stops or fails at `step`, which is called before each durable step with its name.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import CairnError, ReadOnly

if TYPE_CHECKING:
    from typing_extensions import Buffer

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class NewFile:
    """A file being written, under a name that nobody else uses yet."""

    def __init__(self, disk: Disk, path: Path, descriptor: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self.path = path

    def write(self, data: Buffer) -> None:
        """Append all the bytes; short writes go on."""
        self._disk.step("write", self.path)
        view = memoryview(data).cast("B")
        while view:
            view = view[os.write(self._descriptor, view) :]

    def write_many(self, pieces: Sequence[Buffer]) -> None:
        """Append many small pieces with few system calls."""
        self.write(b"".join(pieces))

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write all the bytes at a place that was reserved earlier."""
        self._disk.step("write", self.path)
        view = memoryview(data).cast("B")
        while view:
            count = os.pwrite(self._descriptor, view, offset)
            view, offset = view[count:], offset + count

    def skip(self, size: int) -> None:
        """Leave a hole of this size to be filled by `write_at`."""
        os.lseek(self._descriptor, size, os.SEEK_CUR)

    def allocate(self, size: int) -> None:
        """Reserve real blocks for this many bytes."""
        self._disk.step("allocate", self.path)
        os.posix_fallocate(self._descriptor, 0, size)

    def sync(self) -> None:
        """Make the bytes durable."""
        self._disk.step("fsync", self.path)
        os.fsync(self._descriptor)

    def lock(self) -> bool:
        """Hold a lock that ends with the last process that has this file open; False where there are no locks."""
        return _flock(self._descriptor, wait=True) is not None

    def touch(self) -> None:
        """Set the file's time to now, by the store's clock."""
        self._disk.step("touch", self.path)
        os.utime(self._descriptor)

    def is_at(self, path: Path) -> bool:
        """Whether this very file stands at the path."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file; its locks end."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Disk:
    """The real file system, clock and random source."""

    def step(self, name: str, path: Path) -> None:
        """Called before each durable step; the real disk goes straight on."""

    # What changes the disk.

    def create(self, path: Path, mode: int = 0o444) -> NewFile:
        """Open a new file for writing; its final mode is set from the start. Raises FileExistsError."""
        self.step("create", path)
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        return NewFile(self, path, os.open(path, flags, mode))

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, only if that name is free. Raises FileExistsError."""
        self.step("link", target)
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file; what stood at the target is gone."""
        self.step("rename", target)
        os.rename(source, target)

    def unlink(self, path: Path) -> bool:
        """Remove a file; False when it was not there."""
        self.step("unlink", path)
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def make_folder(self, path: Path) -> None:
        """Make a folder durable under its parent; nothing to do when it exists."""
        if not path.is_dir():
            self.step("mkdir", path)
            path.mkdir(exist_ok=True)
            self.sync_folder(path.parent)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        self.step("fsync folder", path)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some file systems have no fsync of folders and order names by themselves.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)

    def write_new(self, path: Path, data: Buffer, *, tmp: Path) -> None:
        """Create a whole, durable file that was not there: write to tmp, fsync, link, fsync. Raises FileExistsError.

        A file that appears at `path` has all its bytes, whatever dies.
        """
        file = self.create(tmp)
        try:
            file.write(data)
            file.sync()
            self.link(tmp, path)
            self.sync_folder(path.parent)
        finally:
            file.close()
            self.unlink(tmp)

    # What only looks.

    def read(self, path: Path) -> bytes:
        """Return a file's bytes."""
        return path.read_bytes()

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of a file from an offset."""
        with path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), size, offset)

    def map(self, path: Path) -> memoryview:
        """Map a file read-only; the mapping outlives the file's name."""
        with path.open("rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size == 0:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def size(self, path: Path) -> int | None:
        """Return a file's size in bytes, or None when it is not there."""
        try:
            return path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified(self, path: Path) -> float | None:
        """Return a file's time in seconds by the store's clock, or None when it is not there."""
        try:
            return path.stat().st_mtime
        except FileNotFoundError:
            return None

    def changed(self, path: Path) -> float | None:
        """Return when a file was last written, renamed or linked, or None when it is not there."""
        try:
            return path.stat().st_ctime
        except FileNotFoundError:
            return None

    def names(self, path: Path) -> list[str]:
        """Return the names in a folder, sorted; none when it is not there."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def can_write(self, path: Path) -> bool:
        """Whether this process may create files in a folder."""
        return os.access(path, os.W_OK)

    def is_locked(self, path: Path) -> bool | None:
        """Whether some process holds `NewFile.lock` on the file; None where it cannot be known."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            got = _flock(descriptor, wait=False)
        finally:
            os.close(descriptor)
        return None if got is None else not got

    # What is not a disk at all, yet must be the same in a rebuilt store.

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC)

    def new_id(self) -> str:
        """Return 32 hex digits that nobody has had before."""
        return secrets.token_hex(16)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def _flock(descriptor: int, *, wait: bool) -> bool | None:
    """True: got it. False: somebody has it. None: this file system has no such locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return None
        raise
    return True


@contextmanager
def explained(doing: str, root: Path) -> Iterator[None]:
    """Turn an OSError into a sentence that says what was being done and what to do."""
    try:
        yield
    except OSError as error:
        where = error.filename or root
        if error.errno in _FULL:
            raise CairnError(
                f"no space left in {root} while {doing}: nothing of it was published and what was there is "
                f"untouched; free space with `cairn gc` and try again"
            ) from error
        if error.errno in _READ_ONLY:
            raise ReadOnly(
                f"{root} cannot be written ({error.strerror}: {where}) while {doing}: reading and verify work; "
                f"to write, open a store whose folder this user may change"
            ) from error
        raise CairnError(
            f"{doing} failed in {root}: {error.strerror or error} ({where}); nothing of it was published"
        ) from error
