"""Power cuts: whatever of the last writes and names is lost, no commit that was reported is, and none is half there."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.races.checks import goes_on
from tests.races.harness import KILL, Operation, Outcome, StagedDisk, Turn, interleaved, perform
from tests.races.power import Platter, PoweredDisk, fingerprint, write_out
from tests.races.scenes import (
    DEAD,
    Builder,
    Scene,
    View,
    after,
    build,
    build_with_trash,
    commit,
    create,
    delete,
    drop,
    gc,
    look,
    rename,
    rewind,
    tag,
    undrop,
    untag,
)

import cairn
from cairn.errors import Conflict, NotFound

SAMPLES = 2
"""Random cuts at each point, besides the systematic ones."""

OPERATIONS: dict[str, Operation] = {
    "commit": commit("new", 10),
    "commit of dropped content": commit(DEAD, 10),
    "commit to a new run": commit("new", 0, "new"),
    "tag": tag("mark", "main@2"),
    "rewind": rewind("main@2"),
    "drop": drop("main@2"),
    "undrop": undrop("main@1"),
    "create": create("new", "main@2"),
    "rename": rename("side", "moved"),
    "delete": delete("side"),
    "gc": gc(keep_last=1),
}


class Cutter:
    """Cuts the power under a store in every way there is and looks at what is left, each leftover once."""

    def __init__(self, root: Path, platter: Platter, seen: set[tuple[bytes, object]] | None = None) -> None:
        self._root, self._platter = root, platter
        self._rng = random.Random(0)
        self._seen = seen if seen is not None else set()
        self.count = 0

    def cut(self, check: Callable[[View], None], key: object) -> None:
        """Check what every cut at this moment leaves; `key` names the check."""
        for choice in self._platter.cuts(self._rng, SAMPLES):
            found = self._platter.survivors(choice)
            if (mark := (fingerprint(found, choice), key)) not in self._seen:
                self._seen.add(mark)
                self.count += 1
                target = self._root.with_name(f"{self._root.name}-cut-{self.count}")
                write_out(found, choice, target)
                check(goes_on(target))


def seen_in(root: Path) -> View:
    """What a store holds, without reading content."""
    with cairn.open(root, disk=StagedDisk()) as store:
        return look(store, load=False)


@pytest.mark.parametrize("builder", [build, build_with_trash])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_power_cut_during_an_operation_leaves_the_state_before_or_after_it(
    scene: Callable[[Builder], Scene], name: str, builder: Builder
) -> None:
    """At every step and after the last one; what was reported as done is still done."""
    root = scene(builder).copy()
    platter = Platter(root)
    cutter = Cutter(root, platter)
    views = [seen_in(root)]

    def at(number: int) -> None:
        if number and disk.points[number - 1].name == "link":
            views.append(seen_in(root))
        cutter.cut(lambda view: allowed(view, views), len(views))

    disk = PoweredDisk(platter, at)
    assert perform(root, OPERATIONS[name], disk).succeeded
    cutter.cut(lambda view: allowed(view, [seen_in(root)]), "done")
    print(f"{name}: {cutter.count} cuts")


Holds = Callable[[View], bool]

BESIDE: dict[str, tuple[Operation, Operation, Holds]] = {
    "commit, the same": (commit("new", 10), commit("new", 10), lambda view: view.keeps("10 new")),
    "commit, its content": (commit("new", 10), commit("new", 20, "side"), lambda view: view.keeps("20 new", "side")),
    "commit, gc": (commit("new", 10), gc(), lambda view: True),
    "first commit, the next": (
        commit("new", 0, "new"),
        commit("next", 1, "new"),
        lambda view: view.keeps("1 next", "new"),
    ),
    "create, a commit": (create("new", "main@2"), commit("next", 3, "new"), lambda view: view.keeps("3 next", "new")),
    "drop, gc": (drop("main@2"), gc(), lambda view: True),
    "delete, gc": (delete("side"), gc(), lambda view: True),
    "untag, gc": (after(tag("mark", "main@2"), drop("main@2"), untag("mark")), gc(), lambda view: True),
    "undrop, the same": (undrop("main@1"), undrop("main@1"), lambda view: view.keeps("1 dead")),
    "undrop, its content": (undrop("main@1"), commit(DEAD, 20, "side"), lambda view: view.keeps("20 dead", "side")),
    "rename, the same": (rename("side", "moved"), rename("side", "moved"), lambda view: view.keeps("3 side", "moved")),
    "gc, dead content": (gc(), commit(DEAD, 20, "side"), lambda view: view.keeps("20 dead", "side")),
    "gc, gc": (gc(keep_last=1), gc(), lambda view: True),
}
"""An operation that is stopped, one that is then reported as done, and what must be true from then on."""


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "dead"])
@pytest.mark.parametrize("name", BESIDE)
def test_what_was_reported_survives_a_cut_that_undoes_what_it_stood_on(
    scene: Callable[[Builder], Scene], name: str, *, dies: bool
) -> None:
    """An operation is stopped or dies before each of its steps, another runs to its end, and then the power fails."""
    place = scene(build_without_index)
    first, second, holds = BESIDE[name]
    total = len(perform(place.copy(), first).points)
    seen: set[tuple[bytes, object]] = set()
    count = 0
    for at in range(total + 1):
        root = place.copy()
        platter = Platter(root)
        operations = {"first": first, "second": second}
        disks = {"first": PoweredDisk(platter), "second": PoweredDisk(platter)}
        turns = [Turn("first", at), *([Turn("first", KILL)] if dies else []), Turn("second", None)]
        done = interleaved(root, operations, turns, disks=disks, between=lambda: None)["second"]
        cutter = Cutter(root, platter, seen)
        cutter.cut(lambda view, done=done: check_holds(holds, view, done), done.succeeded)  # type: ignore[misc]
        count += cutter.count
    print(f"{name}: {count} cuts")


def check_holds(holds: Holds, view: View, done: Outcome) -> None:
    """What was reported is still so."""
    assert isinstance(done.error, Conflict | NotFound) or (done.succeeded and holds(view)), (done, view)


def build_without_index(root: Path) -> None:
    """As `build`, and whoever comes next makes the index from the packs that are there."""
    build(root)
    for path in root.glob("index.sqlite*"):
        path.unlink()


def allowed(view: View, views: list[View]) -> None:
    """What is left is one of these."""
    assert view in views, view
