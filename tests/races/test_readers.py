"""Readers beside writers and gc: no false alarm, nothing taken from under them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.races.checks import goes_on, whole
from tests.races.harness import Operation, StagedDisk, Turn, interleaved, perform, spread
from tests.races.scenes import (
    DEAD,
    FIRST,
    Builder,
    Scene,
    after,
    build,
    build_with_needed_trash,
    build_with_trash,
    commit,
    compact,
    drop,
    equal,
    gc,
    load,
    state,
    undrop,
    verify,
)

import cairn
from cairn.errors import Dropped
from cairn.objects import gather

READERS = {
    "load": load("step:10"),
    "verify": verify,
    "tag": lambda store: store.tag("mark", "main@10"),
    "gc": gc(),
    "du": lambda store: store.du(),
}
WRITERS = {
    "commit of dropped content": commit(DEAD, 20, "side"),
    "gc": gc(),
    "gc --compact": compact(),
    "commit and gc": after(commit("new", 20, "side"), gc()),
}


@pytest.mark.parametrize("meanwhile", WRITERS)
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_finds_everything_whole_while_others_write_and_collect(
    scene: Callable[[Builder], Scene], reader: str, meanwhile: str
) -> None:
    """A pack that moves to the trash or back at any moment is found, and what is new is no damage."""
    operations: dict[str, Operation] = {"reader": READERS[reader], "writer": WRITERS[meanwhile]}
    place = scene(build_with_needed_trash)
    total = len(perform(place.copy(), READERS[reader], StagedDisk(looks=True)).points)
    for at in spread(total, 60 if "gc" in meanwhile and reader != "gc" else 25):
        root = place.copy()
        outcomes = interleaved(root, operations, [Turn("reader", at), Turn("writer", None)])
        assert outcomes["reader"].succeeded or "another gc" in str(outcomes["reader"].error), (at, outcomes["reader"])
        assert outcomes["writer"].succeeded or "another gc" in str(outcomes["writer"].error), (at, outcomes["writer"])
    goes_on(root)


@pytest.mark.parametrize("builder", [build, build_with_trash])
def test_what_is_dropped_and_freed_during_a_load_is_called_dropped(
    scene: Callable[[Builder], Scene], builder: Builder
) -> None:
    """Loading gives the state whole or says that it was dropped; there is no damage to report."""
    total = len(perform(scene(builder).copy(), load("step:2"), StagedDisk(looks=True)).points)
    freed = after(drop("main@2"), gc())
    for at in range(total):
        root = scene(builder).copy()
        turns = [Turn("reader", at), Turn("gc", None)]
        outcomes = interleaved(root, {"reader": load("step:2"), "gc": freed}, turns)
        assert outcomes["reader"].succeeded or isinstance(outcomes["reader"].error, Dropped), (at, outcomes["reader"])
    goes_on(root)


@pytest.mark.parametrize("own", [False, True], ids=["by another process", "by the same store"])
def test_a_state_that_is_open_can_be_read_when_its_commit_was_dropped_and_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool
) -> None:
    """gc takes nothing from a live reader: an opened state keeps its packs, whatever becomes of their names."""
    monkeypatch.setattr(gather, "OWN_PACK_BYTES", 16)
    root = tmp_path / "each component in packs of its own"
    build(root)
    with cairn.open(root, disk=StagedDisk()) as store:
        lazy = store.open("main@2")
        freed = after(drop("main@2"), gc())
        if own:
            freed(store)
        else:
            assert perform(root, freed).succeeded
        assert not list((root / "trash").iterdir())
        found = {name: {part: lazy[name][part] for part in values} for name, values in state(FIRST).items()}
        assert equal(found, FIRST)


def test_arrays_of_a_loaded_state_outlive_the_packs_they_are_views_of(scene: Callable[[Builder], Scene]) -> None:
    """A loaded state stays as it is when its commit is dropped and freed."""
    root = scene(build).copy()
    with cairn.open(root, disk=StagedDisk()) as store:
        found = store.load("main@2")
        assert perform(root, after(drop("main@2"), gc())).succeeded
        assert not list((root / "trash").iterdir())
        assert equal(found, FIRST)


def test_a_store_that_is_open_for_long_commits_what_it_once_knew_and_gc_freed(
    scene: Callable[[Builder], Scene],
) -> None:
    """Packs that an open store has mapped and indexed and that are gone are written anew before a commit needs them."""
    root = scene(build).copy()
    with cairn.open(root, disk=StagedDisk()) as store:
        undrop("main@1")(store)
        assert equal(store.load("main@1"), DEAD)
        assert perform(root, after(drop("main@1"), gc())).succeeded
        commit(DEAD, 10)(store)
    assert whole(root).keeps("10 dead")
    goes_on(root)
