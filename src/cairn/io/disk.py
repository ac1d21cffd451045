"""The seam: every step that outlives the process goes through one `Disk`.

Nothing above this layer opens a file for writing, knows a descriptor, or asks for the time. A test replaces the
disk by one that counts, stops or fails at `step`, which is called before each durable step with its name.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import CairnError
from cairn.io.handles import NewFile, OpenFile, flock

if TYPE_CHECKING:
    pass

_SYNCERS = 8
"""Files that are made durable at the same time: the system's journal takes them together."""


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

    def make_folder(self, path: Path, *, sync: bool = True) -> None:
        """Make a folder, durable under its parent if `sync`; nothing to do when it exists."""
        if not path.is_dir():
            self.step("mkdir", path)
            path.mkdir(exist_ok=True)
            if sync:
                self.sync_folder(path.parent)

    def symlink(self, target: bytes, path: bytes) -> None:
        """Make a symbolic link. Raises FileExistsError."""
        self.step("symlink", Path(os.fsdecode(path)))
        os.symlink(target, path)

    def set_mode(self, path: bytes, mode: int) -> None:
        """Set the permission bits of a folder."""
        self.step("chmod", Path(os.fsdecode(path)))
        os.chmod(path, mode)

    def replace_folder(self, source: Path, target: Path, *, force: bool) -> Path | None:
        """Put a folder in another's place, which is empty unless `force`; return where that one stands now, if it does.

        Where the system can exchange two names at once, the target is there at every moment.
        """
        self.step("replace", target)
        if not force or not self.names(target):
            os.rename(source, target)
            return None
        if _exchange(source, target):
            return source
        aside = source.with_name(source.name + ".old")
        os.rename(target, aside)
        try:
            self.rename(source, target)
        except BaseException:
            os.rename(aside, target)
            raise
        return aside

    def remove_tree(self, path: Path) -> None:
        """Remove a folder with all that is in it, read-only folders included; links are not followed."""
        self.step("remove", path)
        os.chmod(path, 0o700)
        for above, folders, _ in os.walk(path):
            for name in folders:
                folder = os.path.join(above, name)
                if not os.path.islink(folder):
                    os.chmod(folder, 0o700)
        shutil.rmtree(path)

    def remove_empty(self, path: Path) -> None:
        """Remove a folder if nothing is in it."""
        self.step("rmdir", path)
        with contextlib.suppress(OSError):
            path.rmdir()

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

    def sync_files(self, paths: Sequence[Path]) -> None:
        """Make the bytes of many files durable, several at a time."""
        if len(paths) < _SYNCERS:
            for path in paths:
                self._sync_file(path)
            return
        # Imported here because few operations have so many files.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_SYNCERS) as pool:
            for _ in pool.map(self._sync_file, paths):
                pass

    def _sync_file(self, path: Path) -> None:
        self.step("fsync", path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_new(self, path: Path, data: bytes | Iterable[bytes], *, tmp: Path) -> None:
        """Create a whole, durable file that was not there: write to tmp, fsync, link, fsync. Raises FileExistsError.

        A file that appears at `path` has all its bytes, whatever dies.
        """
        file = self.create(tmp)
        try:
            for piece in [data] if isinstance(data, bytes) else data:
                file.write(piece)
            file.sync()
            self.link(tmp, path)
            self._settle(path)
        finally:
            file.close()
            # What stays is swept by gc; the file at its path is whole all the same.
            with contextlib.suppress(OSError):
                self.unlink(tmp)

    def _settle(self, path: Path) -> None:
        try:
            self.sync_folder(path.parent)
        except OSError as error:
            raise CairnError(
                f"{path} is there, but may not survive a power cut: the system could not make its name durable "
                f"({error.strerror}); look after the disk, then do the same again, which makes sure"
            ) from error

    # What only looks.

    def read(self, path: Path) -> bytes:
        """Return a file's bytes."""
        return path.read_bytes()

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of a file from an offset."""
        with path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), size, offset)

    def open_file(self, path: Path | bytes) -> OpenFile:
        """Open somebody else's file for reading."""
        return OpenFile(path)

    def read_ahead(self, path: Path, offset: int, size: int) -> None:
        """Ask the system to have bytes of a file in memory soon."""
        with self.open_file(path) as file:
            file.read_ahead(offset, size)

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

    def free(self, path: Path) -> int:
        """Return how many bytes may still be written to the file system of a folder; a quota is not seen."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

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

    def names(self, path: Path, *, strict: bool = False) -> list[str]:
        """Return the names in a folder, sorted; none when it is not there.

        `strict` raises OSError where something else has the folder's name: a file, or a link that leads nowhere.
        """
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            if strict and os.path.lexists(path):
                raise
            return []

    def exists(self, path: Path) -> bool:
        """Whether something has this name, be it a link that leads nowhere."""
        return os.path.lexists(path)

    def can_write(self, path: Path) -> bool:
        """Whether this process may create files in a folder."""
        return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)

    def is_locked(self, path: Path) -> bool | None:
        """Whether some process holds `NewFile.lock` on the file; None where it cannot be known."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            got = flock(descriptor, wait=False)
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


def _exchange(one: Path, other: Path) -> bool:
    # ctypes is imported only where a folder in use is replaced.
    from cairn.io.exchange import exchange

    return exchange(one, other)
