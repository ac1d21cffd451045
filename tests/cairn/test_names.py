"""Runs and tags by name: made, moved, renamed, deleted."""

from __future__ import annotations

import pytest
from tests.cairn import folders
from tests.cairn.describe import describe
from tests.cairn.training import state, steps, train

import cairn


@pytest.mark.parametrize(
    "name",
    ["", ".x", "-x", "a b", "a/b", "ñ", "a\n", "x" * 101, "step", "LATEST", "best", "a\0", "..", "a@1", "a~1", "a:b"],
)
def test_names_that_mean_something_else_are_refused(name: str, store: cairn.Store) -> None:
    """Runs and tags have names that no revision, path or option can be mistaken for; nothing is written."""
    train(store.run(), 1)
    before = folders.listing(store.path)
    for use in (
        lambda: store.run(name).commit(state(2), step=2),
        lambda: store.tag(name, "main"),
        lambda: store.create_run(name, "main"),
        lambda: store.rename_run("main", name),
    ):
        with pytest.raises(cairn.UsageError):
            use()
    assert folders.listing(store.path) == before


def test_names_differ_by_more_than_case(store: cairn.Store) -> None:
    """A name that another differs from only by case, or that a tag or run has, is taken."""
    train(store.run("Exp.1"), 1)
    store.tag("Good", "Exp.1")
    for use in (
        lambda: store.run("exp.1").commit(state(2), step=2),
        lambda: store.create_run("EXP.1", "Exp.1"),
        lambda: store.run("good").commit(state(2), step=2),
        lambda: store.create_run("good", "Exp.1"),
        lambda: store.rename_run("Exp.1", "GOOD"),
        lambda: store.tag("exp.1", "Good"),
        lambda: store.tag("good", "Exp.1"),
    ):
        with pytest.raises(cairn.Conflict, match="choose another name"):
            use()
    store.rename_run("Exp.1", "EXP.1")
    assert store.runs() == ["EXP.1"]
    assert describe(store.load("EXP.1")) == describe(state(1))


def test_tags_move_only_when_told(store: cairn.Store) -> None:
    """A tag stays while its run goes on, is set anew by name, and deleted by name."""
    run = store.run()
    train(run, 1)
    store.tag("good", "latest")
    train(run, 2)
    assert store.commit("good").step == 1
    store.tag("good", "latest")
    assert {name: tag.commit.step for name, tag in store.tags().items()} == {"good": 2}
    store.delete_tag("good")
    assert store.tags() == {}
    with pytest.raises(cairn.NotFound):
        store.commit("good")
    with pytest.raises(cairn.NotFound, match="no tags yet"):
        store.delete_tag("good")
    store.tag("good", "step:1")
    assert store.commit("good").step == 1


def test_a_run_may_start_from_a_commit(store: cairn.Store) -> None:
    """A new run begins with a commit of another, goes its own way, and keeps its start."""
    train(store.run(), 1, 2, 3)
    run = store.create_run("exp", "main@2")
    assert run.tip is not None
    assert run.tip.step == 2
    train(run, 30)
    assert steps(run.log())[:2] == [30, 2]
    assert steps(store.log("main")) == [3, 2, 1]
    assert store.commit("exp~1").id == store.commit("main@2").id
    with pytest.raises(cairn.Conflict, match="run 'exp' exists"):
        store.create_run("exp", "main@1")
    with pytest.raises(cairn.Conflict, match="started from it"):
        store.drop(["main@2"])
    store.delete_run("main")
    store.gc()
    assert describe(store.load("exp@2")) == describe(state(2))


def test_a_renamed_run_is_the_same_under_another_name(store: cairn.Store) -> None:
    """Commits, attempts and drops go along; the old name says where it went, and becomes free."""
    run = store.run()
    commits = train(run, 1, 2, 3)
    run.resume(step=2)
    train(run, 33)
    store.drop(["main@1"])
    store.rename_run("main", "first")
    assert store.runs() == ["first"]
    renamed = store.run("first")
    assert [commit.id for commit in renamed.log()][1:] == [commits[1].id, commits[0].id]
    assert store.commit("first/attempt-1").id == commits[2].id
    assert store.commit("first@1").is_dropped
    assert {commit.run for commit in renamed.log()} == {"first"}
    with pytest.raises(cairn.NotFound, match="renamed to 'first'"):
        store.load("main@2")
    with pytest.raises(cairn.Conflict):
        run.commit(state(7), step=7)
    train(renamed, 34)
    train(store.run("main"), 5)
    assert steps(store.log("main")) == [5]
    with pytest.raises(cairn.Conflict, match="run 'main' exists"):
        store.rename_run("first", "main")
    with pytest.raises(cairn.NotFound, match="run 'nobody'"):
        store.rename_run("nobody", "x")
    with cairn.open(store.path) as again:
        assert steps(again.log("first")) == [34, 33, 2, 1]
        assert again.verify().ok


def test_names_may_go_round(store: cairn.Store) -> None:
    """Renaming away and back, and through a chain of names, keeps the history."""
    train(store.run("a"), 1, 2)
    for old, new in ("ab", "ba", "ab", "bc", "ca"):
        store.rename_run(old, new)
    train(store.run("a"), 3)
    with cairn.open(store.path) as again:
        assert again.runs() == ["a"]
        assert steps(again.log()) == [3, 2, 1]
        assert again.verify().ok
        again.gc()
        assert describe(again.load("a@1")) == describe(state(1))


def test_a_deleted_run_is_gone_and_its_name_free(store: cairn.Store) -> None:
    """Its content goes with the next gc, except what a tag needs; a new run of the name starts anew."""
    run = store.run()
    train(run, 1, 2)
    store.tag("kept", "step:1")
    store.delete_run("main")
    assert store.runs() == []
    with pytest.raises(cairn.NotFound):
        store.commit("main")
    with pytest.raises(cairn.NotFound):
        store.delete_run("main")
    store.gc()
    assert describe(store.load("kept")) == describe(state(1))
    assert store.commit(store.commit("kept").id[:10]) == store.commit("kept")
    (again,) = train(store.run(), 9)
    assert again.parents == ()
    assert steps(store.log()) == [9]
    assert store.verify().ok
