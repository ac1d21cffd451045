"""Real processes on one store: many at once, killed ones, and what the dead leave behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.cairn import folders
from tests.races.checks import goes_on, whole
from tests.races.harness import StagedDisk, perform
from tests.races.scenes import Builder, Scene, build, build_with_trash, gc

import cairn
from cairn import canonical
from cairn.errors import Busy
from cairn.io import leases, process
from cairn.io.disk import Disk
from cairn.io.layout import Layout

ROOT = Path(__file__).parents[2]


def start(root: Path, *arguments: object) -> subprocess.Popen[str]:
    """Start a worker."""
    command = [sys.executable, str(Path(__file__).with_name("worker.py")), str(root), *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    )


def finish(worker: subprocess.Popen[str]) -> str:
    """Wait for a worker that is expected to succeed; return what it said."""
    said, _ = worker.communicate(timeout=120)
    assert worker.returncode == 0
    return said


def test_writers_readers_and_gc_work_at_the_same_time(scene: Callable[[Builder], Scene]) -> None:
    """Every commit that a writer was told of is in its run, and everything that is kept is whole."""
    root = scene(build).copy()
    writers = {
        "main": [start(root, "write", "main", 12, 1)],
        "own": [start(root, "write", "own", 12, 2)],
        "shared": [start(root, "write", "shared", 12, 3), start(root, "write", "shared", 12, 4)],
    }
    others = [start(root, "collect", 40), start(root, "read", 12)]
    told = {run: [finish(worker).splitlines() for worker in workers] for run, workers in writers.items()}
    for other in others:
        finish(other)
    view = goes_on(root)
    for run, said in told.items():
        for lines in said:
            assert set(lines) <= view.runs[run][1].keys()
    assert all(len(lines) == 12 for run in ("main", "own") for lines in told[run])
    # Of two that commit to one run at the same time one is refused and tries again.
    assert sum(len(lines) for lines in told["shared"]) > 0


def test_sixteen_writers_of_the_same_state_get_in_nobodys_way(tmp_path: Path) -> None:
    """CONC-01: each lands in its run; of those that want one step one wins, and equal ones are told of it; four die."""
    root, gate, rng = tmp_path / "store", tmp_path / "gate", random.Random(0)
    cairn.init(root).close()
    workers = [start(root, "race", gate, number) for number in range(16)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    gate.touch()
    dead = rng.sample(range(16), 4)
    for number in dead:
        time.sleep(rng.random() / 50)
        workers[number].kill()
    said = [worker.communicate(timeout=120)[0].split() for worker in workers]
    assert [worker.returncode for number, worker in enumerate(workers) if number not in dead] == [0] * 12
    with cairn.open(root) as store:
        assert store.verify().findings == ()
        (same,), (other,) = store.log("same"), store.log("other")
        for number, told in enumerate(said):
            landed = [commit.id for commit in store.log(f"own{number}")] if f"own{number}" in store.runs() else []
            assert told[:1] in ([], landed)  # Who was killed may not have come to say it.
            if number not in dead:
                assert told == [landed[0], same.id, told[2]]
                assert told[2] in (other.id, "StepTaken")
        own = {store.commit(f"own{number}").manifest for number in range(16) if f"own{number}" in store.runs()}
        assert own == {same.manifest}
        store.gc(compact=True)  # Those who began at the same time each wrote what nobody had.
        names = [name for pack in folders.packs(root) for name in folders.head(pack)[1]]
        assert len(names) == len(set(names))
        assert store.verify().findings == ()
        loaded = store.load("same")["model"]
        assert all(np.array_equal(loaded[f"w{each}"], np.arange(1000.0) + each) for each in range(10))
    assert os.listdir(root / "tmp") == os.listdir(root / "trash") == []


@pytest.mark.parametrize("at", [2, 4, 9, 13, 19])
def test_a_killed_writer_hinders_nobody(scene: Callable[[Builder], Scene], at: int) -> None:
    """Its commit is there whole or not at all, its lease is dead, and gc removes what it left."""
    root = scene(build_with_trash).copy()
    worker = start(root, "kill", "main", at)
    assert worker.wait(timeout=60) == -signal.SIGKILL
    assert worker.communicate()[0] == ""
    assert leases.alive(Disk(), Layout(root)) == {}
    assert whole(root).runs["main"][0] in ("3 tip", "50 killed")
    goes_on(root)


def test_a_child_that_outlives_its_killed_parent_does_not_keep_its_lease_alive(
    scene: Callable[[Builder], Scene],
) -> None:
    """The child has the lease's file open and so its lock, but the process that took the lease is gone."""
    root = scene(build).copy()
    worker = start(root, "fork")
    assert worker.stdout is not None
    child, write_id = worker.stdout.readline().split()
    try:
        assert worker.wait(timeout=60) == -signal.SIGKILL
        path = Layout(root).lease(write_id)
        assert Disk().is_locked(path)
        assert leases.alive(Disk(), Layout(root)) == {}
        goes_on(root)
    finally:
        os.kill(int(child), signal.SIGKILL)
        worker.stdout.close()


FOREIGN = {
    "the same process": ({}, True),
    "a pid that came back": ({"start": "1"}, False),
    "another machine of the same name": ({"boot": "00000000-0000-0000-0000-000000000000", "start": "1"}, True),
    "another pid namespace": ({"namespace": "pid:[1]", "start": "1"}, True),
    "another host": ({"host": "elsewhere", "start": "1"}, True),
}


@pytest.mark.parametrize("who", FOREIGN)
def test_a_locked_lease_is_dead_only_if_its_process_is_certainly_gone(
    scene: Callable[[Builder], Scene], who: str
) -> None:
    """The pid may be another process by now; of a process that cannot be looked at from here the lock tells."""
    changes, lives = FOREIGN[who]
    disk, layout = Disk(), Layout(scene(build).copy())
    write_id = disk.new_id()
    file = disk.create(layout.lease(write_id), 0o644)
    try:
        file.lock()
        file.write(canonical.seal({"purpose": "commit", "since": "now", **process.identity(), **changes}))
        assert set(leases.alive(disk, layout)) == ({write_id} if lives else set())
        leases.sweep(disk, layout)
        assert layout.lease(write_id).exists() == lives
    finally:
        file.close()


def test_a_gc_that_is_refused_does_not_let_go_of_the_lock_of_the_one_at_work(scene: Callable[[Builder], Scene]) -> None:
    """While a gc works, every other is refused, of this process and of others, whoever tried before."""
    root = scene(build).copy()
    refused: list[int | None] = []

    def meanwhile(number: int) -> None:
        if disk.points[number].name == "rename":
            assert isinstance(perform(root, gc()).error, Busy)
            worker = start(root, "collect-once")
            worker.communicate(timeout=60)
            refused.append(worker.returncode)

    disk = StagedDisk(meanwhile)
    assert perform(root, gc(), disk).succeeded
    assert refused
    assert set(refused) == {5}
    worker = start(root, "collect-once")
    assert finish(worker) == ""
