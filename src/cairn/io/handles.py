"""Open files: one's own while it is written, and somebody else's while it is read."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from cairn.io.disk import Disk

BLOCK_BYTES = 4096
"""Where and how many bytes may be written past the page cache: at multiples of this."""
_READ_BYTES = 1 << 30
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class NewFile:
    """A file being written, under a name that nobody else uses yet."""

    def __init__(self, disk: Disk, path: Path, descriptor: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._bypasses = False
        self.path = path

    def bypass_cache(self) -> None:
        """Let `write_at` go past the page cache where place, size and memory allow it, if the file system can.

        Bytes that are written once and not read soon would only push out of it what is needed.
        """
        self._bypasses = self._set_direct(True)

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
        """Write all the bytes at a place."""
        self._disk.step("write", self.path)
        view = memoryview(data).cast("B")
        if self._bypasses and (offset % BLOCK_BYTES or view.nbytes % BLOCK_BYTES):
            self._through_cache()
        while view:
            try:
                count = os.pwrite(self._descriptor, view, offset)
            except OSError as error:
                if not self._bypasses or error.errno != errno.EINVAL:
                    raise
                # This device wants larger blocks, or this file system takes the flag and refuses the writes.
                self._through_cache()
            else:
                view, offset = view[count:], offset + count

    def _through_cache(self) -> None:
        self._set_direct(False)
        self._bypasses = False

    def _set_direct(self, on: bool) -> bool:
        flag = getattr(os, "O_DIRECT", 0)
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags | flag if on else flags & ~flag)
        except OSError:
            return False
        return on and flag != 0

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
        return flock(self._descriptor, wait=True) is not None

    def set_mode(self, mode: int) -> None:
        """Set the permission bits."""
        self._disk.step("chmod", self.path)
        os.fchmod(self._descriptor, mode)

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


class OpenFile:
    """Somebody else's file, open for reading; it may change at any time."""

    def __init__(self, path: Path | bytes) -> None:
        # Not blocking, so that a FIFO that took the file's place cannot hang; following no link that did.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY
        self._descriptor = os.open(path, flags)
        self._stat = os.fstat(self._descriptor)
        self.size = self._stat.st_size
        self.mode = self._stat.st_mode

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)

    def read_at(self, offset: int, size: int) -> bytes:
        """Return bytes from an offset: as many as asked for, or fewer at the end of the file."""
        parts = []
        while size > 0:
            part = os.pread(self._descriptor, min(size, _READ_BYTES), offset)
            if not part:
                break
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, targets: Sequence[memoryview]) -> None:
        """Fill memory, one piece after the other, from an offset on. Raises OSError where the file ends before."""
        left = [target for target in targets if target.nbytes]
        while left:
            count = os.preadv(self._descriptor, left, offset)
            if not count:
                raise OSError(errno.EIO, f"the file ends at {offset}")
            offset += count
            while left and count >= left[0].nbytes:
                count -= left.pop(0).nbytes
            if count:
                left[0] = left[0][count:]

    def read_ahead(self, offset: int, size: int) -> None:
        """Ask the system to have bytes in memory soon."""
        os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_WILLNEED)

    def how_changed(self, path: bytes) -> str | None:
        """Say what happened to the file at its path since it was opened, as far as size and times tell; None: nothing.

        Raises OSError, FileNotFoundError when the path is gone.
        """
        now = os.fstat(self._descriptor)
        if now.st_size != self.size:
            return f"was written to (expected {self.size} bytes, found {now.st_size})"
        if now.st_mtime_ns != self._stat.st_mtime_ns:
            return "was written to"
        return None if os.path.samestat(os.stat(path, follow_symlinks=False), now) else "was replaced"


def flock(descriptor: int, *, wait: bool) -> bool | None:
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
