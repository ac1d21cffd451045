"""What is dropped, what is always kept, and what it all weighs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe
from tests.cairn.training import state, steps, train

import cairn


def test_dropped_content_is_gone_and_its_commit_stays(store: cairn.Store) -> None:
    """A dropped commit is in the history and cannot be loaded; until gc came it can be taken back."""
    run = store.run()
    train(run, 1, 2, 3)
    (dropped,) = store.drop(["step:1"])
    assert dropped.is_dropped
    assert steps(store.log()) == [3, 2, 1]
    for read in (store.load, store.open, store.ls):
        with pytest.raises(cairn.Dropped, match="was dropped"):
            read("step:1")
    assert store.verify().ok
    store.undrop(["step:1"])
    assert describe(store.load("step:1")) == describe(state(1))
    store.drop(["step:1", "step:2"])
    assert len(store.gc().deleted) == 1
    assert store.verify().ok
    with pytest.raises(cairn.Dropped, match="some of its bytes are gone"):
        store.undrop(["step:2"])
    assert store.commit("step:2").is_dropped
    assert run.commit(state(2), step=4).manifest == store.commit("step:2").manifest
    # The first step shares its pack with what is needed, so its bytes are still there.
    store.undrop(["step:1"])
    assert describe(store.load("step:1")) == describe(state(1))


def test_the_newest_commit_cannot_be_emptied_part_by_part(store: cairn.Store) -> None:
    """Some of it may go; with the last of its components the whole would."""
    train(store.run(), 1, 2)
    names = [item.path for item in store.ls("latest")]
    with pytest.raises(cairn.Conflict, match="newest of run main"):
        store.drop(["latest"], only=names)
    store.drop(["latest"], only=names[1:])
    with pytest.raises(cairn.Conflict, match="newest of run main"):
        store.drop(["latest"], only=names[:1])
    store.drop(["step:1"], only=names)
    assert list(store.run().load(only=names[:1])) == names[:1]


def test_undrop_returns_what_is_kept_again(store: cairn.Store) -> None:
    """As it is now; nothing for what was not dropped."""
    train(store.run(), 1, 2, 3)
    store.drop(["step:1", "step:2"])
    assert [(commit.step, commit.dropped) for commit in store.undrop(["step:1", "step:3"])] == [(1, ())]
    assert store.undrop(["step:1"]) == []


def test_a_component_is_dropped_alone(store: cairn.Store) -> None:
    """The rest of the commit loads with only=; asking for all says what is gone."""
    train(store.run(), 1, 2)
    before = store.du().stored
    (dropped,) = store.drop(["step:1"], only={"optimizer"})
    assert dropped.dropped == ("optimizer",)
    with pytest.raises(cairn.Dropped, match="optimizer was dropped; name what you want of the rest"):
        store.load("step:1")
    kept = store.load("step:1", only={"model", "frozen"})
    assert describe(kept) == describe({name: state(1)[name] for name in ("model", "frozen")})
    assert [item.path for item in store.ls("step:1")] == ["model", "frozen"]
    store.gc()
    assert store.verify().ok
    assert store.du().stored <= before
    lazy = store.open("step:1")
    assert lazy["model"][0] == 1


def test_what_is_always_kept_is_not_dropped(store: cairn.Store) -> None:
    """Tips, tagged commits and starts of runs are refused with the reason, and nothing of the call is recorded."""
    train(store.run(), 1, 2, 3)
    store.tag("good", "step:2")
    before = folders.files(store.path)
    for revision, reason in (("step:3", "newest of run main"), ("step:2", "tag good")):
        with pytest.raises(cairn.Conflict, match=reason):
            store.drop(["step:1", revision])
    assert folders.files(store.path) == before
    store.delete_tag("good")
    assert steps(store.drop(["step:2"])) == [2]


def test_keep_last_drops_all_but_the_last(store: cairn.Store) -> None:
    """gc with a rule records what it drops, keeps the last commits of each run, and says why each is kept."""
    train(store.run(), *range(1, 7))
    train(store.run("other"), 50)
    store.tag("good", "main@2")
    plan = store.gc(keep_last=2, dry_run=True)
    assert plan.retention is not None
    assert steps(plan.retention.dropped) == [4, 3, 1]
    before = folders.files(store.path)
    assert folders.files(store.path) == before
    done = store.gc(keep_last=2)
    assert len(done.deleted) == len(plan.dead) == 2
    assert done.freed_bytes == plan.dead_bytes
    kept = {kept.commit.step: kept.reasons for kept in done.retention.kept} if done.retention else {}
    assert kept == {
        6: ("last 2", "newest of run main"),
        5: ("last 2",),
        2: ("tag good",),
        50: ("last 2", "newest of run other"),
    }
    assert [commit.step for commit in store.log("main") if not commit.is_dropped] == [6, 5, 2]
    assert store.verify().ok
    assert store.gc(keep_last=2).deleted == ()
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(cairn.UsageError, match="keep_last"):
            store.gc(keep_last=wrong)  # type: ignore[arg-type] # a wrong type on purpose


def test_keep_last_of_one_run_leaves_the_others(store: cairn.Store) -> None:
    """A rule may be for one run; without a rule a run makes no sense."""
    train(store.run("one"), 1, 2, 3)
    train(store.run("two"), 4, 5, 6)
    store.gc(keep_last=1, run="one")
    assert [commit.step for name in store.runs() for commit in store.log(name) if not commit.is_dropped] == [3, 6, 5, 4]
    with pytest.raises(cairn.UsageError, match="keep_last"):
        store.gc(run="one")


def test_du_says_what_commits_weigh(store: cairn.Store) -> None:
    """Raw, own and shared bytes to the byte, what the store holds, and what dropping a commit frees."""
    run = store.run()
    trees = {}
    for step in (1, 2):
        before = folders.packs(store.path)
        train(run, step)
        (pack,) = set(folders.packs(store.path)) - set(before)
        metadata, places, _ = folders.head(pack)
        sizes = [size for _, size in places.values()]
        trees[step] = (sum(sizes[-int(metadata["trees"]) :]), sum(sizes), pack.stat().st_size)
    usage = store.du()
    second, first = usage.commits
    shared = 50 * 8 + folders_tree(store, "frozen")
    assert (first.commit.step, second.commit.step) == (1, 2)
    assert (first.raw, first.own, first.shared) == (trees[1][1], trees[1][1] - shared, shared)
    assert (second.raw, second.own, second.shared) == (trees[2][1] + shared, trees[2][1], shared)
    assert usage.raw == first.raw + second.raw
    assert usage.needed == trees[1][1] + trees[2][1]
    assert usage.stored == trees[1][2] + trees[2][2]
    # The first pack holds what both need; the second only what the second needs.
    assert (first.freed_now, first.freed_compacted) == (0, first.own)
    assert (second.freed_now, second.freed_compacted) == (trees[2][2], second.own)
    (one,) = store.du(["step:1"]).commits
    assert one == first


def test_du_says_what_components_weigh(store: cairn.Store) -> None:
    """By name, of the commits asked for: their bytes, and those that no other component and no other commit needs."""
    run = store.run()
    same, other = np.arange(100), np.arange(100, 200)
    run.commit({"model": {"w": same}, "ema": {"w": same, "v": other}}, step=1)
    run.commit({"model": {"w": same}}, step=2)
    whole = store.du()
    assert sum(part.raw for part in whole.components) == whole.raw + same.nbytes
    parts = {part.name: part for part in store.du(["step:1"]).components}
    trees = {name: folders_tree(store, name, "step:1") for name in ("model", "ema")}
    assert (parts["model"].raw, parts["model"].own) == (same.nbytes + trees["model"], 0)
    assert parts["ema"].raw == same.nbytes + other.nbytes + trees["ema"]
    assert parts["ema"].own == other.nbytes + trees["ema"]
    assert store.du(["step:1"]).raw == whole.commits[1].raw


def folders_tree(store: cairn.Store, component: str, revision: str = "latest") -> int:
    """Return the size of a component's tree."""
    from cairn.state.walk import read_manifest

    components = read_manifest(store.commit(revision).root, store._core.tree).components
    return components[component].size


def test_what_nothing_keeps_is_not_taken_for_damage(store: cairn.Store, tmp_path: Path) -> None:
    """Once gc took a dropped commit, or those of a deleted run, every command says that it is no longer kept."""
    train(store.run(), 1, 2)
    (lost,) = train(store.run("other"), 7)
    store.drop(["main@1"])
    store.delete_run("other")
    store.gc(compact=True, threshold=0.01)
    for revision in ("main@1", lost.id):
        for read in (
            lambda revision: store.ls(revision),
            lambda revision: store.cat(revision, "model/0"),
            lambda revision: store.checkout(revision, tmp_path / "out"),
            lambda revision: store.load(revision),
            lambda revision: store.diff(revision, "main"),
            lambda revision: store.verify([revision]),
            lambda revision: store.verify([revision], level="quick"),
        ):
            with pytest.raises(cairn.Dropped, match="was dropped: its content is no longer kept"):
                read(revision)


def test_a_dropped_component_is_not_taken_for_damage(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once gc took a dropped component, every way to it says that it was dropped."""
    monkeypatch.setattr("cairn.objects.gather.OWN_PACK_BYTES", 1)
    train(store.run(), 1, 2)
    store.drop(["step:1"], only={"optimizer"})
    assert len(store.gc().deleted) == 1
    lazy = store.open("step:1")
    assert lazy["model"][0] == 1
    for read in (
        lambda: lazy["optimizer"],
        lambda: store.load("step:1", only={"optimizer"}),
        lambda: store.cat("step:1", "optimizer/0"),
        lambda: store.ls("step:1", "optimizer"),
    ):
        with pytest.raises(cairn.NotFound, match=r"dropped|no component"):
            read()
    assert "optimizer" not in lazy
    assert store.verify().ok
