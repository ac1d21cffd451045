"""Failures of other tools that have to do with freeing space, each named by its case."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe

import cairn
from cairn.io.disk import Disk

W1, W2, W3 = (np.random.default_rng(number).normal(size=1000) for number in range(3))


def blob(store: cairn.Store, revision: str, path: str) -> str:
    """The id of a tensor's bytes."""
    return store.ls(revision, path)[0].blobs[0].id


def stored(store: cairn.Store) -> set[str]:
    """The ids of all blobs in all packs."""
    return {name for pack in folders.packs(store.path) for name in folders.head(pack)[1]}


@pytest.mark.parametrize("names", [("a", "b"), ("r", "r2"), ("ema2", "ema")])
def test_gcshare_01_gc_takes_nothing_that_another_run_uses(store: cairn.Store, names: tuple[str, str]) -> None:
    """GCSHARE-01: of two runs in one store one is deleted; only what it alone had goes, whatever their names."""
    one, other = names
    store.run(one).commit({"ema": {"w1": W1, "w2": W2}}, step=1)
    store.run(other).commit({"ema": {"w2": W2}, "ema2": {"w3": W3}}, step=1)
    ids = {
        name: blob(store, f"{run}@1", path)
        for name, run, path in (("1", one, "ema/w1"), ("2", other, "ema/w2"), ("3", other, "ema2/w3"))
    }
    store.delete_run(one)
    assert store.gc(dry_run=True).partly_dead_bytes >= W1.nbytes
    assert store.gc(compact=True, dry_run=True).compacted_bytes >= W1.nbytes
    store.gc(compact=True)
    assert ids["1"] not in stored(store)
    assert {ids["2"], ids["3"]} <= stored(store)
    assert describe(store.load(other)) == describe({"ema": {"w2": W2}, "ema2": {"w3": W3}})
    assert store.verify().findings == ()


@pytest.mark.parametrize("compact", [False, True])
def test_prune_01_gc_takes_nothing_of_work_that_is_not_yet_published(tmp_path: Path, *, compact: bool) -> None:
    """PRUNE-01: packs of a commit that is under way survive, and so does a tagged step that a rule gives up."""

    class Between(Disk):
        def link(self, source: Path, target: Path) -> None:
            if "runs" in target.parts and target.name == "00000003.json":
                with cairn.open(tmp_path / "store") as other:
                    other.gc(keep_last=1, compact=compact, patience=0)
            super().link(source, target)

    with cairn.init(tmp_path / "store") as store:
        store.run().commit({"model": W1}, step=1)
        store.tag("keep", "step:1")
        store.run().commit({"model": W2}, step=2)
    with cairn.open(tmp_path / "store", disk=Between()) as store:
        store.run().commit({"model": W3}, step=3)
        store.gc(keep_last=1, compact=compact)
        assert describe(store.load("latest")) == describe({"model": W3})
        assert describe(store.load("keep")) == describe({"model": W1})
        assert store.verify().findings == ()


def test_mmap_01_values_that_are_mapped_outlive_every_gc(store: cairn.Store) -> None:
    """MMAP-01: what was loaded stays as it is when its step is dropped, and its pack rewritten or deleted."""
    run = store.run()
    run.commit({"model": {"w": W1, "v": W2}}, step=1)
    run.commit({"model": {"w": W1}}, step=2)
    loaded, lazy = run.load(step=1), run.open(step=1)
    touched = lazy["model"]["w"]
    run.commit(loaded, step=3)
    assert run.last is not None
    assert run.last.new_bytes == 0
    run.commit({"model": {"w": W3}}, step=4)
    store.drop(["step:1", "step:3"])
    assert store.gc(compact=True).deleted
    store.drop(["step:2"])
    assert store.gc(compact=True).deleted
    for found in (loaded["model"]["w"], touched):
        np.testing.assert_array_equal(found, W1)
    np.testing.assert_array_equal(loaded["model"]["v"], W2)


def test_stalep_01_a_step_whose_writing_failed_is_never_the_newest(tmp_path: Path) -> None:
    """STALEP-01: `latest` stays the last durable step, and the one that failed can be committed again."""

    class Failing(Disk):
        fails = False

        def step(self, name: str, path: Path) -> None:
            if self.fails and name == "write" and ".entry" in path.name:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))

    disk = Failing()
    with cairn.init(tmp_path / "store", disk=disk) as store:
        run = store.run()
        run.commit({"model": W1}, step=1)
        disk.fails = True
        with pytest.raises(cairn.CairnError, match="no space left"):
            run.commit({"model": W2}, step=2)
        disk.fails = False
        assert store.commit("latest").step == 1
        store.gc(keep_last=1, compact=True)
        assert describe(store.load("latest")) == describe({"model": W1})
        assert blob(store, "latest", "model") in stored(store)
        run.commit({"model": W2}, step=2)
        assert describe(store.load("latest")) == describe({"model": W2})
        assert store.verify().findings == ()


KILLED = """
import os, signal, sys, cairn
from cairn.io.disk import Disk
class Killing(Disk):
    count = 0
    def step(self, name, path):
        Killing.count += 1
        if Killing.count == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
with cairn.open(sys.argv[1], disk=Killing()) as store:
    store.gc(compact=True)
"""


@pytest.mark.parametrize("at", [3, 9, 14, 20, 26])
def test_lock_01_a_killed_gc_hinders_nobody(store: cairn.Store, at: int) -> None:
    """LOCK-01: reading, committing and the next gc work at once; nobody has to remove a file."""
    for step, w in enumerate((W1, W2, W3)):
        store.run().commit({"model": {"w": w, "n": step}, "optimizer": {"m": w * 2}}, step=step)
    store.drop(["step:0", "step:1"], only={"optimizer"})
    done = subprocess.run([sys.executable, "-c", KILLED, str(store.path), str(at)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert describe(store.load("latest")) == describe({"model": {"w": W3, "n": 2}, "optimizer": {"m": W3 * 2}})
    assert describe(store.load("step:0", only={"model"})) == describe({"model": {"w": W1, "n": 0}})
    store.run().commit({"model": {"w": W1}}, step=3)
    plan = store.gc(compact=True)
    assert not plan.waiting_for
    assert store.verify().findings == ()
    assert os.listdir(store.path / "tmp") == os.listdir(store.path / "trash") == []
    assert store.du().needed == sum(
        size for pack in folders.packs(store.path) for _, size in folders.head(pack)[1].values()
    )
