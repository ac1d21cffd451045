"""Leases: proof that a writer, a reader or a gc is alive.

A lease is a file in `leases/` named by the write id of its operation. Its holder keeps a kernel lock on it, which
ends with the process. A forked child inherits the lock, so the file also says who took the lease: pid, start time,
boot id. A lease is alive while the lock is held *and* that process may still be there. The lock is taken before the
file gets its name, so no one ever sees a lease that is not yet locked.

Where such locks do not tell (they are missing, do nothing, or end at the host's edge of a network mount), a lease is
alive while its file's time is recent by the store's own clock, and its holder renews it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cairn import canonical
from cairn.errors import Busy, CairnError, Damaged
from cairn.io import process
from cairn.io.disk import Disk
from cairn.io.handles import NewFile
from cairn.io.layout import Layout, writer_of_lease

EXPIRY_SECONDS = 24 * 3600
"""How long a lease counts as alive where locks do not tell."""

_ATTEMPTS = 8

_gc_locks: set[tuple[int, int, int]] = set()
_gc_locks_guard = threading.Lock()


class Lease:
    """The lease of one operation; its id is the operation's write id."""

    def __init__(self, disk: Disk, layout: Layout, write_id: str, file: NewFile) -> None:
        self._disk = disk
        self._file = file
        self._path = layout.lease(write_id)
        self.write_id = write_id

    def renew(self) -> None:
        """Show that the holder is alive. Raises CairnError when the lease is gone: somebody judged it dead."""
        if not self._file.is_at(self._path):
            raise CairnError(
                f"the lease {self._path} of this operation is gone: expected to hold it until the end; "
                f"nothing was published, try again"
            )
        self._file.touch()

    def release(self) -> None:
        """End the lease."""
        try:
            self._disk.unlink(self._path)
        finally:
            self._file.close()


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease."""

    write_id: str
    purpose: str
    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"{self.purpose} by process {self.pid} on {self.host} since {self.since}"


@contextmanager
def leased(disk: Disk, layout: Layout, purpose: str) -> Iterator[Lease]:
    """Hold a lease for the length of an operation."""
    lease = take(disk, layout, purpose)
    try:
        yield lease
    finally:
        # What was done is done. A lease that cannot be removed is unlocked, and so dead.
        with contextlib.suppress(OSError):
            lease.release()


@contextmanager
def reading(disk: Disk, layout: Layout, purpose: str) -> Iterator[None]:
    """Hold a lease while reading, where the store can be written; a read-only store needs none."""
    try:
        lease = take(disk, layout, purpose)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT):
            raise
        yield
        return
    try:
        yield
    finally:
        # Nobody else removes a live reader's lease; if it cannot be removed now, gc will.
        with contextlib.suppress(OSError):
            lease.release()


def take(disk: Disk, layout: Layout, purpose: str) -> Lease:
    """Take a lease under a new write id."""
    for _ in range(_ATTEMPTS):
        # Between the making of the file and its lock, a gc takes it for what a dead process left, and removes it.
        with contextlib.suppress(FileNotFoundError):
            return _take(disk, layout, purpose)
    return _take(disk, layout, purpose)


def _take(disk: Disk, layout: Layout, purpose: str) -> Lease:
    disk.make_folder(layout.leases)
    disk.make_folder(layout.tmp)
    write_id = disk.new_id()
    tmp = layout.temporary(write_id, "lease")
    file = disk.create(tmp, 0o644)
    try:
        file.lock()
        since = disk.now().isoformat(timespec="seconds")
        file.write(canonical.seal({"purpose": purpose, "since": since, **process.identity()}))
        disk.rename(tmp, layout.lease(write_id))
    except BaseException:
        file.close()
        disk.unlink(tmp)
        raise
    return Lease(disk, layout, write_id, file)


def alive(disk: Disk, layout: Layout, *, but: str | None = None) -> dict[str, Holder]:
    """Return the holders of all live leases, by write id, except one's own."""
    judge = _Judge(disk, layout)
    held: dict[str, Holder] = {}
    for name in disk.names(layout.leases):
        write_id = writer_of_lease(name)
        if write_id is not None and write_id != but and judge.is_alive(layout.lease(write_id)):
            held[write_id] = _holder(disk, layout, write_id)
    return held


def sweep(disk: Disk, layout: Layout) -> None:
    """Remove the leases of the dead."""
    judge = _Judge(disk, layout)
    for name in disk.names(layout.leases):
        write_id = writer_of_lease(name)
        if write_id is not None and not judge.is_alive(layout.lease(write_id)):
            disk.unlink(layout.lease(write_id))


def store_age(disk: Disk, layout: Layout, path: Path) -> float:
    """Return the seconds since a file got its name, by the store's clock; 0 when it is gone."""
    changed = disk.changed(path)
    return 0.0 if changed is None else max(0.0, _Judge(disk, layout).now - changed)


@contextmanager
def sole_gc(disk: Disk, layout: Layout) -> Iterator[None]:
    """Hold the lock that lets one gc run at a time. Raises Busy, naming the holder.

    A POSIX record lock: it ends with the process and a forked child does not inherit it. It belongs to the whole
    process, so a second gc in the same process is kept out by a set of what this process holds.
    """
    disk.make_folder(layout.leases)
    path = layout.leases / "gc.lock"
    with _sole_in_process(layout):
        disk.step("open", path)
        with path.open("ab+") as file:
            _lock_record(file.fileno(), path)
            file.truncate(0)
            file.write(canonical.encode({"since": disk.now().isoformat(timespec="seconds"), **process.identity()}))
            file.flush()
            yield


@contextmanager
def _sole_in_process(layout: Layout) -> Iterator[None]:
    """Hold the place of the one gc of this process. Looked at before the lock's file, never the other way round.

    A record lock ends as soon as its process closes any descriptor of the file, also one that failed to get it.
    """
    stat = os.stat(layout.leases)
    key = (os.getpid(), stat.st_dev, stat.st_ino)
    with _gc_locks_guard:
        if key in _gc_locks:
            raise Busy(f"another gc or repair of this process is at work in {layout.root}; wait for it to end")
        _gc_locks.add(key)
    try:
        yield
    finally:
        _gc_locks.discard(key)


def _lock_record(descriptor: int, path: Path) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            who = path.read_text(errors="replace")
            raise Busy(f"another gc or repair is at work: {who}; wait for it to end, or end it") from None
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


class _Judge:
    """Tells live leases from dead ones, as far as the file system lets it."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self._disk = disk
        self._layout = layout
        self._self = process.identity()

    def is_alive(self, path: Path) -> bool:
        locked = self._disk.is_locked(path)
        holder = _read(self._disk, path)
        if locked is True:
            return not process.is_dead(holder)
        if locked is False and self._locks_tell(holder):
            return False
        modified = self._disk.modified(path)
        return modified is not None and self.now - modified < EXPIRY_SECONDS

    def _locks_tell(self, holder: dict[str, Any]) -> bool:
        """Whether a free lock proves death: not where locks do nothing, nor for another machine of a shared disk.

        Machines may have the same name; no two have the same boot id.
        """
        if self._is_shared and any(holder.get(key, self._self[key]) != self._self[key] for key in ("host", "boot")):
            return False
        return self._locks_work

    @cached_property
    def _is_shared(self) -> bool:
        return process.is_network_mount(self._layout.root)

    @cached_property
    def _locks_work(self) -> bool:
        with self._probe() as (file, path):
            file.lock()
            return self._disk.is_locked(path) is True

    @cached_property
    def now(self) -> float:
        """The time by the store's clock, which may not be this host's."""
        with self._probe() as (_, path):
            return self._disk.modified(path) or self._disk.now().timestamp()

    @contextmanager
    def _probe(self) -> Iterator[tuple[NewFile, Path]]:
        path = self._layout.temporary(self._disk.new_id(), "probe")
        self._disk.make_folder(self._layout.tmp)
        file = self._disk.create(path, 0o644)
        try:
            yield file, path
        finally:
            file.close()
            self._disk.unlink(path)


def _read(disk: Disk, path: Path) -> dict[str, Any]:
    try:
        return canonical.unseal(disk.read(path), str(path))[0]
    except (Damaged, OSError):
        return {}


def _holder(disk: Disk, layout: Layout, write_id: str) -> Holder:
    said = _read(disk, layout.lease(write_id))
    pid = said.get("pid")
    return Holder(
        write_id=write_id,
        purpose=str(said.get("purpose", "an operation")),
        host=str(said.get("host", "an unknown host")),
        pid=pid if type(pid) is int else -1,
        since=str(said.get("since", "an unknown time")),
    )
