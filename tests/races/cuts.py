"""Cutting the power during operations, in every way a medium may lose what is not safe, and looking at what is left."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.races.checks import goes_on, whole
from tests.races.harness import KILL, Operation, Outcome, StagedDisk, Turn, interleaved, perform
from tests.races.power import Platter, PoweredDisk, fingerprint, write_out
from tests.races.scenes import (
    DEAD,
    Scene,
    View,
    after,
    anew,
    commit,
    compact,
    create,
    delete,
    drop,
    gc,
    keep,
    look,
    rename,
    rewind,
    tag,
    undrop,
    untag,
)

import cairn
from cairn.errors import CairnError, Conflict, NotFound

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
    "gc of a part": gc(keep=("optimizer:1",)),
    "keep": keep("last:100"),
    "gc --compact": compact(),
}


Holds = Callable[[View], bool]

BESIDE: dict[str, tuple[Operation, Operation, Holds]] = {
    "commit, the same": (commit("new", 10), commit("new", 10), lambda view: view.keeps("10 new")),
    "commit, its content": (
        commit("new", 10),
        anew(commit("new", 20, "side")),
        lambda view: view.keeps("20 new", "side"),
    ),
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
    "gc --compact, dead content": (compact(), commit(DEAD, 20, "side"), lambda view: view.keeps("20 dead", "side")),
    "commit, gc --compact": (commit("new", 10), compact(), lambda view: True),
    "gc --compact, gc --compact": (compact(), compact(), lambda view: True),
    "gc, gc": (gc(keep_last=1), gc(), lambda view: True),
}
"""An operation that is stopped, one that is then reported as done, and what must be true from then on."""


class Cutter:
    """Cuts the power under a store in every way there is and looks at what is left, each leftover once."""

    def __init__(self, root: Path, platter: Platter, seen: set[tuple[bytes, object]]) -> None:
        self._root, self._platter, self._seen = root, platter, seen
        self._rng = random.Random(0)
        self._number = 0

    def cut(self, check: Callable[[View], None], key: object) -> None:
        """Check what every cut at this moment leaves; `key` names the check."""
        for choice in self._platter.cuts(self._rng, SAMPLES):
            found = self._platter.survivors(choice)
            if (mark := (fingerprint(found, choice), key)) not in self._seen:
                self._seen.add(mark)
                self._number += 1
                target = self._root.with_name(f"{self._root.name}-cut-{self._number}")
                write_out(found, choice, target)
                # Derived, and not made durable: what is left of it is as old as can be.
                with suppress(FileNotFoundError):
                    shutil.copyfile(self._root / "index.sqlite", target / "index.sqlite")
                # To go on takes longer than to look.
                try:
                    check(goes_on(target) if len(self._seen) % 3 == 1 else whole(target))
                except CairnError as error:
                    # Not to be taken for an error of the operation that is being cut.
                    raise AssertionError(f"after the power cut: {error}") from error
                shutil.rmtree(target)


def during(scene: Scene, name: str) -> int:
    """Cut before every step of an operation and after the last; return the number of leftovers that were checked.

    What is left is what the store held at some time before the cut, and what it holds once the operation is done.
    """
    root = scene.copy()
    seen: set[tuple[bytes, object]] = set()
    cutter = Cutter(root, platter := Platter(root), seen)
    views = [seen_in(root)]

    def at(number: int) -> None:
        if number and disk.points[number - 1].name == "link":
            views.append(seen_in(root))
        cutter.cut(lambda view: allowed(view, views), len(views))

    disk = PoweredDisk(platter, at)
    assert perform(root, OPERATIONS[name], disk).succeeded
    cutter.cut(lambda view: allowed(view, [seen_in(root)]), "done")
    return len(seen)


def beside(scene: Scene, name: str, *, dies: bool) -> int:
    """Stop one operation before each of its steps, or let it die there, run another to its end, and cut.

    What the other was told must still be so. Returns the number of leftovers that were checked.
    """
    first, second, holds = BESIDE[name]
    total = len(perform(scene.copy(), first).points)
    seen: set[tuple[bytes, object]] = set()
    for at in range(total + 1):
        root = scene.copy()
        platter = Platter(root)
        operations = {"first": first, "second": second}
        disks = {"first": PoweredDisk(platter), "second": PoweredDisk(platter)}
        turns = [Turn("first", at), *([Turn("first", KILL)] if dies else []), Turn("second", None)]
        done = interleaved(root, operations, turns, disks=disks, between=lambda: None)["second"]
        cutter = Cutter(root, platter, seen)
        cutter.cut(lambda view, done=done: check_holds(holds, view, done), done.succeeded)  # type: ignore[misc]
    return len(seen)


def seen_in(root: Path) -> View:
    """What a store holds, without reading content."""
    with cairn.open(root, disk=StagedDisk()) as store:
        return look(store, load=False)


def check_holds(holds: Holds, view: View, done: Outcome) -> None:
    """What was reported is still so."""
    assert isinstance(done.error, Conflict | NotFound) or (done.succeeded and holds(view)), (done, view)


def allowed(view: View, views: list[View]) -> None:
    """What is left is one of these."""
    assert view in views, view
