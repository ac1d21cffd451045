"""A commit with `wait=False` keeps what the state was when it returned, and its failure is missed by nobody."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cairn.gates import PATIENCE_SECONDS, GatedDisk, interrupt_the_wait

import cairn
from cairn.state.sketch import Sketch


@pytest.fixture
def disk() -> Iterator[GatedDisk]:
    """A disk whose gate is open."""
    disk = GatedDisk()
    yield disk
    disk.open_gate()


@pytest.fixture
def store(tmp_path: Path, disk: GatedDisk) -> cairn.Store:
    """A new, empty store on the disk with the gate."""
    return cairn.init(tmp_path / "store", disk=disk)


def state(step: int) -> dict[str, Any]:
    """A state of which everything follows from its step."""
    return {"model": {f"layer.{n}": np.full((8, 8), step, "<f4") for n in range(8)}, "optimizer": {"step": step}}


def check(found: dict[str, Any], step: int) -> None:
    """Check that a state is the one of this step, in all its parts."""
    assert found["optimizer"] == {"step": step}
    assert [np.unique(layer).tolist() for layer in found["model"].values()] == [[step]] * 8


def fail(run: cairn.Run, disk: GatedDisk, step: int = 1) -> cairn.Pending:
    """Begin a commit that finds the disk full at its very last step, and wait for that."""
    disk.fails_at = "link"
    pending = run.commit(state(step), step=step, wait=False)
    for thread in threading.enumerate():
        if thread.name == "cairn-commit":
            thread.join(PATIENCE_SECONDS)
    assert pending.done()
    disk.fails_at = ""
    return pending


# The snapshot.


def test_what_is_changed_in_flight_is_not_committed(store: cairn.Store, disk: GatedDisk) -> None:
    """Every part of the commit is of the step that was committed, although training goes on before a byte is hashed."""
    run = store.run()
    training, metrics = state(1), {"loss": 1.0}
    disk.close_gate()
    pending = run.commit(training, step=1, metrics=metrics, wait=False)
    for layer in training["model"].values():
        layer[:] = 2
    training["optimizer"]["step"] = metrics["loss"] = 2
    training["model"].clear()
    disk.open_gate()
    commit = pending.result()
    check(run.load(step=1), 1)
    assert commit.metrics == {"loss": 1.0}
    assert run.tip == commit


BASE = np.arange(2 * 3 * 4 * 600, dtype="<f4").reshape(2, 3, 4, 600)
LAYOUTS = {
    "contiguous": BASE,
    "transposed": BASE.T,
    "fortran": np.asfortranarray(BASE),
    "strided": BASE[:, ::2, :, 1::3],
    "backwards": BASE[::-1, :, ::-1],
    "broadcast": np.broadcast_to(np.float64(7), (3, 5)),
    "big-endian": BASE.astype(">f4"),
    "big-endian, strided": BASE.astype(">c16")[..., ::2],
    "0-d": np.array(-0.0),
    "0-d, big-endian": np.array(7, ">i8"),
    "odd bytes": np.arange(13, dtype="u1")[1::2],
    "times": np.arange(5).astype("datetime64[ns]"),
    "NaN with a payload": np.array([0x7FA00001], "<u4").view("<f4"),
    "big-endian NaN": np.array([0x7FF0000000000001], ">u8").view(">f8"),
    "half": BASE.astype("<f2")[0].T,
}


def test_every_layout_comes_back_as_from_a_commit_that_is_waited_for(store: cairn.Store) -> None:
    """Strides, byte order and dimensions make no difference to what is committed: the manifest is the same."""
    run = store.run()
    waited = run.commit({"model": LAYOUTS}, step=1)
    pending = run.commit({"model": LAYOUTS}, step=2, wait=False)
    assert pending.result().manifest == waited.manifest


def test_a_tensor_over_many_portions_and_pieces_is_copied_whole(store: cairn.Store) -> None:
    """A tensor that several threads copy, and that is several blobs, is committed whole, small ones beside it."""
    large = np.random.default_rng(0).integers(0, 255, (65 << 20) + 5, dtype="u1")
    model = {"small": np.arange(5), "large": large, "empty": np.zeros((0, 3)), "text": "x" * 70_000, "last": np.ones(3)}
    pending = store.run().commit({"model": model}, wait=False, threads=2)
    expected = large.copy()
    large[:] = 0
    pending.result()
    found = store.run().load()["model"]
    assert np.array_equal(found["large"], expected)
    assert (found["small"].tolist(), found["text"], found["last"].tolist()) == ([0, 1, 2, 3, 4], "x" * 70_000, [1] * 3)


def test_ties_stay_ties(store: cairn.Store) -> None:
    """Two names of one memory are one tensor of the snapshot, too."""
    tied = np.arange(5000.0)
    store.run().commit({"model": {"embed": tied, "head": tied}, "ema": tied}, wait=False).result()
    found = store.run().load()
    assert found["model"]["embed"] is found["model"]["head"] is found["ema"]


def test_a_value_that_cannot_be_kept_is_refused_at_once(store: cairn.Store, disk: GatedDisk) -> None:
    """The caller hears of it where the value is, not in the background, and can commit the right one."""
    run = store.run()
    disk.close_gate()
    with pytest.raises(cairn.UnsupportedValue, match="model/bad"):
        run.commit({"model": {"good": np.ones(3), "bad": object()}}, wait=False)
    disk.open_gate()
    assert run.tip is None
    run.commit(state(1), step=1, wait=False).result()


@pytest.mark.parametrize("wait", [0, None, "no"])
def test_to_wait_is_true_or_false(store: cairn.Store, wait: Any) -> None:
    """UsageError says what was found: the text "no" is no False."""
    with pytest.raises(cairn.UsageError, match="wait: expected True or False, found"):
        store.run().commit(state(1), wait=wait)


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "2"])
@pytest.mark.parametrize("wait", [True, False])
def test_threads_are_a_number_from_1(store: cairn.Store, threads: Any, wait: bool) -> None:
    """What is no number of cores is refused, in words that say what is."""
    with pytest.raises(cairn.UsageError, match="threads: expected an int of at least 1"):
        store.run().commit(state(1), threads=threads, wait=wait)


# What the caller holds.


def test_a_pending_commit_says_what_it_is(store: cairn.Store, disk: GatedDisk) -> None:
    """It has the run and step, tells whether it is done, and gives the same commit each time."""
    disk.close_gate()
    pending: cairn.Pending = store.run().commit(state(7), step=7, wait=False)
    assert not pending.done()
    assert (pending.run, pending.step) == ("main", 7)
    assert repr(pending) == "<commit of step 7 to run 'main', in flight>"
    with pytest.raises(TimeoutError, match=r"commit of step 7 to run 'main': expected to be done within 0 s"):
        pending.result(timeout=0)
    disk.open_gate()
    commit = pending.result()
    assert pending.done()
    assert repr(pending) == "<commit of step 7 to run 'main', done>"
    assert pending.result() == commit == store.run().tip


def test_reading_does_not_wait(store: cairn.Store, disk: GatedDisk) -> None:
    """While a commit is in flight, loading, logging and the tip give what is published."""
    run = store.run()
    first = run.commit(state(1), step=1)
    disk.close_gate()
    pending = run.commit(state(2), step=2, wait=False)
    disk.wait_until_reached()
    check(run.load(), 1)
    check(dict(run.open()), 1)
    assert run.tip == run.base == first
    assert [*run.log()] == [*store.log()] == [first]
    assert not pending.done()
    disk.open_gate()
    second = pending.result()
    check(run.load(), 2)
    assert (run.base, second.parents) == (second, (first.id,))


def test_the_next_commit_waits_for_the_one_in_flight(store: cairn.Store, disk: GatedDisk) -> None:
    """Commits of one handle are published in the order in which they were begun, each on the one before."""
    run = store.run()
    for wait in (False, True):
        disk.close_gate()
        begun = run.tip.step if run.tip and run.tip.step else 0
        pending = run.commit(state(begun + 1), step=begun + 1, wait=False)
        second: list[cairn.Commit | cairn.Pending] = []
        commit_second = threading.Thread(
            target=lambda: second.append(run.commit(state(begun + 2), step=begun + 2, wait=wait))  # noqa: B023
        )
        commit_second.start()
        disk.wait_until_reached()
        assert (run.tip.step if run.tip else 0) == begun
        assert not second
        disk.open_gate()
        commit_second.join(PATIENCE_SECONDS)
        found = second[0].result() if isinstance(second[0], cairn.Pending) else second[0]
        assert found.parents == (pending.result().id,)
    assert [commit.step for commit in run.log()] == [4, 3, 2, 1]


def test_a_step_that_is_there_with_this_state_is_returned(store: cairn.Store) -> None:
    """Committing a step again is nothing new in the background either."""
    run = store.run()
    commit = run.commit(state(1), step=1)
    assert run.commit(state(1), step=1, wait=False).result() == commit


def test_wait_until_finished_waits(store: cairn.Store) -> None:
    """After it the commit in flight is published; without one it returns."""
    run = store.run()
    run.wait_until_finished()
    run.commit(state(1), step=1, wait=False)
    run.wait_until_finished()
    assert run.tip is not None


def test_the_end_of_the_store_waits(tmp_path: Path) -> None:
    """Leaving `with store` finishes the commit in flight, also of a handle that nobody holds any more."""
    with cairn.init(tmp_path / "store") as store:
        store.run().commit(state(3), step=3, wait=False)
        gc.collect()
    with cairn.open(tmp_path / "store") as store:
        check(store.load("step:3"), 3)


def test_a_file_is_read_in_the_background(store: cairn.Store, disk: GatedDisk, tmp_path: Path) -> None:
    """Files are beside the snapshot: read later, and one that is gone by then fails the commit."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text(json.dumps({"layers": 2}))
    run = store.run()
    told: list[int] = []
    both = {"files": cairn.folder(tmp_path / "folder"), **state(1)}
    run.commit(both, step=1, wait=False, advance=told.append).result()
    assert sum(told) == 13
    check(run.load(only={"model", "optimizer"}), 1)
    disk.close_gate()
    pending = run.commit({"files": cairn.folder(tmp_path / "folder")}, step=2, wait=False)
    (tmp_path / "folder" / "config.json").unlink()
    disk.open_gate()
    with pytest.raises(cairn.CairnError, match=r"config\.json"):
        pending.result()


# Failures.


def test_a_failure_is_raised_by_result_each_time(store: cairn.Store, disk: GatedDisk) -> None:
    """And says which commit it was; once it was seen, the handle goes on."""
    run = store.run()
    pending = fail(run, disk)
    for _ in range(2):
        with pytest.raises(cairn.CairnError, match="no space left") as caught:
            pending.result()
    assert "This ended the commit of step 1 to run 'main'" in caught.value.__notes__[0]
    assert len(caught.value.__notes__) == 1
    assert repr(pending).endswith("failed>")
    assert run.tip is None
    run.commit(state(1), step=1)


def folder_of_runs(path: Path) -> Path:
    """A folder with one checkpoint."""
    (path / "runs" / "checkpoint-9").mkdir(parents=True, exist_ok=True)
    (path / "runs" / "checkpoint-9" / "weights.bin").write_bytes(b"weights")
    return path / "runs"


NEXT: dict[str, Callable[[cairn.Run, Path], object]] = {
    "commit": lambda run, path: run.commit(state(2), step=2),
    "commit without waiting": lambda run, path: run.commit(state(2), step=2, wait=False).result(),
    "plan": lambda run, path: run.plan(state(2), step=2),
    "resume": lambda run, path: run.resume(),
    "apply rules": lambda run, path: run.apply_rules(),
    "import": lambda run, path: run.import_folder(folder_of_runs(path)),
    "wait": lambda run, path: run.wait_until_finished(),
}


@pytest.mark.parametrize("name", NEXT)
def test_a_failure_that_nobody_saw_is_raised_once_by_whatever_comes_next(
    name: str, store: cairn.Store, disk: GatedDisk, tmp_path: Path
) -> None:
    """What comes next does nothing then; done again it succeeds, since a failed commit changes no base."""
    run = store.run()
    first = run.commit(state(0), step=0)
    pending = fail(run, disk)
    with pytest.raises(cairn.CairnError, match="no space left"):
        NEXT[name](run, tmp_path)
    assert run.tip == run.base == first
    NEXT[name](run, tmp_path)
    with pytest.raises(cairn.CairnError, match="no space left"):
        pending.result()


def test_the_same_state_can_be_committed_after_a_failure(store: cairn.Store, disk: GatedDisk) -> None:
    """Nothing was published, so the step is free, and in the background as well."""
    run = store.run()
    with pytest.raises(cairn.CairnError, match="no space left"):
        fail(run, disk).result()
    commit = run.commit(state(1), step=1, wait=False).result()
    assert (commit.parents, [*run.log()]) == ((), [commit])
    check(run.load(), 1)
    assert store.verify().ok


def test_a_run_that_moved_fails_the_commit_in_flight(store: cairn.Store, disk: GatedDisk) -> None:
    """What another handle published meanwhile is not built upon."""
    run = store.run()
    disk.close_gate()
    pending = run.commit(state(1), step=1, wait=False)
    other = store.run().commit(state(5), step=5)
    disk.open_gate()
    with pytest.raises(cairn.Conflict, match="the run moved"):
        pending.result()
    assert [*run.log()] == [other]
    run.resume()
    run.commit(state(6), step=6, wait=False).result()


def test_the_end_of_the_store_raises_what_nobody_saw(tmp_path: Path) -> None:
    """Once: closing again, and the end of the process, say nothing more."""
    disk = GatedDisk()
    store = cairn.init(tmp_path / "store", disk=disk)
    fail(store.run(), disk)
    with pytest.raises(cairn.CairnError, match="no space left"):
        store.close()
    store.close()


def test_the_end_of_the_store_replaces_no_other_error(tmp_path: Path) -> None:
    """An error in the body of `with store` comes out as it is, and the failure is still there for `result`."""
    disk = GatedDisk()
    store = cairn.init(tmp_path / "store", disk=disk)
    pending = fail(store.run(), disk)
    with pytest.raises(ValueError, match="a bad batch"), store:
        raise ValueError("a bad batch")
    with pytest.raises(cairn.CairnError, match="no space left"):
        pending.result()


def test_an_interrupt_while_waiting_leaves_the_commit_alone(store: cairn.Store, disk: GatedDisk) -> None:
    """Ctrl-C ends the waiting; the commit goes on and can be waited for again."""
    run = store.run()
    disk.close_gate()
    pending = run.commit(state(1), step=1, wait=False)

    interrupt_the_wait()
    with pytest.raises(KeyboardInterrupt):
        pending.result(PATIENCE_SECONDS)
    assert not pending.done()
    with pytest.raises(TimeoutError):
        pending.result(timeout=0)
    disk.open_gate()
    assert pending.result() == run.tip
    assert store.verify().ok


# Memory and threads.


def test_the_state_is_let_go_when_the_snapshot_is_taken(store: cairn.Store, disk: GatedDisk) -> None:
    """A commit in flight keeps none of the caller's arrays alive."""
    disk.close_gate()
    array = np.ones(5000)
    alive = weakref.ref(array)
    pending = store.run().commit({"model": {"w": array, "t": array[::2]}}, wait=False)
    del array
    gc.collect()
    assert alive() is None
    disk.open_gate()
    pending.result()


def test_a_failed_commit_holds_no_memory(store: cairn.Store, disk: GatedDisk) -> None:
    """Its error may be kept for long; what the commit was made of is not."""
    run = store.run()
    pending = fail(run, disk)
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Sketch)]
    with pytest.raises(cairn.CairnError):
        pending.result()


def test_many_commits_leave_no_thread_and_no_pending_commit_behind(store: cairn.Store) -> None:
    """Each ends with its thread, and is forgotten unless somebody holds it."""
    run = store.run()
    before = threading.active_count()
    alive = []
    for step in range(20):
        alive.append(weakref.ref(run.commit(state(step), step=step, wait=False)))
    run.wait_until_finished()
    gc.collect()
    assert threading.active_count() == before
    assert [pending() for pending in alive[:-1]] == [None] * 19


def test_memory_of_an_interrupted_snapshot_is_nobody_elses(
    store: cairn.Store, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the beginning of a commit and its return: the next one writes over nothing of it."""
    run = store.run()
    run.commit(state(1), step=1, wait=False).result()
    start = threading.Thread.start

    def start_and_be_interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    disk.close_gate()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.commit(state(2), step=2, wait=False)
    next_one = run.commit(state(3), step=3, wait=False)
    disk.open_gate()
    # Both continue from step 1, so one of them finds that the run moved.
    with contextlib.suppress(cairn.Conflict):
        next_one.result()
    with contextlib.suppress(cairn.Conflict):
        store.close()
    steps = [commit.step for commit in run.log()]
    assert steps in ([2, 1], [3, 1])
    check(run.load(), steps[0] or 0)
    assert store.verify().ok


def test_a_commit_is_made_while_the_history_is_being_read(store: cairn.Store, disk: GatedDisk) -> None:
    """Reading that was interrupted halfway through an entry holds up no commit, and goes on to see it."""
    run = store.run()
    for step in (1, 2):
        run.commit(state(step), step=step)
    cairn.open(store.path).drop(["step:1"])
    disk.close_gate()
    pending = run.commit(state(3), step=3, wait=False)

    def commit_meanwhile() -> None:
        disk.open_gate()
        pending.result(PATIENCE_SECONDS)

    disk.before_next_read = commit_meanwhile
    assert [commit.step for commit in run.log()] == [3, 2, 1]
    assert disk.before_next_read is None
    assert run.tip == pending.result()


@pytest.fixture
def _fast_switching() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_fast_switching")
def test_loading_logging_and_verifying_beside_commits(store: cairn.Store) -> None:
    """Whatever the main thread reads while commits are made, it reads whole, and nothing goes back."""
    run = store.run()
    run.commit(state(0), step=0)
    seen = 0
    for step in range(1, 30):
        pending = run.commit(state(step), step=step, wait=False)
        while not pending.done():
            found = run.load()
            assert found["optimizer"]["step"] >= seen
            seen = found["optimizer"]["step"]
            check(found, seen)
            steps = [commit.step for commit in store.log()]
            assert steps == [*range(len(steps))][::-1]
            assert len(steps) > seen
            assert store.verify().ok
    run.wait_until_finished()
    assert [commit.step for commit in run.log()] == [*range(30)][::-1]
    assert not store.verify().findings
