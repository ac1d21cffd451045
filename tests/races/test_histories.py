"""Entries that come between an operation's look at the history and its own entry."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.races.checks import goes_on, sound, whole
from tests.races.harness import Operation, Outcome, StagedDisk, Turn, interleaved, killed, perform
from tests.races.scenes import (
    DEAD,
    FIRST,
    Builder,
    Scene,
    View,
    after,
    build,
    commit,
    create,
    delete,
    drop,
    equal,
    gc,
    grown,
    rename,
    rewind,
    state,
    tag,
    undrop,
)

import cairn
from cairn.errors import Conflict, Dropped, NotFound

Check = Callable[[View, Outcome, Outcome], None]

RENEW: Operation = after(delete("main"), commit("fresh", 0, "main"))
"""End run main and begin it anew."""

BUSY_SIDE = grown(commit("more", 4, "side"), commit("last", 5, "side"), drop("side@4", "side"))


def every_turn(scene: Scene, first: Operation, second: Operation, check: Check) -> None:
    """Stop the first operation at each of its points and run the second to its end."""
    total = len(perform(scene.copy(), first, StagedDisk(looks=True)).points)
    for at in range(total):
        root = scene.copy()
        outcomes = interleaved(root, {"first": first, "second": second}, [Turn("first", at), Turn("second", None)])
        check(sound(root), outcomes["first"], outcomes["second"])
    goes_on(root)


@pytest.mark.parametrize("operation", [drop("main@2"), undrop("main@1"), rewind("main@2")])
def test_an_entry_about_commits_is_refused_once_the_run_began_anew(
    scene: Callable[[Builder], Scene], operation: Operation
) -> None:
    """No entry names commits that its run does not have: no gc could ever again say what the run needs."""

    def check(view: View, first: Outcome, second: Outcome) -> None:
        assert isinstance(second.error, Conflict) or view.runs["main"][0] == "0 fresh"
        assert first.succeeded or isinstance(first.error, Conflict | NotFound)

    every_turn(scene(build), operation, RENEW, check)


@pytest.mark.parametrize("operation", [create("new", "main@2"), rename("side", "new")])
def test_a_new_run_never_takes_the_place_of_one_that_came_first(
    scene: Callable[[Builder], Scene], operation: Operation
) -> None:
    """Of two that make a run of the same name one is refused, or comes after; a commit that was published stays."""

    def check(view: View, first: Outcome, second: Outcome) -> None:
        assert first.succeeded or second.succeeded
        for outcome in (first, second):
            assert outcome.succeeded or isinstance(outcome.error, Conflict)
        assert not second.succeeded or view.keeps("0 zero", "new")

    every_turn(scene(build), operation, commit("zero", 0, "new"), check)


@pytest.mark.parametrize(
    ("meanwhile", "label"),
    [
        (undrop("side@4", "side"), "4 more"),
        (after(commit("late", 8, "side"), rewind("side@5", "side")), "8 late"),
    ],
    ids=["undrop", "commit and rewind"],
)
def test_what_happens_to_a_run_while_it_is_renamed_is_not_forgotten(
    scene: Callable[[Builder], Scene], meanwhile: Operation, label: str
) -> None:
    """What was published under the old name is kept under it or under the new one."""

    def check(view: View, first: Outcome, second: Outcome) -> None:
        assert second.succeeded or isinstance(second.error, Conflict | NotFound)
        assert not second.succeeded or any(view.keeps(label, name) for name in view.runs)

    every_turn(scene(BUSY_SIDE), rename("side", "moved"), meanwhile, check)
    every_turn(scene(BUSY_SIDE), meanwhile, rename("side", "moved"), lambda view, a, b: check(view, b, a))


def test_a_rename_that_was_cut_short_is_not_taken_for_done_once_its_new_run_was_deleted(
    scene: Callable[[Builder], Scene],
) -> None:
    """The old name ends only when a run that exists has its commits."""
    root = scene(build).copy()
    step = [point.name for point in perform(root, rename("side", "moved")).points].index("link") + 1
    root = scene(build).copy()
    assert killed(root, rename("side", "moved"), step).died
    assert set(whole(root).runs) == {"main", "side", "moved"}
    assert perform(root, after(delete("moved"), commit("other", 0, "moved"))).succeeded
    assert isinstance(perform(root, rename("side", "moved")).error, Conflict)
    view = goes_on(root)
    assert view.keeps("3 side", "side")
    assert view.keeps("0 other", "moved")


def test_a_run_that_was_renamed_and_renamed_back_shows_every_new_commit_at_once(
    scene: Callable[[Builder], Scene],
) -> None:
    """A store that is open for long reads a run's new entries however often the run changed its name."""
    root = scene(build).copy()
    for operation in (rename("side", "moved"), rename("moved", "side"), commit("x", 4, "side")):
        assert perform(root, operation).succeeded
    with cairn.open(root, disk=StagedDisk()) as store:
        assert store.commit("side").step == 4
        assert len(store.run("side").reflog()) == 5
        for step in range(5, 9):
            assert perform(root, commit(f"x{step}", step, "side")).succeeded
            assert store.commit("side").step == step
            assert len(store.run("side").reflog()) == step + 1


def test_no_run_is_missed_while_it_changes_its_name(scene: Callable[[Builder], Scene]) -> None:
    """Whoever lists the runs sees a run under the old or the new name, so gc marks what it needs."""
    total = len(perform(scene(build).copy(), lambda store: store.runs(), StagedDisk(looks=True)).points)
    for old, new in (("side", "aside"), ("side", "zside")):
        for at in range(total):
            root = scene(build).copy()
            turns = [Turn("list", at), Turn("rename", None)]
            listing: Operation = lambda store: store.runs()  # noqa: E731 - typed
            outcomes = interleaved(root, {"list": listing, "rename": rename(old, new)}, turns)
            assert outcomes["list"].result in (["main", old], sorted(["main", new])), at


def test_a_state_that_was_dropped_is_not_taken_for_committed(scene: Callable[[Builder], Scene]) -> None:
    """Committing the same state again at a step that was dropped is refused: nothing of it would be kept."""
    root = scene(build).copy()
    with cairn.open(root, disk=StagedDisk()) as store, pytest.raises(Conflict, match="undrop"):
        store.run("main").commit(state(DEAD), step=1)


def test_what_starts_from_part_of_a_commit_does_not_need_the_rest(scene: Callable[[Builder], Scene]) -> None:
    """A run or a tag made from a commit without its dropped component never makes gc or verify ask for that."""
    root = scene(build).copy()
    steps = (
        drop("main@2", only={"optimizer"}),
        gc(),
        create("new", "main@2"),
        tag("mark", "main@2"),
        delete("main"),
        commit("fresh", 0, "main"),
    )
    for operation in steps:
        assert perform(root, operation).succeeded
    view = goes_on(root)
    assert view.runs["new"][1] == {"2 first": ("optimizer",)}
    with cairn.open(root, disk=StagedDisk()) as store:
        assert store.commit("mark").dropped == ("optimizer",)


def test_a_tag_keeps_what_its_run_dropped(scene: Callable[[Builder], Scene]) -> None:
    """A commit that was tagged just before it was dropped can be loaded by the tag's name, also after gc."""
    root = scene(build).copy()

    def tagged(number: int) -> None:
        if disk.points[number].name == "link":
            assert perform(root, tag("mark", "main@2")).succeeded

    disk = StagedDisk(tagged)
    assert perform(root, drop("main@2"), disk).succeeded
    assert goes_on(root).runs["main"][1]["2 first"] == ("*",)
    with cairn.open(root, disk=StagedDisk()) as store:
        assert equal(store.load("mark"), FIRST)


def test_a_tag_keeps_a_commit_that_is_dropped_at_the_same_time(scene: Callable[[Builder], Scene]) -> None:
    """Whichever comes first, a tag that was set can be loaded."""

    def check(view: View, first: Outcome, second: Outcome) -> None:
        assert first.succeeded or isinstance(first.error, Dropped)
        assert second.succeeded or isinstance(second.error, Conflict)
        assert not first.succeeded or view.tags["mark"] == "2 first"

    every_turn(scene(build), tag("mark", "main@2"), after(drop("main@2"), gc()), check)
