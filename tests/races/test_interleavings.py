"""Whole operations between any two steps of another, and two or three operations in turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from tests.races.checks import goes_on, sound, whole
from tests.races.harness import (
    Operation,
    Outcome,
    StagedDisk,
    Turn,
    interleaved,
    interrupted,
    perform,
    spread,
)
from tests.races.scenes import (
    DEAD,
    Builder,
    Scene,
    View,
    after,
    build,
    build_with_trash,
    commit,
    compact,
    create,
    drop,
    gc,
    label,
    load,
    rename,
    rewind,
    tag,
    undrop,
    verify,
)

from cairn.errors import Conflict, Damaged, Dropped
from cairn.history.commit import Commit

pytestmark = pytest.mark.usefixtures("no_gc_lock")

OPERATIONS: dict[str, Operation] = {
    "commit": commit(DEAD, 10),
    "tag": tag("mark", "main@2"),
    "rewind": rewind("main@2"),
    "drop": drop("main@2"),
    "undrop": undrop("main@1"),
    "create": create("new", "main@2"),
    "gc": gc(keep_last=1),
    "gc of a part": gc(keep=("optimizer:1",)),
    "gc --compact": compact(),
}

BESIDE = commit("dead+other", 20, "side")
COLLECT = gc(keep_last=1)
INTRUDERS: dict[str, Operation] = {
    "commit": BESIDE,
    "gc": COLLECT,
    "commit then gc": after(BESIDE, COLLECT),
    "gc then commit": after(COLLECT, BESIDE),
    "gc --compact": compact(),
}

EFFECTS: dict[str, Callable[[View], bool]] = {
    "commit": lambda view: view.keeps("10 dead"),
    "tag": lambda view: view.tags["mark"] == "2 first",
    "create": lambda view: view.keeps("2 first", "new"),
    "drop": lambda view: view.runs["main"][1]["2 first"] == ("*",),
}
"""What must be true when an operation was reported as done and nothing can have undone it."""


def honest(name: str, outcome: Outcome, view: View) -> None:
    """An operation did what it was asked for, or says why it could not: somebody moved or dropped what it needs."""
    if outcome.succeeded:
        assert name not in EFFECTS or EFFECTS[name](view), (name, view)
    elif name == "undrop" and isinstance(outcome.error, Damaged):
        assert view.runs["main"][1]["1 dead"] == ("*",)
    else:
        assert isinstance(outcome.error, Conflict | Dropped), (name, outcome)


WITH_TRASH = ("commit", "undrop", "gc", "gc --compact")
"""Operations that care about what an earlier gc left in the trash."""


@pytest.mark.parametrize("intruder", INTRUDERS)
@pytest.mark.parametrize(
    ("name", "builder"), [*((name, build) for name in OPERATIONS), *((name, build_with_trash) for name in WITH_TRASH)]
)
def test_what_comes_between_two_steps_costs_nothing(
    scene: Callable[[Builder], Scene], name: str, intruder: str, builder: Builder
) -> None:
    """An operation is stopped before each of its steps while others run to their ends."""
    place = scene(builder)
    total = len(perform(place.copy(), OPERATIONS[name]).points)
    inner: list[Outcome] = []
    for at in range(total) if builder is build else spread(total, 5):
        root = place.copy()
        meanwhile = partial(perform, root, INTRUDERS[intruder])
        outcome = interrupted(root, OPERATIONS[name], at, lambda run=meanwhile: inner.append(run()))  # type: ignore[misc]
        view = whole(root) if at % 3 else goes_on(root)
        honest(name, outcome, view)
        assert inner[-1].succeeded or isinstance(inner[-1].error, Conflict), inner[-1]
        assert "commit" not in intruder or view.keeps("20 dead+other", "side")
    print(f"{name} x {intruder}: {len(inner)} interleavings")


PAIRS: dict[str, tuple[Operation, Operation]] = {
    "commit x gc": (commit(DEAD, 10), gc(patience=1)),
    "gc x commit": (gc(), commit(DEAD, 10)),
    "gc x gc": (gc(keep_last=1), gc()),
    "commit x gc --compact": (commit(DEAD, 10), compact(patience=1)),
    "gc --compact x commit": (compact(), commit(DEAD, 10)),
    "gc --compact x gc --compact": (compact(), compact()),
    "gc --compact x gc": (compact(), gc(keep_last=1)),
    "undrop x gc --compact": (undrop("main@1"), compact(patience=1)),
    "undrop x gc": (undrop("main@1"), gc(patience=1)),
    "commit x commit": (commit(DEAD, 10), commit(DEAD, 20, "side")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_operations_that_stop_in_the_middle_of_each_other_lose_nothing(
    scene: Callable[[Builder], Scene], name: str
) -> None:
    """The first is stopped, the second runs to its middle, the first ends, and then the second."""
    first, second = PAIRS[name]
    place = scene(build_with_trash if name.startswith("undrop") else build)
    totals = [len(perform(place.copy(), operation, StagedDisk(looks=True)).points) for operation in (first, second)]
    count = 0
    for there in spread(totals[0], 7):
        for here in spread(totals[1], 7):
            count += 1
            root = place.copy()
            turns = [Turn("first", there), Turn("second", here), Turn("first", None)]
            outcomes = interleaved(root, {"first": first, "second": second}, turns)
            view = goes_on(root) if count % 8 == 0 else sound(root)
            told(view, list(outcomes.values()))
    print(f"{name}: {count} interleavings")


def told(view: View, outcomes: list[Outcome]) -> None:
    """Whoever was told of a commit finds it; nobody was told anything but of a conflict or of what gc freed."""
    for outcome in outcomes:
        if outcome.succeeded and isinstance(outcome.result, Commit):
            made = outcome.result
            assert label(made) in view.runs[made.run][1], outcome
        assert outcome.succeeded or isinstance(outcome.error, Conflict | Dropped | Damaged), outcome
        if isinstance(outcome.error, Damaged):
            assert view.runs["main"][1]["1 dead"] == ("*",), outcome


CROWD: dict[str, Operation] = {
    "commit": commit(DEAD, 10),
    "half": commit("dead+x", 20, "side"),
    "undrop": undrop("main@1"),
    "tag": tag("mark", "main@2"),
    "gc": gc(),
    "patient gc": gc(patience=1),
    "drop and gc": gc(keep_last=1),
    "gc --compact": compact(),
    "patient gc --compact": compact(patience=1),
    "load": load("step:3"),
    "verify": verify,
    "rename": rename("side", "moved"),
}
TRIES = 150


def test_three_operations_in_turns_lose_nothing(scene: Callable[[Builder], Scene]) -> None:
    """Three operations of all kinds, with up to six changes between them at places drawn from fixed seeds."""
    for seed in range(TRIES):
        rng = random.Random(seed)
        names = rng.sample(sorted(CROWD), 3)
        root = scene(rng.choice([build, build_with_trash])).copy()
        turns: list[Turn] = []
        for _ in range(rng.randint(2, 6)):
            who = rng.choice([name for name in names if not turns or turns[-1].who != name])
            turns.append(Turn(who, rng.choice([rng.randint(0, 120), rng.randint(0, 40), None])))
        outcomes = interleaved(root, {name: CROWD[name] for name in names}, turns)
        view = goes_on(root) if seed % 8 == 0 else sound(root)
        for name in names:
            outcome = outcomes[name]
            assert outcome.succeeded or isinstance(outcome.error, Conflict | Dropped | Damaged), (seed, name, outcome)
            if isinstance(outcome.error, Damaged):
                assert name == "undrop", (seed, outcome)
                assert view.runs["main"][1]["1 dead"] == ("*",), seed
    print(f"{TRIES} interleavings of three")


@pytest.mark.parametrize("same", [False, True], ids=["different states", "the same state"])
def test_of_two_commits_to_one_step_one_wins(scene: Callable[[Builder], Scene], *, same: bool) -> None:
    """The other is refused; when both have the same state, both get the same commit."""
    first, second = commit("one", 10), commit("one" if same else "two", 10)
    total = len(perform(scene(build).copy(), first, StagedDisk(looks=True)).points)
    for at in range(total):
        root = scene(build).copy()
        turns = [Turn("first", at), Turn("second", None)]
        outcomes = interleaved(root, {"first": first, "second": second}, turns)
        results = [outcome.result for outcome in outcomes.values() if outcome.succeeded]
        refused = [outcome.error for outcome in outcomes.values() if not outcome.succeeded]
        assert len(results) == (2 if same else 1), at
        assert all(isinstance(error, Conflict) for error in refused)
        assert len(set(map(str, results))) == 1
        assert len([name for name in sound(root).runs["main"][1] if name.startswith("10 ")]) == 1
    goes_on(root)
