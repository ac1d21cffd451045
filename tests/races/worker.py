"""A process that works on a store and may be killed: `worker.py STORE WHAT ARGUMENT…`.

`write RUN COUNT SEED` commits and prints what was done; `kill RUN STEP` commits and dies before a durable step;
`collect COUNT` runs gc again and again; `read COUNT` loads and verifies; `collect-once` runs gc and exits with 5 when
another is at work; `race GATE NUMBER` waits for a file and commits what others commit; `fork` takes a lease, forks a
child that keeps it open, says the child's pid and dies.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from tests.races.scenes import commit, look, state, verify

import cairn
from cairn.errors import Busy, Conflict, Dropped
from cairn.io.disk import Disk
from cairn.io.layout import Layout
from cairn.io.leases import take

KEYS = ("dead", "first", "a", "b", "c")
"""Few states, so that writers share blobs with each other and with what was dropped."""


class KillingDisk(Disk):
    """Ends the process before one of its steps."""

    def __init__(self, at: int) -> None:
        self._at, self._count = at, 0

    def step(self, name: str, path: Path) -> None:
        self._count += 1
        if self._count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


def write(root: str, run: str, count: str, seed: str) -> None:
    """Commit many times, from a handle taken anew when somebody moved the run."""
    rng = random.Random(int(seed))
    with cairn.open(root) as store:
        handle = store.run(run)
        for number in range(int(count)):
            key = f"{rng.choice(KEYS)}+{rng.choice(KEYS)}"
            step = 1000 * int(seed) + number
            try:
                handle.commit(state(key), step=step, message=key)
                print(f"{step} {key}", flush=True)
            except Conflict:
                handle = store.run(run)


def collect(root: str, count: str) -> None:
    """Drop and free again and again, every other time with compaction."""
    with cairn.open(root) as store:
        for number in range(int(count)):
            with suppress(Conflict):
                store.gc(keep_last=2, compact=number % 2 == 1, patience=0.05)


def read(root: str, count: str) -> None:
    """Load and verify again and again; what is dropped meanwhile is no damage."""
    for _ in range(int(count)):
        with cairn.open(root) as store:
            with suppress(Dropped):
                look(store)
            verify(store)


def kill(root: str, run: str, at: str) -> None:
    """Commit and die before a step."""
    with cairn.open(root, disk=KillingDisk(int(at))) as store:
        commit("killed", 50, run)(store)


def collect_once(root: str) -> None:
    """Run gc, or say that another is at work."""
    with cairn.open(root) as store:
        try:
            store.gc(patience=0)
        except Busy:
            sys.exit(5)


def race(root: str, gate: str, number: str) -> None:
    """Once the gate is there, commit the same state as all others to a run of its own, and to steps that all want."""
    with cairn.open(root) as store:
        model = {f"w{each}": np.arange(1000.0) + each for each in range(10)}
        own, same, other = store.run(f"own{number}"), store.run("same"), store.run("other")
        print("ready", flush=True)
        while not Path(gate).exists():
            time.sleep(0.001)
        for run, step, what in ((own, int(number), {}), (same, 7, {}), (other, 7, {"of": int(number)})):
            try:
                print(run.commit({"model": model, **what}, step=step).id, flush=True)
            except Conflict as error:
                print(type(error).__name__, flush=True)


def fork(root: str) -> None:
    """Take a lease and die, leaving a child that has it open."""
    lease = take(Disk(), Layout(Path(root)), "commit")
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print(f"{child} {lease.write_id}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _, path, what, *rest = sys.argv
    globals()[what.replace("-", "_")](path, *rest)
