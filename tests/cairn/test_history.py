"""What happened in a run, and the words that name its commits."""

from __future__ import annotations

import pytest
from tests.cairn.describe import describe
from tests.cairn.training import state, steps, train

import cairn


def test_another_way_leaves_an_attempt_behind(store: cairn.Store) -> None:
    """After resume and other training the way left stays addressable; latest and the log are of the new way."""
    run = store.run()
    train(run, 1, 2, 3, 4)
    run.resume(step=2)
    run.commit(state(33), step=3)
    assert steps(store.log()) == [3, 2, 1]
    assert store.commit("latest") == store.commit("main") == run.tip
    assert store.commit("main/attempt-1").step == 4
    assert describe(store.load("main/attempt-1~1")) == describe(state(3))
    assert describe(store.load("step:3")) == describe(state(33))
    with pytest.raises(cairn.NotFound, match=r"attempts that were left have it: main/attempt-1@4 \("):
        store.commit("step:4")
    run.resume(step=1)
    run.commit(state(22), step=2)
    assert store.commit("main/attempt-2").step == 3
    with pytest.raises(cairn.NotFound, match="has 2 attempts"):
        store.commit("main/attempt-3")
    with cairn.open(store.path) as again:
        assert [again.commit(f"main/attempt-{n}").step for n in (1, 2)] == [4, 3]


def test_a_step_on_several_attempts_is_named_by_each(store: cairn.Store) -> None:
    """RUN/attempt-N@STEP is a commit of an attempt; a step that only attempts have is told with their names."""
    run = store.run()
    train(run, 1, 2, 3, 4)
    for key in (40, 41):
        run.resume(step=2)
        run.commit(state(key), step=3)
        run.commit(state(key + 1), step=4)
    run.resume(step=2)
    run.commit(state(50), step=3)
    wanted = {
        "main/attempt-1@4": 4,
        "main/attempt-2@4": 41,
        "main/attempt-3@4": 42,
        "main/attempt-3@3": 41,
        "main@3": 50,
    }
    assert {revision: describe(store.load(revision)) for revision in wanted} == {
        revision: describe(state(key)) for revision, key in wanted.items()
    }
    with pytest.raises(cairn.NotFound, match=r"main/attempt-1@4 .*main/attempt-2@4 .*main/attempt-3@4 "):
        store.commit("step:4")
    with pytest.raises(cairn.NotFound, match="main/attempt-2 has no step 9"):
        store.commit("main/attempt-2@9")
    assert steps(store.log(revision="main/attempt-2")) == [4, 3, 2, 1]
    summary = run.summary()
    assert (summary.commits, summary.tip) == (3, run.tip)
    assert [(line.name, line.commits, line.tip.step) for line in summary.attempts if line.tip] == [
        ("main/attempt-1", 2, 4),
        ("main/attempt-2", 2, 4),
        ("main/attempt-3", 2, 4),
    ]
    store.rewind("main/attempt-2")
    assert [line.name for line in run.summary().attempts] == ["main/attempt-1", "main/attempt-3", "main/attempt-4"]


def test_resuming_and_going_the_same_way_leaves_none(store: cairn.Store) -> None:
    """The same state at the same step after a resume is a commit of its own on another line, or none at the tip."""
    run = store.run()
    train(run, 1, 2)
    run.resume()
    train(run, 3)
    assert steps(store.log()) == [3, 2, 1]
    with pytest.raises(cairn.NotFound, match="no attempts"):
        store.commit("main/attempt-1")


def test_rewind_moves_the_tip(store: cairn.Store) -> None:
    """rewind goes back to any commit of the run, and forth again; each way left is an attempt."""
    run = store.run()
    commits = train(run, 1, 2, 3)
    assert store.rewind("step:1") == commits[0]
    assert steps(store.log()) == [1]
    assert store.commit("main/attempt-1") == commits[2]
    store.rewind("main/attempt-1")
    assert steps(store.log()) == [3, 2, 1]
    store.rewind("step:2")
    with pytest.raises(cairn.Conflict, match="the run moved"):
        run.commit(state(9), step=9)
    store.run("other").commit(state(5), step=5)
    with pytest.raises(cairn.NotFound, match="no commit of run 'main'"):
        store.rewind("other", run="main")


def test_the_reflog_tells_what_happened(store: cairn.Store) -> None:
    """Every entry of a run, newest first, with what it did to which commit."""
    run = store.run()
    first, second = train(run, 1, 2)
    store.rewind("step:1")
    store.drop(["main/attempt-1"])
    store.undrop(["main/attempt-1"])
    moves = run.reflog()
    assert [move.op for move in moves] == ["undrop", "drop", "rewind", "commit", "commit"]
    assert [move.seq for move in moves] == [5, 4, 3, 2, 1]
    assert [move.commit for move in moves] == [None, None, first.id, second.id, first.id]
    assert [move.attempt for move in moves] == [None, None, "main/attempt-1", None, None]


def test_steps_back_stay_in_the_run_that_was_named(store: cairn.Store) -> None:
    """Where runs share commits, RUN~N is the commit as that run has it, and a drop of it is that run's."""
    train(store.run(), 1, 2, 3)
    store.create_run("side", "main@2")
    train(store.run("side"), 4)
    assert [(commit.run, commit.step) for commit in map(store.commit, ("side~1", "side~2", "main~1"))] == [
        ("side", 2),
        ("main", 1),
        ("main", 2),
    ]
    store.drop(["main~1"], only={"model"})
    assert (store.commit("main~1").dropped, store.commit("side~1").dropped) == (("model",), ())


def test_a_run_that_was_renamed_and_back_is_opened_as_it_is(
    store: cairn.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading one name reads the other; a snapshot that is kept meanwhile is of the whole, not of the half."""
    monkeypatch.setattr("cairn.history.journal.SNAPSHOT_ENTRIES", 1)
    train(store.run("first"), 1, 2)
    for old, new in (("first", "second"), ("second", "first"), ("first", "second"), ("second", "first")):
        store.rename_run(old, new)
        for _ in range(2):
            with cairn.open(store.path) as again:
                assert again.runs() == [new]
                assert steps(again.log()) == [2, 1]


def test_a_run_may_be_deleted_and_brought_back_any_number_of_times(store: cairn.Store) -> None:
    """Each time costs the same; it was twice as long as the time before, and the 51st time would have been damage."""
    train(store.run(), 1, 2)
    for _ in range(60):
        store.delete_run("main")
        store.undelete_run("main")
    with cairn.open(store.path) as again:
        assert steps(again.log()) == [2, 1]
        assert not again.gc().dead


def test_a_run_gets_fifty_names_and_no_more(store: cairn.Store) -> None:
    """To and fro between two names costs the same each time; the 51st time is refused, and says the way out."""
    train(store.run("a"), 1, 2)
    for old, new in [("a", "b"), ("b", "a")] * 25:
        store.rename_run(old, new)
    with pytest.raises(cairn.Conflict, match=r"renamed 50 times.*`cairn run create b a`"):
        store.rename_run("a", "b")
    with cairn.open(store.path) as again:
        assert again.runs() == ["a"]
        assert steps(again.log()) == [2, 1]
        with pytest.raises(cairn.Conflict, match="renamed 50 times"):
            again.rename_run("a", "b")
        assert steps(again.create_run("b", "a").log()) == [2]


def test_a_run_with_more_names_than_can_be_followed_is_damaged_and_not_empty(
    store: cairn.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it needs is not known, so gc stops, whichever of the runs it reads first."""
    train(store.run("r00"), 1)
    with monkeypatch.context() as patched:
        patched.setattr("cairn.store.renaming.MAX_RENAMES", 100)
        patched.setattr("cairn.history.run.MAX_RENAMES", 100)
        for number in range(53):
            store.rename_run(f"r{number:02}", f"r{number + 1:02}")
    with cairn.open(store.path) as again:
        assert not again.verify().ok
        with pytest.raises(cairn.Damaged, match="gc stops, nothing was removed"):
            again.gc()
    with cairn.open(store.path) as again, pytest.raises(cairn.Damaged, match="at most 50 renames in a row"):
        next(again.log("r53"))


def test_a_deleted_run_comes_back_while_its_bytes_are_there(store: cairn.Store) -> None:
    """With its whole history, attempts and drops included; until then its commits are found by id."""
    run = store.run()
    commits = train(run, 1, 2, 3)
    run.resume(step=2)
    train(run, 4)
    store.drop(["step:1"])
    before = [list(store.log()), run.summary(), store.commit("main/attempt-1")]
    store.delete_run("main")
    assert (store.runs(), store.deleted_runs()) == ([], ["main"])
    assert store.commit(commits[2].id[:12]) == commits[2]
    back = store.undelete_run("main")
    assert [list(store.log()), back.summary(), store.commit("main/attempt-1")] == before
    assert store.deleted_runs() == []
    train(back, 5)
    store.delete_run("main")
    store.undelete_run("main")
    assert steps(store.log()) == [5, 4, 2, 1]
    assert store.verify().ok
    assert not store.gc().dead
    with cairn.open(store.path) as again:
        assert steps(again.log()) == [5, 4, 2, 1]


def test_a_run_that_was_begun_anew_after_its_deletion_comes_back_under_a_new_name(store: cairn.Store) -> None:
    """What it was before is found by its ids, and comes back beside the run that has the name now."""
    run = store.run()
    old = train(run, 1, 2)
    store.delete_run("main")
    train(store.run(), 7)
    assert store.deleted_runs() == ["main"]
    assert store.commit(old[1].id[:10]).step == 2
    assert steps(store.create_run("rescued", old[0].id).log()) == [1]
    with pytest.raises(cairn.Conflict, match="under a new name"):
        store.undelete_run("main")
    with pytest.raises(cairn.Conflict, match="exists"):
        store.undelete_run("main", new="rescued")
    assert steps(store.undelete_run("main", new="before").log()) == [2, 1]
    with cairn.open(store.path) as again:
        assert {name: steps(again.log(name)) for name in again.runs()} == {
            "before": [2, 1],
            "main": [7],
            "rescued": [1],
        }
    assert store.verify().ok


def test_best_is_one_that_is_kept(store: cairn.Store) -> None:
    """A commit whose content was dropped cannot be loaded, so it is the best of nothing any more."""
    run = store.run()
    for step, loss in enumerate((3.0, 1.0, 2.0, 4.0)):
        run.commit(state(step), step=step, metrics={"loss": loss})
    assert store.commit("best:loss").step == 1
    store.drop(["step:1"])
    assert store.commit("best:loss").step == 2
    store.undrop(["step:1"])
    assert store.commit("best:loss").step == 1


def test_a_deleted_run_whose_bytes_are_gone_does_not_come_back(store: cairn.Store) -> None:
    """The error names a commit and the way out; a run that was never deleted, renamed or is there is told so."""
    train(store.run(), 1)
    train(store.run("other"), 7, 8)
    for name, words in (("main", "exists"), ("nobody", "was not deleted: expected one of none")):
        with pytest.raises(cairn.CairnError, match=words):
            store.undelete_run(name)
    store.tag("kept", "other@7")
    store.delete_run("other")
    store.gc()
    with pytest.raises(cairn.NotFound, match=r"cannot come back.*other step 8.*run create NAME ID"):
        store.undelete_run("other")
    assert store.create_run("again", "kept").tip is not None
    store.rename_run("again", "anew")
    with pytest.raises(cairn.NotFound, match="renamed to 'anew'"):
        store.undelete_run("again")


def test_every_form_of_revision(store: cairn.Store) -> None:
    """Runs, tags, latest, step, epoch, best, run@step, ids and steps back."""
    run = store.run()
    commits = {commit.step: commit for commit in train(run, 9, 10, 11, 20)}
    other = store.run("other").commit(state(5), step=20)
    store.tag("good", "main@10")
    expected = {
        "main": 20,
        "good": 10,
        "main@9": 9,
        "main~1": 11,
        "main~3": 9,
        "good~1": 9,
        "good~0": 10,
        "main~1~1": 10,
        "main@20~2": 10,
        commits[11].id: 11,
        commits[11].id[:6]: 11,
        f"{commits[11].id[:10]}~2": 9,
    }
    assert {revision: store.commit(revision).step for revision in expected} == expected
    assert store.commit("other") == other
    within = {
        "latest": 20,
        "latest~1": 11,
        "step:9": 9,
        "epoch:1": 11,
        "epoch:0": 9,
        "best:loss": 20,
        "best:loss:max": 9,
    }
    assert {revision: store.commit(revision, "main").step for revision in within} == within
    for revision in ("latest", "step:20", "epoch:1", "best:loss"):
        with pytest.raises(cairn.NotFound, match="several runs: expected one of main, other"):
            store.commit(revision)


@pytest.mark.parametrize(
    ("revision", "words"),
    [
        ("mian", "revision 'mian'"),
        ("", "revision ''"),
        ("step:12", "nearest are 9, 10, 11, 20"),
        ("step:-1", "expected a run"),
        ("step:x", "expected a run"),
        ("epoch:7", "no epoch 7"),
        ("main@3", "no step 3"),
        ("nobody@3", "run 'nobody'"),
        ("main~4", "only 3 of 4"),
        ("best:accuracy:max", "it has loss"),
        ("abcdef0123", "begins with 'abcdef0123'"),
        ("main/attempt-0", "no attempts"),
        ("../main", "expected a run"),
        ("main\0", "expected a run"),
        ("🙂", "expected a run"),
    ],
)
def test_what_names_nothing_is_told_with_candidates(revision: str, words: str, store: cairn.Store) -> None:
    """An unknown revision is an error of its own kind with what there is instead."""
    train(store.run(), 9, 10, 11, 20)
    with pytest.raises(cairn.NotFound, match=words) as caught:
        store.commit(revision)
    assert caught.value.exit_code == 4


def test_best_needs_a_direction_for_what_is_no_loss(store: cairn.Store) -> None:
    """A metric called like an error is minimised; for any other the direction must be said."""
    train(store.run(), 1, 2, accuracy=0.5)
    assert store.commit("best:loss").step == 2
    with pytest.raises(cairn.UsageError, match="best:accuracy:min or best:accuracy:max"):
        store.commit("best:accuracy")


def test_best_passes_over_what_is_no_number(store: cairn.Store) -> None:
    """NaN ranks worst in either direction, infinity is a number, of equals the newest wins."""
    run = store.run()
    values = [float("nan"), 2.0, 1.0, 1.0, float("nan"), 3.0]
    for step, value in enumerate(values):
        run.commit(state(step), step=step, metrics={"loss": value})
    run.commit(state(9), step=9)
    assert store.commit("best:loss:min").step == 3
    assert store.commit("best:loss:max").step == 5
    run.commit(state(10), step=10, metrics={"loss": float("-inf")})
    assert store.commit("best:loss").step == 10


def test_steps_are_numbers_not_texts(store: cairn.Store) -> None:
    """Order and nearness are of numbers: 9 before 10, and a step has one spelling or several."""
    run = store.run()
    train(run, 2, 9, 10, 100)
    assert steps(store.log()) == [100, 10, 9, 2]
    assert store.commit("step:0010").step == 10
    assert store.commit("best:loss").step == 100
    with pytest.raises(cairn.NotFound, match="nearest are 2, 9, 10, 100"):
        store.commit("step:8")


def test_names_win_over_prefixes(store: cairn.Store) -> None:
    """A run called like the beginning of an id is the run; a prefix that fits two commits is ambiguous."""
    run = store.run()
    (commit,) = train(run, 1)
    store.create_run(commit.id[:8], "main")
    named = store.run(commit.id[:8])
    train(named, 2)
    assert store.commit(commit.id[:8]).step == 2
    assert store.commit(commit.id[:7]).step == 1
    assert store.commit(commit.id[:9]).step == 1


def test_an_ambiguous_prefix_lists_what_it_fits(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commits with the same beginning are both named, and nothing is guessed."""
    numbers = iter(range(100))
    monkeypatch.setattr("cairn.history.commit.id_of", lambda _: f"{'abcdef12':0<60}{next(numbers):04d}")
    run = store.run()
    train(run, 1)
    store.run("other").commit(state(2), step=2)
    with pytest.raises(cairn.NotFound, match=r"stands for several: .*main step 1.*other step 2"):
        store.commit("abcdef12")
