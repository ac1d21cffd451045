"""Attempts: what training left behind when it went back stays whole until somebody gives it up."""

from __future__ import annotations

import pytest
from tests.cairn.describe import describe
from tests.cairn.training import state, steps, train

import cairn


@pytest.fixture
def run(store: cairn.Store) -> cairn.Run:
    """A run that went back twice from step 5: attempts 1 and 2 share steps 3 and 4, and each has steps of its own."""
    run = store.run()
    train(run, 1, 2, 3, 4, 5)
    run.resume(step=4)
    train(run, 6, 7)
    run.resume(step=2)
    train(run, 30, 40)
    return run


def test_an_attempt_is_what_is_only_on_it(store: cairn.Store, run: cairn.Run) -> None:
    """What two attempts share goes with the last of them that is given up; what the line has belongs to none."""
    first, second = store.attempts()
    assert (first.name, steps(first.commits), steps(first.shared)) == ("main/attempt-1", [5], [4, 3])
    assert (second.name, steps(second.commits), steps(second.shared)) == ("main/attempt-2", [7, 6], [4, 3])
    store.drop_attempt("main/attempt-1")
    assert [steps(each.commits) for each in store.attempts()] == [[], [7, 6, 4, 3]]
    assert steps(store.drop_attempt("main/attempt-2")) == [7, 6, 4, 3]
    assert store.drop_attempt("main/attempt-2") == []
    assert steps(store.log()) == [40, 30, 2, 1]
    assert not any(commit.dropped for commit in store.log())
    store.gc()
    assert store.verify().ok


def test_what_two_attempts_share_stays_for_the_other(store: cairn.Store, run: cairn.Run) -> None:
    """Giving up one attempt leaves the way to the other; so does dropping its end alone."""
    assert steps(store.drop_attempt("main/attempt-2")) == [7, 6]
    store.gc()
    assert describe(store.load("main/attempt-1~1")) == describe(state(4))
    store.drop(["main/attempt-1"])
    assert [steps(each.commits) for each in store.attempts()] == [[4, 3], [4, 3]]
    assert steps(store.drop_attempt("main/attempt-2")) == [4, 3]


def test_tags_and_runs_keep_their_commit_of_an_attempt(store: cairn.Store, run: cairn.Run) -> None:
    """The rest of the attempt goes, by name and with gc."""
    store.tag("good", "main/attempt-2~1")
    store.create_run("side", "main/attempt-1")
    assert steps(store.drop_attempt("main/attempt-2")) == [7]
    plan = store.gc(drop_attempts=True)
    assert plan.retention is not None
    assert steps(plan.retention.dropped) == [4, 3]
    assert {(kept.commit.step, kept.reasons[-1]) for kept in plan.retention.kept if kept.commit.step in (5, 6)} == {
        (5, "run side started from it"),
        (6, "tag good"),
    }
    for revision, step in (("good", 6), ("side", 5)):
        assert describe(store.load(revision)) == describe(state(step))


def test_rules_leave_attempts_alone(store: cairn.Store, run: cairn.Run) -> None:
    """BACK-01: after a crash the steps come again; both ways stay addressable, and rules look only at the new one."""
    found = store.gc(keep=["last:1", "optimizer:1"]).retention
    assert found is not None
    assert [each.name for each in found.attempts] == ["main/attempt-1", "main/attempt-2"]
    assert steps(found.dropped) == [30, 2, 1]
    for revision, step in (("main/attempt-1", 5), ("main/attempt-2", 7), ("main/attempt-2~2", 4)):
        assert describe(store.load(revision)) == describe(state(step))
    found = store.gc(drop_attempts=True, run="main").retention
    assert found is not None
    assert sorted(commit.step or 0 for commit in found.dropped) == [3, 4, 5, 6, 7]
    assert steps(commit for commit in store.log() if not commit.is_dropped) == [40]
    assert store.verify().ok


def test_steps_that_come_again_after_a_crash_lose_nothing(store: cairn.Store) -> None:
    """BACK-01: the step that both ways have is addressable on each; the old way is the newest until a commit comes."""
    run = store.run("r")
    train(run, 100, 200, 210)
    again = store.run("r")
    assert describe(again.resume(step=200)) == describe(state(200))
    assert again.base is not None
    assert (again.base.step, store.commit("r").step) == (200, 210)
    again.commit(state(-205), step=205)
    assert (store.commit("latest").step, store.commit("r/attempt-1").step) == (205, 210)
    again.commit(state(-210), step=210)
    again.commit(state(-220), step=220)
    with pytest.raises(cairn.Conflict, match="moved"):
        run.commit(state(230), step=230)  # What crashed was not dead after all: it cannot go on beside the new way.
    assert steps(store.log("r")) == [220, 210, 205, 200, 100]
    assert steps(store.log("r", revision="r/attempt-1")) == [210, 200, 100]
    for revision, value in (("latest", -220), ("r@210", -210), ("step:210", -210), ("r/attempt-1@210", 210)):
        assert describe(store.load(revision)) == describe(state(value)), revision
    assert [move.op for move in store.run("r").reflog()] == ["commit"] * 6
    assert store.verify().findings == ()


def test_an_attempt_that_is_none_is_not_found(store: cairn.Store, run: cairn.Run) -> None:
    """With the names there are; what names no attempt is a wrong use."""
    with pytest.raises(cairn.NotFound, match="expected one of main/attempt-1, main/attempt-2"):
        store.drop_attempt("main/attempt-3")
    with pytest.raises(cairn.UsageError, match="RUN/attempt-N"):
        store.drop_attempt("main")
    train(store.run("straight"), 1)
    with pytest.raises(cairn.NotFound, match="training never went back"):
        store.drop_attempt("straight/attempt-1")


def test_a_dropped_attempt_is_kept_again_as_a_whole(store: cairn.Store) -> None:
    """While the bytes are there, parts that were dropped included; afterwards it says that they are gone."""
    run = store.run()
    train(run, 1, 2, 3, 4)
    run.resume(step=1)
    train(run, 20)
    store.drop(["main/attempt-1"], only={"model"})
    assert [commit.step for commit in store.drop_attempt("main/attempt-1")] == [4, 3, 2]
    assert [commit.step for commit in store.undrop_attempt("main/attempt-1")] == [4, 3, 2]
    assert [commit.dropped for commit in store.log(revision="main/attempt-1")] == [()] * 4
    assert store.undrop_attempt("main/attempt-1") == []
    store.drop_attempt("main/attempt-1")
    plan = store.gc(drop_attempts=True)
    assert plan.dead
    with pytest.raises(cairn.Dropped, match="cannot be kept again"):
        store.undrop_attempt("main/attempt-1")
    with pytest.raises(cairn.NotFound, match="expected one of main/attempt-1"):
        store.undrop_attempt("main/attempt-2")
