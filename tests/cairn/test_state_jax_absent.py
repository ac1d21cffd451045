"""States of jax's arrays where jax is not: listed, compared, checked out, loaded as numpy, and never imported."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.cairn import plain_reader
from tests.cairn.strategies import Memory, exact, saved

import cairn
from cairn.errors import CairnError, UnsupportedValue
from cairn.state import tensors
from cairn.state.decode import load
from cairn.state.encode import sketch
from cairn.state.find import find
from cairn.state.lazy import LazyState
from cairn.state.walk import leaves

KEYS = "jax.random.key(impl='threefry2x32')"


@pytest.fixture
def no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every import of jax fail, wherever the tests run."""
    monkeypatch.setitem(sys.modules, "jax", None)


def saved_arrays() -> tuple[Memory, Any]:
    """Saves an array of each kind of jax's."""
    return saved(
        w=("BF16", [2, 3], "jax", bytes(range(12))),
        rate=("F32", [], "jax(weak_type=True)", bytes(4)),
        key=("U32", [2], KEYS, bytes(range(8))),
        empty=("int4", [0, 2], "jax", b""),
    )


def test_loading_says_how_to_do_without_jax(no_jax: None) -> None:
    """Without jax an array of jax's is an error that names it and the way out, and not damage."""
    memory, ref = saved_arrays()
    lazy: Any = LazyState(ref, memory)
    for name, read in (
        ("w", lambda: load(ref, memory, None)),
        ("w", lambda: lazy["model"]["tied"]),
        ("rate", lambda: lazy["model"]["rate"]),
        ("key", lambda: find(ref, memory, "model/key")),
        ("empty", lambda: find(ref, memory, "model/empty")),
    ):
        with pytest.raises(CairnError, match=rf"^model/{name}: .*jax to be installed.* as_numpy=True") as error:
            read()
        assert error.type is CairnError


def test_as_numpy_gives_arrays(no_jax: None) -> None:
    """RELOAD-01, BF16: with `as_numpy` arrays have their type and shape, keys are their numbers, ties stay ties."""
    memory, ref = saved_arrays()
    found: Any = load(ref, memory, None, as_numpy=True)["model"]
    assert [(a.dtype.name, a.shape) for a in found.values()] == [
        ("bfloat16", (2, 3)), ("float32", ()), ("uint32", (2,)), ("int4", (0, 2)), ("bfloat16", (2, 3)),
    ]  # fmt: skip
    assert found["key"].tolist() == [0x03020100, 0x07060504]
    assert found["tied"] is found["w"]
    assert exact(LazyState(ref, memory, as_numpy=True).load()["model"]) == exact(found)
    assert [(entry.kind, entry.dtype) for entry in leaves(ref, memory.tree)][:3] == [
        ("tensor", "BF16"), ("tensor", "F32"), ("tensor", "U32"),
    ]  # fmt: skip


def test_a_store_of_arrays_of_jax_serves_those_without(
    no_jax: None, store: cairn.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RELOAD-01: listing, comparing, checking out and a plain reader need no jax; `load` says the way out."""
    run = store.run()
    state = {"model": {"w": np.arange(6, dtype="f4").reshape(2, 3)}, "rng": np.array([3, 4], np.uint32)}
    run.commit(state, step=1)
    of_numpy = tensors._of_numpy
    kinds = {np.dtype("f4"): "jax", np.dtype("u4"): KEYS}
    monkeypatch.setattr(
        tensors, "_of_numpy", lambda array: of_numpy(array)._replace(ending=f',"as":"{kinds[array.dtype]}"')
    )
    run.commit(state, step=2)
    assert [item.dtype for item in store.ls("step:2", "model")] == ["F32"]
    changes = store.diff("step:1", "step:2").changes
    assert [(change.path, change.kinds) for change in changes] == [("model/w", ("retyped",)), ("rng", ("retyped",))]
    assert store.verify().ok
    store.gc()
    assert exact(store.load("step:2", as_numpy=True)) == exact(state)
    assert store.cat("step:2", "rng", as_numpy=True).tolist() == [3, 4]
    assert [exact(found) for _, found in plain_reader.read(store.path)] == [exact(state)] * 2
    store.checkout("step:2", tmp_path / "out")
    raw = (tmp_path / "out/rng.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    assert [tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"] == ["U32"]
    with pytest.raises(CairnError, match=r"^model/w: .*as_numpy=True"):
        store.load("step:2")


def test_a_module_that_only_calls_itself_jax_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of that name without arrays, or one still being imported, changes nothing."""
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    assert len(sketch({"x": [np.zeros(2)]}).components["x"]) == 1
    with pytest.raises(UnsupportedValue, match="nothing is pickled"):
        sketch({"x": object()})


class Moments(NamedTuple):
    """A state as optax has it."""

    mean: Any


def test_named_tuples_are_refused_as_before_where_jax_is_not(no_jax: None) -> None:
    """What jax would take apart is a named tuple like any other to those who do not use it."""
    with pytest.raises(UnsupportedValue, match=r"^x: .*Moments; store tuple\(value\)"):
        sketch({"x": Moments(np.zeros(2))})
