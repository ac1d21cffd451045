"""Stored rules: what every gc and every training loop keeps, until it is told otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe
from tests.cairn.training import state, steps, train

import cairn
from cairn.history.journal import Journal
from cairn.history.settings import StoredRule
from cairn.io.disk import Disk
from cairn.store import reach, retention
from cairn.store.core import Core


def kept(store: cairn.Store, run: str = "main") -> list[int | None]:
    """The steps of a run's line whose content is kept."""
    return [commit.step for commit in store.log(run) if not commit.is_dropped]


def test_rules_are_kept_listed_and_taken_back(store: cairn.Store) -> None:
    """They survive the process, for all runs or one; each change is an entry, and a change that is none writes none."""
    train(store.run(), 1)
    assert store.rules() == ()
    assert store.keep(["last:3", "best:loss"]) == (StoredRule("last:3"), StoredRule("best:loss:min:1"))
    store.keep(["optimizer:2"], run="main")
    with cairn.open(store.path) as again:
        assert list(map(str, again.rules())) == ["last:3", "best:loss:min:1", "optimizer:2 for run main"]
        before = folders.files(store.path)
        again.keep(["last:3"])
        again.remove_rules([])
        assert folders.files(store.path).keys() == before.keys()
        assert list(map(str, again.remove_rules(["last:3"]))) == ["best:loss:min:1", "optimizer:2 for run main"]
        assert list(map(str, again.remove_rules(run="main"))) == ["best:loss:min:1"]
        again.keep(["last:1"], run="main")
        assert again.remove_rules() == ()
    assert store.rules() == ()
    assert len(list((store.path / "settings").iterdir())) == 6
    assert store.verify().ok


def test_a_rule_takes_the_place_of_one_about_the_same(store: cairn.Store) -> None:
    """last, within, the best by one metric, and a part have one number; several multiples of steps add up."""
    store.keep(["last:3", "within:1d", "best:loss:2", "best:loss:max", "optimizer:2", "every:100"])
    rules = store.keep(["last:5", "within:1w", "best:loss", "optimizer:4", "every:250"])
    assert [each.rule for each in rules] == [
        "last:5",
        "within:1w",
        "best:loss:min:1",
        "best:loss:max:1",
        "optimizer:4",
        "every:100",
        "every:250",
    ]


def test_rules_that_mean_nothing_are_refused(store: cairn.Store) -> None:
    """Wrong rules, a run that is not there, a str for a list: nothing is stored."""
    with pytest.raises(cairn.UsageError, match="at least 1"):
        store.keep(["every:10", "last:0"])
    with pytest.raises(cairn.UsageError, match="write"):
        store.keep("last:3")
    with pytest.raises(cairn.NotFound, match="no runs yet"):
        store.keep(["last:3"], run="mian")
    with pytest.raises(cairn.NotFound, match="no rules yet"):
        store.remove_rules(["last:3"])
    assert not (store.path / "settings").exists()


def test_gc_applies_stored_rules_and_those_given_together(store: cairn.Store) -> None:
    """A commit goes only if none of them keeps it; without the stored ones, the given decide alone."""
    train(store.run(), *range(1, 11))
    store.keep(["last:4"])
    plan = store.gc(keep=["every:5"], keep_last=1, dry_run=True)
    assert plan.retention is not None
    assert steps(plan.retention.dropped) == [6, 4, 3, 2, 1]
    assert {each.commit.step: each.reasons for each in plan.retention.kept} == {
        10: ("last 4", "every 5", "last 1", "newest of run main"),
        9: ("last 4",),
        8: ("last 4",),
        7: ("last 4",),
        5: ("every 5",),
    }
    assert kept(store) == list(range(10, 0, -1))
    store.gc()
    assert kept(store) == [10, 9, 8, 7]
    store.gc(keep=["every:4"], stored_rules=False)
    assert kept(store) == [10, 8]
    assert store.gc(stored_rules=False).retention is None
    assert store.verify().ok


def test_without_a_rule_for_whole_commits_none_is_dropped(store: cairn.Store) -> None:
    """A rule about a part takes that part, from commits of its run that have it, and nothing else."""
    run = store.run()
    train(run, 1, 2, 3, 4)
    run.commit({"model": [1]}, step=5)
    train(store.run("other"), 1, 2, 3)
    store.tag("good", "main@2")
    store.keep(["optimizer:2"], run="main")
    found = store.run().apply_rules()
    assert [(each.commit.step, each.parts, each.reasons) for each in found.reduced] == [
        (3, ("optimizer",), ("optimizer only in the newest 2",)),
        (1, ("optimizer",), ("optimizer only in the newest 2",)),
    ]
    assert {commit.step: commit.dropped for commit in store.log("main") if commit.dropped} == {
        3: ("optimizer",),
        1: ("optimizer",),
    }
    assert kept(store) == [5, 4, 3, 2, 1]
    assert not any(commit.dropped for commit in store.log("other"))
    assert describe(store.load("main@2")) == describe(state(2))
    store.gc()
    assert store.verify().ok


def test_applying_rules_again_writes_nothing(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each commit one call: what is new to be dropped is one entry; else there is no entry and no lease."""
    run = store.run()
    store.keep(["last:2", "optimizer:1", "absent:1", "frozen:*.pt:1"])
    train(run, 1, 2)
    run.apply_rules()
    before = folders.files(store.path)
    with monkeypatch.context() as patch:
        patch.setattr("cairn.io.disk.Disk.create", None)  # Not even a lease is made.
        assert run.apply_rules(gc=True).drops_nothing
    assert folders.files(store.path) == before
    train(run, 3)
    assert steps(run.apply_rules().dropped) == [1]
    moves = [(move.op, move.text) for move in run.reflog()]
    assert moves[:3] == [
        ("drop", "optimizer of step 2: optimizer only in the newest 1"),
        ("drop", "step 1: no rule keeps it"),
        ("commit", ""),
    ]


def test_a_training_loop_frees_what_its_rules_drop(store: cairn.Store) -> None:
    """With gc=True the packs go at once, so a long run needs the space of what it keeps."""
    run = store.run()
    store.keep(["last:2"])
    packs = []
    for step in range(1, 9):
        train(run, step)
        run.apply_rules(gc=True)
        packs.append(len(folders.packs(store.path)))
    assert packs == [1, 2, 3, 3, 3, 3, 3, 3]  # The first pack holds what all steps share.
    assert kept(store) == [8, 7]
    assert store.verify().ok


def test_the_newest_and_the_best_survive_every_application(store: cairn.Store) -> None:
    """RET-01: last 3 and best, applied after each commit; steps are numbers, and the step just committed stays."""
    for name, count, expected in (("three", 3, [100, 11, 10, 2]), ("one", 1, [100, 2])):
        run = store.run(name)
        run_rules = [f"last:{count}", "best:loss:min"]
        for step, loss in zip((1, 2, 3, 9, 10, 11, 100), (0.9, 0.1, 0.8, 0.7, 0.6, 0.5, 0.4), strict=True):
            commit = run.commit(state(step), step=step, metrics={"loss": loss})
            store.keep(run_rules, run=name)
            run.apply_rules(gc=True)
            assert kept(store, name)[0] == step
            assert describe(run.load()) == describe(state(commit.step or 0))
        assert kept(store, name) == expected
    for step in (100, 11, 10, 2):
        assert describe(store.load(f"three@{step}")) == describe(state(step))
    assert store.verify().ok


def test_a_metric_that_is_nan_blocks_no_other(store: cairn.Store) -> None:
    """NANM-01: of nan, .5, nan, .4, inf, -inf, none and .3 the best two are -inf and .3, and the last is kept."""
    run = store.run()
    store.keep(["best:loss:min:2"])
    for step, loss in enumerate([math.nan, 0.5, math.nan, 0.4, math.inf, -math.inf, None, 0.3, 0.9], 1):
        run.commit(state(step), step=step, metrics={} if loss is None else {"loss": loss})
        run.apply_rules()
    assert kept(store) == [9, 8, 6]


def test_rules_count_each_run_by_itself(store: cairn.Store) -> None:
    """TWORUN-01: the low steps of a second run are not older than the high ones of the first."""
    store.keep(["last:3"])
    for name, numbers in (("a", (500, 600, 700)), ("b", (100, 200))):
        for step in numbers:
            train(store.run(name), step)
            store.run(name).apply_rules(gc=True)
    assert (kept(store, "a"), kept(store, "b")) == ([700, 600, 500], [200, 100])
    assert (store.commit("a").step, store.commit("b").step) == (700, 200)
    with pytest.raises(cairn.NotFound, match="several runs"):
        store.commit("latest")


def test_only_what_the_other_run_does_not_need_goes(store: cairn.Store) -> None:
    """GCSHARE-01: a run is deleted, and a component dropped; those whose names begin like theirs stay whole."""

    def weights(value: int) -> dict[str, object]:
        return {"ema": np.full(100, value), "ema2": np.full(100, -value)}

    store.run("r").commit(weights(1), step=0)
    packs = folders.packs(store.path)
    for name, step, value in (("r", 1, 2), ("r2", 0, 2), ("r2", 1, 3)):
        store.run(name).commit(weights(value), step=step)
    store.delete_run("r")
    store.drop(["r2@0"], only=["ema"])
    plan = store.gc(dry_run=True)
    assert [(dead.id, dead.bytes) for dead in plan.dead] == [(path.stem, path.stat().st_size) for path in packs]
    assert store.gc().freed_bytes == plan.dead_bytes
    assert describe(store.load("r2@0", only={"ema2"})) == describe({"ema2": weights(2)["ema2"]})
    assert describe(store.load("r2@1")) == describe(weights(3))
    assert store.verify().ok


def test_a_tagged_step_stays_whole(store: cairn.Store) -> None:
    """PRUNE-01: no rule takes anything of a commit that a tag names, not even a part."""
    train(store.run(), 1, 2, 3)
    store.tag("keep", "step:1")
    store.keep(["last:1", "optimizer:1"])
    store.gc()
    assert kept(store) == [3, 1]
    assert describe(store.load("keep")) == describe(state(1))


def test_a_commit_that_failed_costs_no_other(tmp_path: Path) -> None:
    """STALEP-01: rules drop nothing for a step that is not durable, and the same step can be committed again."""

    class Full(Disk):
        broken = False

        def link(self, source: Path, target: Path) -> None:
            if self.broken and "runs" in target.parts:
                raise OSError(28, "No space left on device", str(target))
            super().link(source, target)

    disk = Full()
    with cairn.init(tmp_path / "store", disk=disk) as store:
        run = store.run()
        store.keep(["last:1"])
        train(run, 1)
        disk.broken = True
        with pytest.raises(cairn.CairnError, match="nothing of it was published"):
            train(run, 2)
        disk.broken = False
        assert run.apply_rules(gc=True).drops_nothing
        assert store.commit("latest").step == 1
        assert describe(run.load()) == describe(state(1))
        train(run, 2)
        run.apply_rules(gc=True)
        assert kept(store) == [2]


def test_the_newest_is_the_last_committed_whatever_its_number(store: cairn.Store) -> None:
    """LATEST-01: `latest` and rules go by the order of commits, where lower steps may come later; none by text."""
    run = store.run()
    train(run, 99, 1000000, 9, 10000, 100, 9000, 10, 900000)
    store.tag("handpicked", "step:9")
    assert store.commit("latest").step == 900000
    assert [store.commit(f"step:{step}").step for step in (9, 10, 99, 100)] == [9, 10, 99, 100]
    store.keep(["last:2", "every:10000"])
    run.apply_rules()
    assert kept(store) == [900000, 10, 10000, 9, 1000000]


def test_a_rule_goes_with_its_run(store: cairn.Store) -> None:
    """When a run is renamed, what was kept of it is kept."""
    train(store.run("old"), 1, 2, 3, 4)
    store.keep(["last:1"])
    store.keep(["every:2"], run="old")
    store.rename_run("old", "new")
    store.gc()
    assert kept(store, "new") == [4, 2]


def test_a_rule_stays_with_its_run_when_the_old_name_is_used_again(store: cairn.Store) -> None:
    """The new run of the old name has no rules of its own, and takes none from the one that kept by them."""
    train(store.run("old"), 1, 2, 3, 4)
    store.keep(["last:1"])
    store.keep(["every:2"], run="old")
    store.rename_run("old", "new")
    train(store.run("old"), 6, 7, 8, 9)
    store.gc()
    assert (kept(store, "new"), kept(store, "old")) == ([4, 2], [9])
    assert store.keep(["every:4"], run="new")[1:] == (StoredRule("every:2", "new"), StoredRule("every:4", "new"))
    store.rename_run("new", "newer")
    assert [each.run for each in store.remove_rules(["every:2"], run="newer")] == [None, "newer"]


def test_a_run_is_renamed_while_the_rules_cannot_be_read(store: cairn.Store) -> None:
    """Renaming needs no rules; they go with the run all the same."""
    train(store.run("old"), 1, 2, 3, 4)
    store.keep(["every:2"], run="old")
    (entry,) = (store.path / "settings").iterdir()
    moved = entry.rename(entry.with_suffix(".moved"))
    (store.path / "settings" / "00000001.json").write_text("nothing")
    with cairn.open(store.path) as again:
        again.rename_run("old", "new")
    moved.rename(entry)
    with cairn.open(store.path) as again:
        again.gc()
        assert kept(again, "new") == [4, 2]


def test_a_run_keeps_what_was_made_before_its_newest_commit(tmp_path: Path) -> None:
    """A duration is counted back from the run's newest commit: one that ended long ago loses nothing more."""

    class Clock(Disk):
        days = 0

        def now(self) -> datetime:
            return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=self.days)

    disk = Clock()
    with cairn.init(tmp_path / "store", disk=disk) as store:
        run = store.run()
        store.keep(["within:3d"])
        for disk.days in range(1, 8):
            train(run, disk.days)
            run.apply_rules()
        assert kept(store) == [7, 6, 5, 4]
        disk.days = 900
        store.gc()
        assert kept(store) == [7, 6, 5, 4]


def break_newest(store: cairn.Store) -> Path:
    """Damage the newest entry of the settings."""
    newest = max((store.path / "settings").iterdir())
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes().replace(b"last", b"LAST"))
    return newest


def test_gc_stops_when_the_rules_cannot_be_known(store: cairn.Store) -> None:
    """What is kept is not known then: nothing is dropped or freed, unless the stored rules are left out."""
    train(store.run(), 1, 2, 3)
    store.drop(["step:1"])
    store.keep(["every:2"])
    store.keep(["last:1"])
    newest = break_newest(store)
    with cairn.open(store.path) as damaged:
        before = folders.files(store.path)
        for act in (
            damaged.gc,
            lambda: damaged.gc(keep_last=1),
            lambda: damaged.gc(dry_run=True),
            damaged.rules,
            damaged.run().apply_rules,
            lambda: damaged.keep(["last:2"]),
            damaged.remove_rules,
        ):
            with pytest.raises(cairn.Damaged, match=r"cannot be known.*--no-rules"):
                act()
        assert folders.files(store.path) == before
        (finding,) = damaged.verify().findings
        assert (finding.level, finding.object) == ("error", "entry 2 of the settings")
        assert damaged.gc(stored_rules=False).executed
        assert steps(damaged.log()) == [3, 2, 1]
    newest.unlink()
    with cairn.open(store.path) as again:
        assert [each.rule for each in again.rules()] == ["every:2"]
        assert again.verify().ok


@pytest.mark.parametrize("rules", [[{"rule": "first:3:x", "run": None}], [{"rule": "last:3"}], "last:3"])
def test_rules_of_another_version_are_not_passed_over(store: cairn.Store, rules: object) -> None:
    """A rule that is not understood may be one that keeps something."""
    from cairn.io.leases import leased

    train(store.run(), 1, 2)
    core = store._core
    with leased(core.disk, core.layout, "keep") as lease:
        core.journal.append(core.settings.log, lease, "set", {"rules": rules})
    with pytest.raises(cairn.Damaged, match="cannot be known"):
        store.gc(keep_last=1)
    assert kept(store) == [2, 1]
    assert not store.verify().ok


def test_a_store_without_settings_is_whole(store: cairn.Store) -> None:
    """Stores that were made before there were rules have no such folder."""
    train(store.run(), 1)
    assert not (store.path / "settings").exists()
    assert store.run().apply_rules().drops_nothing
    assert store.gc().retention is None
    assert store.verify().findings == ()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Lets things happen, in another process, between the judgement of rules and what is recorded."""
    todo: list[object] = []
    check = reach.check_history

    def then(core: Core, journal: Journal) -> None:
        check(core, journal)
        if todo:
            todo.pop()()  # type: ignore[operator] # a function

    monkeypatch.setattr(retention, "check_history", then)
    yield todo
    assert not todo


def test_what_is_kept_meanwhile_is_not_dropped(store: cairn.Store, meanwhile: list[object]) -> None:
    """A tag, a rule and a rewind that come while rules are judged count: nothing that they keep goes."""
    train(store.run(), 1, 2, 3, 4, 5)
    store.keep(["last:2"])
    with cairn.open(store.path) as other:
        meanwhile.append(lambda: other.tag("good", "step:2"))
        store.run().apply_rules()
        assert kept(store) == [5, 4, 2]
        train(store.run(), 6)
        meanwhile.append(lambda: other.keep(["every:4"]))
        store.gc()
        assert kept(store) == [6, 5, 4, 2]

        def go_back() -> None:
            run = other.run()
            run.resume(step=6)
            other.rewind("main@6")
            train(other.run(), 70, 80, 90)

        train(store.run(), 7, 8, 9)
        meanwhile.append(go_back)
        store.gc()
        # Steps 7 to 9 are an attempt now: they stay until they are dropped on purpose.
        (attempt,) = store.attempts("main")
        assert steps(attempt.commits) == [9, 8, 7]
        assert kept(store) == [90, 80, 4, 2]
    assert store.verify().ok
