"""A full disk: what is there stays whole and readable, what frees space works, and then the same commit succeeds.

The disk is a real file system in memory, mounted for the test where that is allowed, and filled to the last byte.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cairn

MIB = 1 << 20


def fresh(step: int) -> dict[str, dict[str, np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]]:
    """3 MiB that no other step has: two parts of a model, one of an optimizer."""
    rng = np.random.default_rng(step)
    part = [rng.integers(0, 255, MIB, dtype="u1") for _ in range(3)]
    return {"model": {"a": part[0], "b": part[1]}, "optimizer": {"m": part[2]}}


def filled(root: Path) -> int:
    """Make a store, commit steps until the disk is full, and fill what is left; return the step that failed."""
    with cairn.init(root) as store:
        run = store.run()
        for step in range(100):
            if os.statvfs(root).f_bavail * 4096 < 3 * MIB:
                break
            run.commit(fresh(step), step=step)
        with pytest.raises(cairn.CairnError, match="no space left"):
            run.commit(fresh(step), step=step)
        assert os.listdir(root / "tmp") == []
        assert store.commit("latest").step == step - 1
        stuff(root)
        assert step > 3
        return step


def stuff(root: Path) -> None:
    """Write beside the store until nothing more fits: no byte, and no further name."""
    count = 0
    for size in (MIB, 4096, 1):
        try:
            while True:
                with root.with_name(f"stuff-{count}").open("wb", buffering=0) as file:
                    count += 1
                    file.write(b"x" * size)
        except OSError:
            continue


def whole(root: Path, last: int, elsewhere: Path) -> None:
    """Every way of reading works without a free byte."""
    with cairn.open(root) as store:
        assert store.commit("latest").step == last
        for commit in store.log():
            if not commit.is_dropped:
                only = {"model", "optimizer"} - set(commit.dropped)
                state = store.load(commit.id, only=only)
                expected = fresh(commit.step or 0)
                assert all(
                    np.array_equal(state[name][key], expected[name][key]) for name in only for key in state[name]
                )
        assert store.verify().ok
        assert store.ls("latest")
        assert store.du().stored
        only = {"model", "optimizer"} - set(store.commit("latest").dropped)
        store.checkout("latest", elsewhere / f"out-{os.urandom(4).hex()}", only=only)


def dropping_frees(root: Path, elsewhere: Path) -> None:
    """A step that is dropped makes room for the step that failed."""
    step = filled(root)
    whole(root, step - 1, elsewhere)
    with cairn.open(root) as store:
        store.drop(["step:0", "step:1"])
        plan = store.gc()
        assert plan.freed_bytes > 6 * MIB
        assert not plan.waiting_for
    whole(root, step - 1, elsewhere)
    with cairn.open(root) as store:
        store.run().commit(fresh(step), step=step)
        assert (root / "reserve").exists()
    whole(root, step, elsewhere)


def rewinding_dropping_and_ending_a_run_frees(root: Path, elsewhere: Path) -> None:
    """Each way to give content up can be recorded on a full disk, and gc frees what it gives up."""
    step = filled(root)
    ways: list[Callable[[cairn.Store], object]] = [
        lambda store: store.rewind(f"step:{step - 2}"),
        lambda store: store.drop([f"main@{step - 3}"]),
        lambda store: store.delete_run("main"),
    ]
    for give_up in ways:
        with cairn.open(root) as store:
            give_up(store)
        stuff(root)
        with cairn.open(root) as store:
            assert store.verify().ok
            store.gc()
        stuff(root)
    with cairn.open(root) as store:
        assert store.runs() == []
        assert store.du().stored == 0


def untagging_frees(root: Path, elsewhere: Path) -> None:
    """A tag is deleted on a full disk, and what it kept is freed."""
    with cairn.init(root) as store:
        store.run("other").commit({**fresh(1000), "more": fresh(1001)["model"]}, step=0)
        store.tag("kept", "latest")
        store.delete_run("other")
    with cairn.open(root) as store:
        run = store.run("main")
        step = 0
        try:
            while True:
                run.commit(fresh(step), step=step)
                step += 1
        except cairn.CairnError:
            stuff(root)
        store.delete_tag("kept")
        assert store.gc().freed_bytes > 5 * MIB
        run.commit(fresh(step), step=step)
        assert store.verify().ok


def compaction_frees(root: Path, elsewhere: Path) -> None:
    """Components dropped inside shared packs are freed on a full disk, a pack at a time; nothing else is lost."""
    step = filled(root)
    with cairn.open(root) as store:
        store.drop([f"step:{number}" for number in range(step)], only={"optimizer"})
        plan = store.gc()
        assert not plan.deleted
        assert plan.partly_dead_bytes >= step * MIB
        # No new pack fits: it says so, and does no harm.
        full = store.gc(compact=True)
        assert full.short_of_space
        assert not full.deleted
    whole(root, step - 1, elsewhere)
    # Room for the smallest of the new packs and what gc writes itself: what one round frees is the room of the next.
    with cairn.open(root) as store:
        store.drop(["step:0"])
        store.gc()
        stuff(root)
        store.drop(["step:1"])
        plan = store.gc(compact=True)
        assert not plan.short_of_space, plan
        assert len(plan.rewrites) == step - 2
        assert plan.freed_bytes >= (step - 2 + 3) * MIB - 65536
    whole(root, step - 1, elsewhere)
    with cairn.open(root) as store:
        assert not store.gc(compact=True).rewrites
        store.run().commit(fresh(step), step=step)


SCENARIOS: dict[str, Callable[[Path, Path], None]] = {
    "DISK-01 and FULL2-01: dropping": dropping_frees,
    "rewinding, dropping, ending a run": rewinding_dropping_and_ending_a_run_frees,
    "deleting a tag": untagging_frees,
    "compaction": compaction_frees,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_full_disk_costs_nothing_and_can_be_freed(tmp_path: Path, name: str) -> None:
    """DISK-01, FULL2-01: see what the scenarios say."""
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    disk.mkdir()
    elsewhere.mkdir()
    script = (
        f"import sys; sys.path.insert(0, {str(Path.cwd())!r}); from pathlib import Path\n"
        "from tests.cairn.test_full_disk import SCENARIOS\n"
        "Path(sys.argv[2], 'begun').touch(); SCENARIOS[sys.argv[3]](Path(sys.argv[1], 'store'), Path(sys.argv[2]))\n"
    )
    mounted = 'mount -t tmpfs -o size=24m tmpfs "$1" && exec "$2" -W error -c "$3" "$1" "$4" "$5"'
    arguments = [str(disk), sys.executable, script, str(elsewhere), name]
    done = subprocess.run(["unshare", "-m", "sh", "-c", mounted, "sh", *arguments], capture_output=True, text=True)
    if not (elsewhere / "begun").exists() and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"this process may not mount, and a small disk is the subject: {done.stderr}")
    assert done.returncode == 0, done.stderr
