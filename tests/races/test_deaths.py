"""The process of an operation dies, before any of its steps; what it had begun is done or not, and in nobody's way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.races.checks import goes_on, no_garbage, sound, whole
from tests.races.harness import KILL, Died, Operation, StagedDisk, Turn, before, interleaved, killed, perform
from tests.races.scenes import (
    DEAD,
    Builder,
    Scene,
    View,
    apply_rules,
    build,
    build_with_trash,
    commit,
    compact,
    create,
    delete,
    drop,
    gc,
    grown,
    keep,
    look,
    rename,
    rewind,
    tag,
    undrop,
    untag,
)

import cairn

OPERATIONS: dict[str, Operation] = {
    "commit": commit("new", 10),
    "commit of dropped content": commit(DEAD, 10),
    "commit to a new run": commit("new", 0, "new"),
    "tag": tag("mark", "main@2"),
    "delete tag": untag("kept"),
    "rewind": rewind("main@2"),
    "drop": drop("main@2"),
    "drop of a component": drop("main@2", only={"optimizer"}),
    "undrop": undrop("main@1"),
    "create": create("new", "main@2"),
    "rename": rename("side", "moved"),
    "delete": delete("side"),
    "gc": gc(keep_last=1),
    "gc of a part": gc(keep=("optimizer:1",)),
    "keep": keep("last:100"),
    "gc --compact": compact(),
}


def build_with_leftovers(root: Path) -> None:
    """As `build_with_trash`, and three have died: two commits, with and without their packs in place, and a gc."""
    build_with_trash(root)
    for operation, place in (
        (commit("killed", 50), before("rename", "packs")),
        (commit("killed", 50), before("link", "runs")),
        (gc(keep_last=1), before("unlink", "trash")),
    ):
        interleaved(root, {"dying": operation}, [Turn("dying", place), Turn("dying", KILL)])
    assert len(list((root / "tmp").iterdir())) >= 2
    assert len(list((root / "leases").iterdir())) >= 2


def views_of(place: Scene, operation: Operation) -> tuple[list[View], int]:
    """What a store holds in the course of an operation, each view once, and how many steps it takes."""
    root = place.copy()
    views: list[View] = []

    def see(number: int) -> None:
        if number == 0 or disk.points[number - 1].name == "link":
            with cairn.open(root, disk=StagedDisk()) as store:
                views.append(look(store, load=False))

    disk = StagedDisk(see)
    assert perform(root, operation, disk).succeeded
    return views, len(disk.points)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_dies_is_done_or_not_and_leaves_nothing(scene: Callable[[Builder], Scene], name: str) -> None:
    """The history is one of those that the operation goes through; everything is whole; the next commit and gc work."""
    views, total = views_of(scene(build), OPERATIONS[name])
    for at in range(total):
        root = scene(build).copy()
        # Where a new pack's folder is there already, the last step does not come.
        assert killed(root, OPERATIONS[name], at).died or at == total - 1
        assert (goes_on(root) if at % 2 else whole(root)) in views, at
    print(f"{name}: {total} deaths")


@pytest.mark.parametrize("name", ["commit", "commit of dropped content", "undrop", "gc", "gc --compact"])
def test_one_death_after_the_other_leaves_nothing(scene: Callable[[Builder], Scene], name: str) -> None:
    """An operation dies in a store where others died before it and left leases, files, packs and a full trash."""
    views, total = views_of(scene(build_with_leftovers), OPERATIONS[name])
    for at in range(total):
        root = scene(build_with_leftovers).copy()
        # Where a new pack's folder is there already, the last step does not come.
        assert killed(root, OPERATIONS[name], at).died or at == total - 1
        assert goes_on(root) in views, at
    print(f"{name} after others: {total} deaths")


def test_rules_that_were_cut_short_are_applied_by_the_next_call(scene: Callable[[Builder], Scene]) -> None:
    """A training loop that dies while its rules are applied has dropped some; the next call drops the rest."""
    builder = grown(commit("next", 4), commit("last", 5), keep("last:3", "optimizer:1"))
    place = scene(builder)
    total = len(perform(place.copy(), apply_rules).points)
    done = None
    for at in reversed(range(total + 1)):
        root = place.copy()
        assert killed(root, apply_rules, at).died == (at < total)
        whole(root)
        assert perform(root, apply_rules).succeeded
        assert perform(root, gc()).succeeded
        view = whole(root)
        done = done or view
        assert view == done, at
        no_garbage(root)
    assert done is not None
    dropped = {name: parts for name, parts in done.runs["main"][1].items() if parts}
    assert dropped == {"1 dead": ("*",), "2 first": ("*",), "3 tip": ("optimizer",), "4 next": ("optimizer",)}


def test_a_store_that_was_never_finished_can_be_made_again(tmp_path: Path) -> None:
    """An init that dies leaves no store, and the next init in the same place makes one."""

    def make(root: Path, at: int | None) -> int:
        disk = StagedDisk()
        disk.at = lambda number: disk.die() if number == at else None
        cairn.init(root, disk=disk).close()
        return len(disk.points)

    total = make(tmp_path / "whole", None)
    for at in range(total):
        root = tmp_path / f"dies at {at}"
        with pytest.raises(Died):
            make(root, at)
        if not (root / "cairn.json").exists():
            make(root, None)
        with cairn.open(root, disk=StagedDisk()) as store:
            commit("first", 0)(store)
        goes_on(root)


def test_half_a_rename_is_ended_by_the_same_command(scene: Callable[[Builder], Scene]) -> None:
    """A rename that died between its two entries leaves both names with the same history, until it is given again."""
    total = len(perform(scene(build).copy(), rename("side", "moved")).points)
    halves = 0
    for at in range(total):
        root = scene(build).copy()
        assert killed(root, rename("side", "moved"), at).died
        runs = sound(root).runs
        if "moved" in runs and "side" in runs:
            halves += 1
            assert runs["moved"] == runs["side"]
        if "side" in runs:
            assert perform(root, rename("side", "moved")).succeeded
        assert set(goes_on(root).runs) == {"main", "moved"}
    assert halves
