"""What cannot be kept is refused before anything is written."""

from __future__ import annotations

import enum
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from tests.cairn import folders

import cairn


def state(value: float, size: int = 8) -> dict[str, Any]:
    """Make a state with a tie between its components."""
    weight = np.full(size, value)
    return {"model": {"w": weight, "b": np.arange(3)}, "optimizer": {"params": [weight], "t": 1}, "rng": [1, 2]}


class Colour(enum.Enum):
    """Something that is no plain value."""

    RED = 1


BAD_STATES: dict[str, Any] = {
    "no mapping": [("model", 1)],
    "component that is no str": {1: 2},
    "component with a slash": {"a/b": 1},
    "component without a name": {"": 1},
    "set": {"model": {"deep": [1, {2}]}},
    "enum": {"model": {"deep": [1, Colour.RED]}},
    "function": {"model": {"deep": [1, print]}},
    "objects": {"model": {"deep": [1, np.array([None])]}},
    "text array": {"model": {"deep": [1, np.array(["x"])]}},
    "fields": {"model": {"deep": [1, np.zeros(2, "i4,f4")]}},
    "long double": {"model": {"deep": [1, np.zeros(2, np.longdouble)]}},
    "subclass of dict": {"model": {"deep": [1, defaultdict(list)]}},
    "subclass of ndarray": {"model": {"deep": [1, np.ma.masked_array([1.0])]}},
    "bytearray": {"model": {"deep": [1, bytearray(b"x")]}},
    "range": {"model": {"deep": [1, range(3)]}},
    "key": {"model": {"deep": [1, {frozenset(): 2}]}},
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_a_state_that_cannot_be_kept_is_refused_before_anything_is_written(name: str, store: cairn.Store) -> None:
    """The error says where the value is and what to store instead, and the folder is as it was."""
    run = store.run()
    run.commit(state(1), step=1)
    before = folders.listing(store.path)
    with pytest.raises(cairn.UnsupportedValue, match=r"model/deep/1|state: ") as caught:
        run.commit({"good": np.arange(5), **BAD_STATES[name]} if name != "no mapping" else BAD_STATES[name], step=2)
    assert len(str(caught.value)) < 600
    assert folders.listing(store.path) == before


def test_a_container_inside_itself_is_refused(store: cairn.Store) -> None:
    """A cycle is found and named, not followed."""
    loop: list[object] = [1]
    loop.append(loop)
    with pytest.raises(cairn.UnsupportedValue, match="inside itself"):
        store.run().commit({"model": {"loop": loop}}, step=1)
    assert store.runs() == []


BAD_ARGUMENTS: dict[str, dict[str, Any]] = {
    "negative step": {"step": -1},
    "float step": {"step": 1.0},
    "bool step": {"step": True},
    "huge step": {"step": (1 << 53) + 1},
    "text step": {"step": "1"},
    "text epoch": {"step": 2, "epoch": "1"},
    "text metric": {"step": 2, "metrics": {"loss": "1"}},
    "bool metric": {"step": 2, "metrics": {"ok": True}},
    "complex metric": {"step": 2, "metrics": {"z": 1j}},
    "huge metric": {"step": 2, "metrics": {"n": 1 << 60}},
    "array metric": {"step": 2, "metrics": {"n": np.arange(2)}},
    "metric without a name": {"step": 2, "metrics": {"": 1}},
    "metric with a colon": {"step": 2, "metrics": {"a:b": 1}},
    "metric that is no text": {"step": 2, "metrics": {1: 1}},
    "message of bytes": {"step": 2, "message": b"x"},
    "message that is no text": {"step": 2, "message": "half a pair: \ud800"},
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_an_argument_without_meaning_is_refused_before_anything_is_written(name: str, store: cairn.Store) -> None:
    """Steps, epochs, metrics and messages are checked first; the folder is as it was."""
    run = store.run()
    run.commit(state(1), step=1)
    before = folders.listing(store.path)
    with pytest.raises(cairn.UsageError) as caught:
        run.commit(state(2), **BAD_ARGUMENTS[name])
    assert caught.value.exit_code == 2
    assert folders.listing(store.path) == before
