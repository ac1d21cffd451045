"""Loading: whole, in part, lazily, as views and as copies."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe

import cairn


def state(value: float, size: int = 8) -> dict[str, Any]:
    """Make a state with a tie between its components."""
    weight = np.full(size, value)
    return {"model": {"w": weight, "b": np.arange(3)}, "optimizer": {"params": [weight], "t": 1}, "rng": [1, 2]}


def test_loaded_arrays_are_views_unless_copied(store: cairn.Store) -> None:
    """Without copy an array is a read-only view of the pack; with it, one's own to change, and ties stay ties."""
    run = store.run()
    run.commit(state(1), step=1)
    view = run.load()["model"]["w"]
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 7
    assert not view.flags.owndata
    mine = run.load(copy=True)
    mine["model"]["w"][0] = 7
    assert mine["optimizer"]["params"][0][0] == 7
    assert describe(run.load()) == describe(state(1))


def test_components_are_loaded_alone(store: cairn.Store) -> None:
    """only= leaves the rest out, in the order of the state; each component stands alone, ties included."""
    run = store.run()
    run.commit(state(1), step=1)
    assert list(run.load(only={"rng", "model"})) == ["model", "rng"]
    (weight,) = run.load(only=["optimizer"])["optimizer"]["params"]
    assert weight.tolist() == [1.0] * 8
    assert run.load(only=()) == {}
    both = run.load(only={"model", "optimizer"})
    assert both["model"]["w"] is both["optimizer"]["params"][0]


def test_components_that_are_not_there_are_named(store: cairn.Store) -> None:
    """An unknown component, or a str where a set belongs, is an error that lists what there is."""
    run = store.run()
    run.commit(state(1), step=1)
    with pytest.raises(cairn.NotFound, match="no component 'modle': expected one of model, optimizer, rng"):
        run.load(only={"modle"})
    with pytest.raises(cairn.UsageError, match="model"):
        run.load(only="model")


def test_an_open_commit_reads_only_what_is_touched(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened lazily, damage elsewhere is not met, and no other tensor's bytes are hashed."""
    store.run().commit({"model": {f"w{n}": np.full(50_000, n) for n in range(10)}, "notes": {"x": 1}}, step=1)
    hashed: list[int] = []
    real = cairn.objects.reader.blob_id

    def counted(data: Any, threads: int | None = None) -> str:
        hashed.append(memoryview(data).nbytes)
        return str(real(data, threads))

    monkeypatch.setattr("cairn.objects.reader.blob_id", counted)
    monkeypatch.setattr("cairn.objects.sweep.blob_id", counted)
    with cairn.open(store.path) as again:
        lazy = again.open("latest")
        assert list(lazy) == ["model", "notes"]
        assert lazy["notes"]["x"] == 1
        assert max(hashed) < 5_000
        assert lazy["model"]["w3"][7] == 3
        assert [size for size in hashed if size > 5_000] == [400_000]
        with pytest.raises(KeyError):
            lazy["modle"]


def test_a_lazy_state_has_the_values_of_a_loaded_one(store: cairn.Store) -> None:
    """Touched or loaded, values are the same and ties are ties."""
    store.run().commit(state(2), step=1)
    lazy = store.run().open()
    assert describe({name: lazy[name] for name in lazy}).replace("LazyMapping", "dict") == describe(state(2))
    assert lazy["model"]["w"] is lazy["optimizer"]["params"][0]


def test_arrays_outlive_the_pack_they_are_views_of(store: cairn.Store) -> None:
    """gc may delete a pack while somebody computes with its arrays: the memory stays."""
    store.run("temporary").commit({"model": np.arange(100_000.0)}, step=1)
    held = store.load("temporary")["model"]
    store.delete_run("temporary")
    assert len(store.gc().deleted) == 1
    assert folders.packs(store.path) == []
    gc.collect()
    assert held.sum() == 99_999 * 50_000
    with pytest.raises(cairn.NotFound):
        store.load("temporary")


def test_resume_loads_and_continues_from_there(store: cairn.Store) -> None:
    """resume gives the state of a step and changes nothing until the next commit."""
    run = store.run()
    for step in (1, 2, 3):
        run.commit(state(step), step=step)
    before = folders.files(store.path)
    assert describe(run.resume(step=2)) == describe(state(2))
    assert folders.files(store.path) == before
    assert store.commit("latest").step == 3
    assert run.commit(state(7), step=7).parents == (store.commit("step:2").id,)


def test_a_step_is_no_revision(store: cairn.Store) -> None:
    """A number in its place is refused with the spelling of one."""
    store.run("main").commit({"model": np.zeros(3)}, step=5)
    number: Any = 5
    with pytest.raises(cairn.UsageError, match="expected a str such as 'latest' or 'step:100', found 5"):
        store.load(number)
