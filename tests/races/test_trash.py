"""How long packs stay in the trash where leases of other hosts may not be seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.races.checks import whole
from tests.races.harness import StagedDisk, perform
from tests.races.scenes import Builder, Scene, build, build_with_needed_trash, gc

from cairn.io import process


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
