"""How long packs stay in the trash where leases of other hosts may not be seen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.races.checks import whole
from tests.races.harness import StagedDisk, perform
from tests.races.scenes import Builder, Scene, build, build_with_needed_trash, gc

from cairn import canonical
from cairn.io import leases, process
from cairn.io.layout import Layout


class Later(StagedDisk):
    """A disk on which some hours have passed, and that knows when its files were moved."""

    moved: dict[int, int] = {}  # noqa: RUF012 - one clock for all

    def __init__(self, hours: int) -> None:
        super().__init__()
        self.hours = hours

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.moved[os.stat(target).st_ino] = self.hours

    def modified(self, path: Path) -> float | None:
        found = super().modified(path)
        return None if found is None else found + 3600 * self.hours

    def changed(self, path: Path) -> float | None:
        found = super().changed(path)
        return None if found is None else found + 3600 * self.moved.get(os.stat(path).st_ino, 0)


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store lies on a disk that other hosts may have mounted too."""
    monkeypatch.setattr(process, "is_network_mount", lambda path: True)


def test_the_trash_is_emptied_after_a_day_however_often_gc_runs(scene: Callable[[Builder], Scene]) -> None:
    """A pack waits for a day from when it left its place, not from when the last gc looked at it."""
    root = scene(build).copy()
    for hours in (0, 10, 20, 23):
        assert perform(root, gc(), Later(hours)).succeeded
        assert len(list((root / "trash").iterdir())) == 1
    assert perform(root, gc(), Later(25)).succeeded
    assert not list((root / "trash").iterdir())
    whole(root)


def test_what_is_needed_goes_back_at_once(scene: Callable[[Builder], Scene]) -> None:
    """A day must pass before a pack is deleted, not before it is put back."""
    root = scene(build_with_needed_trash).copy()
    assert perform(root, gc(), Later(1)).succeeded
    assert not list((root / "trash").iterdir())
    assert whole(root).keeps("10 dead")


@pytest.mark.parametrize("change", [{}, {"boot": "00000000-0000-0000-0000-000000000000"}, {"host": "elsewhere"}])
def test_a_free_lock_proves_death_only_on_this_machine(
    scene: Callable[[Builder], Scene], change: dict[str, str]
) -> None:
    """Locks may not be seen across a network, so leases of other machines, also of this name, live for a day."""
    disk, layout = StagedDisk(), Layout(scene(build).copy())
    write_id = disk.new_id()
    file = disk.create(layout.lease(write_id), 0o644)
    file.write(canonical.seal({"purpose": "commit", "since": "now", **process.identity(), **change}))
    file.close()
    assert set(leases.alive(disk, layout)) == ({write_id} if change else set())
    yesterday = time.time() - 25 * 3600
    os.utime(layout.lease(write_id), (yesterday, yesterday))
    assert leases.alive(disk, layout) == {}
