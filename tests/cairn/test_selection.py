"""Commits that rules drop are named by columns, and read only when somebody looks at them."""

from __future__ import annotations

import copy
import math

import pytest
from tests.cairn.training import state, steps, train

import cairn
from cairn.cli.jsonout import plain
from cairn.history.commits import Commits
from cairn.history.selection import Selection


@pytest.fixture
def dropped(store: cairn.Store) -> Selection:
    """What goes of two runs: steps 5 to 1 of one, and step 1 of the other; the index has some of them."""
    train(store.run("a"), 1, 2, 3)
    store.drop(["a@2"], only=["optimizer"])
    store.reindex()
    train(store.run("a"), 4, 5, 6)
    train(store.run("b"), 1, 2)
    with cairn.open(store.path) as again:
        return again.plan_retention(keep_last=1).dropped


def test_it_is_a_sequence_of_commits(dropped: Selection, store: cairn.Store) -> None:
    """It counts, indexes, slices and iterates as the tuple of its commits does, and is a tuple once it is copied."""
    commits = tuple(dropped)
    assert [(commit.run, commit.step) for commit in commits] == [*(("a", step) for step in (5, 4, 3, 2, 1)), ("b", 1)]
    assert [commit.dropped for commit in commits] == [(), (), (), ("optimizer",), (), ()]
    assert len(dropped) == 6
    assert [dropped[at] for at in range(-6, 6)] == [commits[at] for at in range(-6, 6)]
    for part in (slice(2), slice(1, 5), slice(None, None, -2), slice(9, 12)):
        assert isinstance(dropped[part], Selection)
        assert tuple(dropped[part]) == commits[part]
    assert tuple(reversed(dropped)) == commits[::-1]
    assert commits[3] in dropped
    assert store.commit("a") not in dropped
    with pytest.raises(IndexError):
        dropped[6]
    assert plain(dropped) == plain(commits)
    assert copy.deepcopy(dropped) == commits


def test_two_are_equal_when_they_name_the_same_commits(dropped: Selection, store: cairn.Store) -> None:
    """Whoever read them; the order counts."""
    again = store.plan_retention(keep_last=1).dropped
    assert again == dropped
    assert hash(again) == hash(dropped)
    assert again[1:] != dropped[:-1]
    assert dropped[::-1] != dropped
    assert Selection() == dropped[6:]


def test_what_is_known_of_it_is_not_read(dropped: Selection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, runs, steps, times, metrics and what was dropped stand in the columns, as the commits have them."""
    commits = list(dropped)
    with monkeypatch.context() as patch:
        patch.setattr(Commits, "values_at", None)
        known = [(one.id, one.run, one.step, one.dropped, str(one)) for one in dropped.briefs]
        assert "6 commits" in repr(dropped)
        numbers = [dict(one.metrics) for one in dropped.briefs]
        assert not any("absent" in one.metrics for one in dropped.briefs)
    assert known == [(one.id, one.run, one.step, one.dropped, str(one)) for one in commits]
    assert numbers == [one.metrics for one in commits]


def test_commits_stay_as_they_were_when_they_were_selected(store: cairn.Store) -> None:
    """What gc reports was not dropped before gc dropped it."""
    train(store.run(), 1, 2, 3)
    found = store.gc(keep_last=1).retention
    assert found is not None
    assert [commit.dropped for commit in found.dropped] == [(), ()]
    assert [commit.dropped for commit in store.log()] == [(), ("*",), ("*",)]


def test_a_commit_without_step_or_metrics_is_judged(store: cairn.Store) -> None:
    """No step is a multiple, and no value is best, as NaN is not."""
    run = store.run()
    for at, loss in enumerate([math.nan, None, 0.5, None]):
        run.commit(state(at), metrics={} if loss is None else {"loss": loss})
    found = store.plan_retention(keep=["best:loss:min", "every:1"])
    assert [kept.reasons for kept in found.kept] == [("newest of run main",), ("best 1 by loss, min",)]
    assert steps(found.dropped) == [None, None]


def test_commits_read_one_after_another_share_their_provenance(store: cairn.Store) -> None:
    """They nearly always have the same, and it is most of what they weigh."""
    train(store.run(), 1, 2, 3)
    with cairn.open(store.path) as again:
        assert len({id(commit.provenance) for commit in again.log()}) == 1
        assert [commit.provenance for commit in again.log()] == [commit.provenance for commit in store.log()]
