"""A writer that looked before entries were folded does not take the number of one that has lost its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cairn
from cairn.errors import Conflict
from cairn.io.disk import Disk
from cairn.store.collecting import Collection
from cairn.store.store import open_store


class Interrupted(Disk):
    """Lets something happen right before one file gets its name."""

    def __init__(self, name: str, meanwhile: Callable[[], object]) -> None:
        self._name, self._meanwhile = name, meanwhile
        self.was_there = False

    def step(self, name: str, path: Path) -> None:
        if name == "link" and path.name == self._name and not self.was_there:
            self.was_there = True
            self._meanwhile()


def race(root: Path) -> None:
    """Let two commits and a gc that folds come between a writer's last look and its entry."""
    cairn.init(root).close()
    with cairn.open(root) as store:
        for step in (1, 2, 3):
            store.run().commit({"model": step}, step=step)

    def meanwhile() -> None:
        with cairn.open(root) as other:
            for step in (4, 5):
                other.run().commit({"model": step}, step=step)
            other.gc(patience=0)

    disk = Interrupted("00000004.json", meanwhile)
    with open_store(root, disk=disk) as slow:
        with pytest.raises(Conflict, match="the run moved"):
            slow.run().commit({"model": 40}, step=40)
        assert disk.was_there
    with cairn.open(root) as store:
        assert [commit.step for commit in store.log()] == [5, 4, 3, 2, 1]
        assert store.gc().folded == 4
        assert [commit.step for commit in store.log()] == [5, 4, 3, 2, 1]
        assert store.verify().findings == ()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold from two entries on."""
    monkeypatch.setattr("cairn.io.folds.SIZES", (2, 8))


def test_a_number_stays_taken_while_a_writer_may_believe_it_free(tmp_path: Path) -> None:
    """gc folds, and waits for who was running before the entries lose their files."""
    race(tmp_path / "store")


def test_without_the_wait_an_entry_is_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that the race is about: without it the writer's commit goes through, and is lost."""
    monkeypatch.setattr(Collection, "wait", lambda self, patience: ())
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        race(tmp_path / "store")
