"""Which process is this, and does that one still live?

A pid alone comes back; a pid with its start time and the machine's boot id does not. Processes in another pid
namespace or on another host cannot be judged from here.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

_NETWORK = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "9p",
        "afs",
        "glusterfs",
        "virtiofs",
    )
)


def identity() -> dict[str, Any]:
    """Return what tells this process from every other, as canonical JSON values."""
    pid = os.getpid()
    return {
        "host": platform.node(),
        "pid": pid,
        "start": start_of(pid),
        "boot": _boot_id(),
        "namespace": _namespace(),
    }


def is_dead(other: dict[str, Any]) -> bool:
    """Whether it is certain that a process is gone whose lock is held; False also when it cannot be known from here.

    No lock outlives a boot: one that is held under another boot id is held on another machine of the same name.
    """
    boot, pid, start = other.get("boot"), other.get("pid"), other.get("start")
    if not isinstance(boot, str) or type(pid) is not int or not isinstance(start, str):
        return False
    if other.get("host") != platform.node() or boot != _boot_id():
        return False
    return other.get("namespace") == _namespace() and start_of(pid) != start and not _is_hidden(pid)


def start_of(pid: int) -> str | None:
    """Return a process's start time in the kernel's ticks since boot; None when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may hold anything, parentheses included.
    fields = stat[stat.rfind(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields[19]


def _is_hidden(pid: int) -> bool:
    """Whether a process is there of which /proc shows nothing, as where it hides other users' processes."""
    if Path(f"/proc/{pid}").exists():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def is_network_mount(path: Path) -> bool:
    """Whether a path lies on a file system that other hosts may have mounted too."""
    kind = kind_of_mount(path)
    return kind in _NETWORK or kind.startswith("fuse.")


def kind_of_mount(path: Path) -> str:
    """Return the kind of file system that a path lies on, as the kernel calls it; nothing where that is not known."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    target = path.resolve()
    best, kind = -1, ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4].replace("\\040", " ")
        if target.is_relative_to(mount) and len(mount) >= best:
            best, kind = len(mount), right.split()[0]
    return kind


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
