"""The order of a commit's system calls, as strace sees them: what test_durability_order.py asks of a recording disk."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "20-commit-speed" / "system_calls.py"
WRITING = ("fallocate", "ftruncate", "write", "writev", "pwrite64", "pwritev")
FORCING = ("fsync", "fdatasync")
MOVING = ("rename", "renameat", "renameat2")
LINKING = ("link", "linkat", "renameat2")


@dataclass(frozen=True)
class Call:
    """One call, with the paths it names, and when it began and ended."""

    name: str
    paths: tuple[Path, ...]
    began: int
    ended: int


@pytest.fixture(scope="module")
def watched() -> tuple[list[Call], Path]:
    """The calls of one commit that makes two packs, and its store."""
    done = subprocess.run([sys.executable, SCRIPT, "--json"], capture_output=True, text=True, timeout=120)
    if done.returncode and done.stderr.startswith(("no strace", "strace may not watch")):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    calls = [
        Call(each["name"], tuple(map(Path, each["paths"])), each["began"], each["ended"]) for each in found["calls"]
    ]
    return calls, Path(found["root"])


def of(calls: list[Call], names: tuple[str, ...], path: Path) -> list[Call]:
    """The calls of some kinds on one file or folder, whichever of their paths it is."""
    return [call for call in calls if call.name in names and path in call.paths]


def moves_to(calls: list[Call], names: tuple[str, ...], folder: Path) -> list[tuple[Call, Path, Path]]:
    """The calls that give a file a name below a folder, with its old name and its new one."""
    named = [call for call in calls if call.name in names and folder in call.paths[-1].parents]
    return [(call, call.paths[-2], call.paths[-1]) for call in named]


def test_a_packs_bytes_are_forced_before_it_has_its_name(watched: tuple[list[Call], Path]) -> None:
    """The last write to a pack has ended before its fsync begins, and that has ended before the rename begins."""
    calls, root = watched
    packs = moves_to(calls, MOVING, root / "packs")
    assert len(packs) == 2
    for rename, tmp, _ in packs:
        written = max(call.ended for call in of(calls, WRITING, tmp))
        assert any(written < sync.began and sync.ended < rename.began for sync in of(calls, FORCING, tmp)), tmp


def test_the_entry_is_linked_after_all_that_it_needs_is_forced(watched: tuple[list[Call], Path]) -> None:
    """The names of packs, the folders they are in, and the entry's own bytes are forced before the link begins."""
    calls, root = watched
    ((link, tmp, entry),) = moves_to(calls, LINKING, root / "runs")
    for rename, _, pack in moves_to(calls, MOVING, root / "packs"):
        for folder in (pack.parent, root / "packs"):
            forced = of(calls, FORCING, folder)
            assert any(rename.ended < sync.began and sync.ended < link.began for sync in forced), folder
    written = max(call.ended for call in of(calls, WRITING, tmp))
    assert any(written < sync.began and sync.ended < link.began for sync in of(calls, FORCING, tmp))
    assert any(link.ended < sync.began for sync in of(calls, FORCING, entry.parent))
