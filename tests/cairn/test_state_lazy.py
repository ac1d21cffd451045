"""A lazy state reads what is touched, and nothing else."""

from __future__ import annotations

import gc
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from tests.cairn.strategies import Memory, exact

from cairn.errors import Damaged
from cairn.ids import BlobRef, blob_id
from cairn.state import reader
from cairn.state.lazy import LazyMapping, LazyState


def opened(state: dict[str, object]) -> tuple[Memory, Any]:
    """Saves a state, forgets what was read, and opens it."""
    memory = Memory()
    lazy = LazyState(memory.save(state), memory)
    memory.reads.clear()
    return memory, lazy


def test_only_what_is_touched_is_read() -> None:
    """Opening reads the manifest, a component its tree, a tensor its blob."""
    one, two = np.arange(3.0), np.arange(4.0)
    memory = Memory()
    ref = memory.save({"model": {"w": one, "v": two}, "optimizer": {"m": two[::-1]}})
    memory.reads.clear()
    lazy: Any = LazyState(ref, memory)
    assert memory.reads == [ref.id]
    assert list(lazy) == ["model", "optimizer"]
    assert memory.reads == [ref.id]
    model = lazy["model"]
    assert list(model) == ["w", "v"]
    assert len(memory.reads) == 2
    assert np.array_equal(model["w"], one)
    assert memory.reads[2:] == [blob_id(one.data)]


def test_damage_elsewhere_does_not_matter() -> None:
    """A damaged tensor raises when it is touched, and only then."""
    good, bad = np.arange(3.0), np.arange(4.0)
    memory, lazy = opened({"model": {"good": good, "bad": bad}, "other": [good]})
    memory.blobs[blob_id(bad.data)] = bytes(32)
    assert np.array_equal(lazy["model"]["good"], good)
    assert np.array_equal(lazy["other"][0], good)
    with pytest.raises(Damaged):
        lazy["model"]["bad"]
    with pytest.raises(Damaged):
        lazy.load()


def test_dicts_stay_lazy_at_every_depth() -> None:
    """Dicts of any kind are lazy mappings in the order they had; lists, tuples and scalars are decoded on touch."""
    value = {"d": {"b": {"a": 1}}, "o": OrderedDict(z=1, a=(2.5, [{}])), "m": {(1, 2): "t", None: {0: 0}, "s": b"x"}}
    _, lazy = opened({"x": value})
    x = lazy["x"]
    assert [type(item) for item in (x, x["d"]["b"], x["o"])] == [LazyMapping] * 3
    assert list(x["o"]) == ["z", "a"]
    assert x["o"]["a"] == (2.5, [{}])
    assert list(x["m"]) == [(1, 2), None, "s"]
    assert x["m"][1, 2] == "t"
    assert x["m"][None][0] == 0
    assert exact(x.load()) == exact(value)
    assert type(x["o"].load()) is OrderedDict
    assert exact(lazy.load()) == exact({"x": value})
    assert repr(x["m"]) == "<lazy dict x/m of 3>"


def test_a_lazy_mapping_is_a_mapping() -> None:
    """Membership, length, missing keys and `get` are those of a dict."""
    _, lazy = opened({"x": {"a": 1, 2: 3}, "y": 4})
    assert (len(lazy), len(lazy["x"])) == (2, 2)
    assert "x" in lazy
    assert "z" not in lazy
    assert 2 in lazy["x"]
    assert "2" not in lazy["x"]
    assert lazy["x"].get("q", 5) == 5
    assert dict(lazy["x"]) == {"a": 1, 2: 3}
    for missing in ("z", 0):
        with pytest.raises(KeyError):
            lazy[missing]
        with pytest.raises(KeyError):
            lazy["x"][missing]


def test_tied_tensors_are_one_array() -> None:
    """Every name of one memory gives the same array, in any order of touching, across dicts, lists and components."""
    w, other = np.arange(3.0), np.arange(3.0)
    state: dict[str, object] = {
        "model": {"w": w, "head": w, "m": {1: w, "q": other}, "list": [other, (w,)]},
        "ema": {"w": w, "again": w},
        "last": {"w": w},
    }
    _, lazy = opened(state)
    found = [
        lazy["last"]["w"],
        lazy["model"]["list"][1][0],
        lazy["ema"]["again"],
        lazy["model"]["m"][1],
        lazy["model"]["head"],
        lazy["ema"]["w"],
        lazy["model"]["w"],
    ]
    assert len({id(array) for array in found}) == 1
    assert lazy["model"]["m"]["q"] is not found[0]
    again = lazy["model"]["w"]
    assert again is found[0]


def test_arrays_that_nobody_holds_are_given_back() -> None:
    """A lazy state does not keep what was touched: it is read again, bit for bit."""
    memory, lazy = opened({"model": {"w": np.arange(3.0)}})
    first = lazy["model"]["w"].tobytes()
    gc.collect()
    reads = len(memory.reads)
    assert lazy["model"]["w"].tobytes() == first
    assert len(memory.reads) == reads + 1


def test_arrays_are_read_only_unless_copied() -> None:
    """What is touched cannot be changed; `load(copy=True)` gives arrays that can."""
    _, lazy = opened({"model": {"w": np.arange(3.0), "e": np.zeros(0)}})
    with pytest.raises(ValueError, match="read-only"):
        lazy["model"]["w"][0] = 1
    assert not lazy["model"]["e"].flags.writeable
    assert lazy.load(copy=True)["model"]["w"].flags.writeable


def test_touching_the_same_again_is_never_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on the trees of a commit counts one reading, not all touches of a long session."""
    monkeypatch.setattr(reader, "MAX_EXPANDED_BYTES", 200_000)
    _, lazy = opened({"x": {"long": [0.5] * 6_000}})
    for _ in range(5):
        assert len(lazy["x"]["long"]) == 6_000
        assert len(lazy["x"].load()["long"]) == 6_000


def test_a_false_tie_is_found_when_touched() -> None:
    """A tie that leads nowhere, or to what is no tensor, is an error of the value that has it."""
    memory = Memory()
    for steps in (b"[1]", b'["a","b"]', b'["a",0]', b'["a"]', b'["l",5]', b'["l",0,0]', b"[]"):
        tree = memory.put(b'{"a":1,"l":[{}],"t":{"$tie":' + steps + b"}}")
        manifest = b'{"components":{"x":["%s",%d]},"ties":[]}' % (tree.id.encode(), tree.size)
        lazy: Any = LazyState(memory.put(manifest), memory)
        assert lazy["x"]["a"] == 1
        with pytest.raises(Damaged, match=r"at x/t: .*earlier tensor"):
            lazy["x"]["t"]


def test_a_damaged_manifest_is_found_at_once() -> None:
    """There is nothing to open without the manifest."""
    with pytest.raises(Damaged):
        LazyState(BlobRef("0" * 64, 5), Memory())
