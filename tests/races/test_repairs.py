"""A repair that is stopped, dies or loses power at any of its steps loses nothing, and the next one ends it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.cairn import folders
from tests.cairn.small import flip
from tests.races.checks import goes_on, sound, whole
from tests.races.harness import Operation, Outcome, StagedDisk, interrupted, killed, perform, spread
from tests.races.power import Platter, PoweredDisk, fingerprint, write_out
from tests.races.scenes import (
    DEAD,
    FIRST,
    TIP,
    Builder,
    Scene,
    after,
    build,
    check,
    commit,
    drop,
    gc,
    look,
    state,
    undrop,
)

import cairn
from cairn.errors import Busy
from cairn.ids import blob_id

SAMPLES = 2
STOPS = 60
"""At most so many points of an operation are tried where each try takes long."""


def spoil(root: Path, key: str, component: str) -> None:
    """Flip a bit of the bytes that a component alone has."""
    blob = blob_id(state(key)[component]["own"])
    for pack in folders.packs(root):
        places = folders.head(pack)[1]
        if blob in places:
            folders.write(pack, flip(pack.read_bytes(), places[blob][0]))
            return
    raise AssertionError("no pack has the blob")


def build_damaged(root: Path) -> None:
    """As `build`, with a sound copy beside it and damage of each kind.

    A blob of the tip of main, one of the dropped commit, whose pack has good ones beside it, the header of the pack of
    step 2, and an entry of main.
    """
    build(root)
    shutil.copytree(root, root.with_name("twin"), dirs_exist_ok=True)
    spoil(root, TIP, "model")
    spoil(root, DEAD, "model")
    blob = blob_id(state(FIRST)["model"]["own"])
    (pack,) = [pack for pack in folders.packs(root) if blob in folders.head(pack)[1]]
    folders.write(pack, flip(pack.read_bytes(), 300))
    entry = root / "runs" / "main" / "00000002.json"
    folders.write(entry, flip(entry.read_bytes(), 99))


def build_with_dead_damage(root: Path) -> None:
    """As `build`, with damage to one of the blobs that only the dropped commit has."""
    build(root)
    spoil(root, DEAD, "model")


def mend(twin: Path) -> Operation:
    """Repair from a copy; nothing may be left to find."""

    def run(store: cairn.Store) -> None:
        report = store.verify(repair=True, sources=[twin])
        assert not report.findings, [str(finding) for finding in report.findings]

    return run


def mend_once(*sources: Path) -> Operation:
    """Repair; what others damage or need meanwhile is left to the next."""
    return lambda store: store.verify(repair=True, sources=sources)


mend_alone = mend_once()
"""Repair with what the store itself has."""


def ended(outcome: Outcome, at: int) -> bool:
    """Whether an operation died at a point, or had fewer: packs whose ids begin alike share a folder."""
    return outcome.died or len(outcome.points) <= at


@pytest.fixture
def damaged(scene: Callable[[Builder], Scene]) -> Scene:
    """The damaged store."""
    return scene(build_damaged)


def twin_of(place: Scene) -> Path:
    """The sound copy beside a damaged store."""
    return place.copy().with_name("twin")


def test_a_repair_that_dies_loses_nothing_and_is_ended_by_the_next(damaged: Scene) -> None:
    """What could be read before can be read after each death; then the same command leaves nothing to find."""
    twin = twin_of(damaged)
    total = len(perform(damaged.copy(), mend(twin)).points)
    assert total > 30
    for at in range(total):
        root = damaged.copy()
        assert ended(killed(root, mend(twin), at), at)
        with cairn.open(root, disk=StagedDisk()) as store:
            for revision in ("side", "kept"):
                check(store, store.commit(revision))
        outcome = perform(root, mend(twin))
        assert outcome.succeeded, (at, outcome.error)
        goes_on(root) if at % 3 == 0 else whole(root)


def build_with_damaged_tip(root: Path) -> None:
    """As `build`, with a sound copy beside it and damage to the newest entry of run side."""
    build(root)
    shutil.copytree(root, root.with_name("twin"), dirs_exist_ok=True)
    newest = max((root / "runs" / "side").iterdir())
    folders.write(newest, flip(newest.read_bytes(), 99))


def test_the_number_of_a_damaged_newest_entry_is_never_taken(scene: Callable[[Builder], Scene]) -> None:
    """Whenever a repair dies, the entry is damaged still or right; who commits is refused, or comes after it."""
    place = scene(build_with_damaged_tip)
    twin = twin_of(place)
    newest = max((twin / "runs" / "side").iterdir())
    total = len(perform(place.copy(), mend(twin)).points)
    refused = 0
    for at in range(total):
        root = place.copy()
        assert ended(killed(root, mend(twin), at), at)
        refused += isinstance(perform(root, commit("new", 50, "side")).error, cairn.Damaged)
        assert perform(root, mend(twin)).succeeded
        assert (root / "runs" / "side" / newest.name).read_bytes() == newest.read_bytes()
        whole(root)
    assert 0 < refused < total


def test_power_cuts_during_a_repair_lose_nothing(damaged: Scene) -> None:
    """Whatever of the last writes and names is lost at any step, the next repair leaves nothing to find."""
    twin = twin_of(damaged)
    root = damaged.copy()
    platter, rng, seen = Platter(root), random.Random(0), set[bytes]()

    def cut(number: int) -> None:
        for choice in platter.cuts(rng, SAMPLES):
            found = platter.survivors(choice)
            mark = fingerprint(found, choice)
            if mark not in seen:
                seen.add(mark)
                target = root.with_name("cut")
                write_out(found, choice, target)
                outcome = perform(target, mend(twin))
                assert outcome.succeeded, (number, outcome.error)
                whole(target)
                shutil.rmtree(target)

    assert perform(root, mend(twin), PoweredDisk(platter, cut)).succeeded
    cut(-1)
    assert len(seen) > 20


@pytest.mark.parametrize("builder", [build_damaged, build_with_dead_damage])
def test_a_commit_beside_a_repair_is_whole(scene: Callable[[Builder], Scene], builder: Builder) -> None:
    """At each step of a repair somebody commits what a damaged pack has: the good of it, and what is damaged, anew."""
    place = scene(builder)
    twin = twin_of(place)
    repair = mend(twin) if builder is build_damaged else mend_alone
    total = len(perform(place.copy(), repair).points)
    for at in spread(total, STOPS):
        root = place.copy()
        # Whoever commits what is damaged and not known to be shares it; only a copy can mend that.
        again = [commit(DEAD, 51, "side")] if builder is build_damaged else []
        meanwhile = after(commit(f"new+{DEAD}", 50, "side"), *again)
        others: list[Outcome] = []
        done = interrupted(root, mend_once(*[twin][: len(again)]), at, partial(perform_into, others, root, meanwhile))
        assert done.succeeded, (at, done.error)
        assert all(other.succeeded for other in others), (at, others)
        if not others:
            continue  # Packs whose ids begin alike share a folder: this repair took fewer steps.
        perform(root, repair)
        view = whole(root)
        assert view.keeps(f"50 new+{DEAD}", "side")
        assert not again or view.keeps(f"51 {DEAD}", "side")


@pytest.mark.parametrize("operation", [commit(f"new+{DEAD}", 50), undrop("main@1")], ids=["commit", "undrop"])
def test_a_repair_beside_an_operation_takes_nothing_that_it_counts_on(
    scene: Callable[[Builder], Scene], operation: Operation
) -> None:
    """An operation has looked up good blobs in a damaged pack when that is set aside: it is published whole."""
    place = scene(build_with_dead_damage)
    disk = StagedDisk(looks=True)
    perform(place.copy(), operation, disk)
    for at in spread(len(disk.points), STOPS):
        root = place.copy()

        def stop(number: int, root: Path = root, at: int = at) -> None:
            if number == at:
                assert perform(root, mend_alone).succeeded

        staged = StagedDisk(stop, looks=True)
        outcome = perform(root, operation, staged)
        if outcome.succeeded:
            with cairn.open(root, disk=StagedDisk()) as store:
                report = store.verify()
                steps = {step for finding in report.findings for step in finding.steps}
                # What was damaged before is damaged still; nothing else is.
                assert all(step.startswith("main step 1 model") for step in steps), steps
                look(store, load=False)


def perform_into(outcomes: list[Outcome], root: Path, operation: Operation) -> None:
    """Run an operation and note what became of it."""
    outcomes.append(perform(root, operation))


def test_gc_and_repair_keep_each_other_out(damaged: Scene) -> None:
    """A gc that comes at any step of a repair is told to wait, or runs before or after it; nothing is lost."""
    twin = twin_of(damaged)
    points = perform(damaged.copy(), mend(twin)).points
    # How many there are varies with the names of packs; these are soon after the lock was taken.
    locked = next(at for at, point in enumerate(points) if point.path.name == "gc.lock")
    busy = 0
    for at in [*spread(len(points), STOPS), *range(locked + 1, locked + 6)]:
        root = damaged.copy()
        others: list[Outcome] = []
        outcome = interrupted(root, mend(twin), at, partial(perform_into, others, root, gc()))
        assert outcome.succeeded, (at, outcome.error)
        busy += any(isinstance(other.error, Busy) for other in others)
        whole(root)
    assert busy


def test_what_was_dropped_stays_dropped_and_goes_after_a_repair(damaged: Scene) -> None:
    """Good blobs that nothing needs are saved, too, and the next gc frees them like any others."""
    twin = twin_of(damaged)
    root = damaged.copy()
    assert perform(root, mend(twin)).succeeded
    assert perform(root, drop("main@2")).succeeded
    goes_on(root)
    sound(root)
