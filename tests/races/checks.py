"""What must be true of a store after anything."""

from __future__ import annotations

from pathlib import Path

from tests.races.harness import StagedDisk
from tests.races.scenes import View, commit, look, verify

import cairn


def sound(root: Path) -> View:
    """Open a store anew, verify it, and return what it holds. Raises AssertionError or CairnError."""
    with cairn.open(root, disk=StagedDisk()) as store:
        view = look(store, load=False)
        verify(store)
    return view


def whole(root: Path) -> View:
    """As `sound`, and everything that is kept loads and is what was committed."""
    with cairn.open(root, disk=StagedDisk()) as store:
        view = look(store)
        verify(store)
    return view


def goes_on(root: Path) -> View:
    """Commit and collect as if nothing had happened; nothing may be lost, and no garbage may be left."""
    before = sound(root)
    with cairn.open(root, disk=StagedDisk()) as store:
        commit("next", 99, run="main")(store)
        plan = store.gc(patience=0)
        assert not plan.waiting_for, f"gc waits for {plan.waiting_for}"
    after = whole(root)
    for name, (_, commits) in before.runs.items():
        assert after.runs[name][1].items() >= commits.items(), f"gc or commit changed run {name}"
    assert after.keeps("99 next")
    assert after.tags == before.tags
    no_garbage(root)
    return before


def no_garbage(root: Path) -> None:
    """Nothing is left of what operations made for themselves, and no pack is dead."""
    for folder, allowed in (("tmp", set[str]()), ("trash", set[str]()), ("leases", {"gc.lock"})):
        left = {path.name for path in (root / folder).iterdir()} - allowed
        assert not left, f"left in {folder}: {sorted(left)}"
    assert (root / "reserve").exists()
    with cairn.open(root, disk=StagedDisk()) as store:
        assert not store.gc(dry_run=True).dead
