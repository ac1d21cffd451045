"""Any state comes back bit for bit, whatever is in it and however it is read."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.cairn import strategies
from tests.cairn.strategies import Memory, arrays_in, exact, memories, objects

from cairn.state import lengths
from cairn.state.decode import load, read_manifest
from cairn.state.lazy import LazyMapping, LazyState
from cairn.state.walk import leaves, walk

anything = settings(
    max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def touched(value: object) -> object:
    """Turns a lazy mapping into a dict by touching every value, or into an OrderedDict if it has an attribute."""
    if not isinstance(value, LazyMapping | LazyState):
        return value
    found = {key: touched(item) for key, item in value.items()}
    if not isinstance(value, LazyMapping) or not hasattr(value, "_metadata"):
        return found
    ordered = OrderedDict(found)
    vars(ordered)["_metadata"] = value._metadata
    return ordered


@anything
@given(strategies.states())
@example({"model": {"w": (one := np.ones(3)), "v": one[...], "t": one[::-1]}, "optimizer": [one, one[::-1]]})
def test_a_state_comes_back_bit_for_bit(state: dict[str, object]) -> None:
    """Types, bits, key order and ties are those of the state, within and across components."""
    memory = Memory()
    ref = memory.save(state)
    back = load(ref, memory, None, copy=False)
    assert exact(back) == exact(state)
    assert objects(arrays_in(back)) == memories(arrays_in(state))
    assert not any(array.flags.writeable for array in arrays_in(back))


@anything
@given(strategies.states())
def test_copies_are_fresh_and_tied_like_the_state(state: dict[str, object]) -> None:
    """With `copy` every array may be written to, and only tied names share memory."""
    memory = Memory()
    found = arrays_in(back := load(memory.save(state), memory, None, copy=True))
    assert exact(back) == exact(state)
    assert objects(found) == memories(arrays_in(state))
    assert all((array.flags.writeable and array.flags.owndata) or array.base is not None for array in found)
    for number, array in zip(objects(found), found, strict=True):
        for other_number, other in zip(objects(found), found, strict=True):
            assert np.shares_memory(array, other) == (number == other_number)


@anything
@given(strategies.states())
def test_the_same_state_has_the_same_trees(state: dict[str, object]) -> None:
    """Saving a state again, or what was loaded from it, gives the same manifest and no new blob."""
    memory = Memory()
    ref = memory.save(state)
    blobs = set(memory.blobs)
    assert memory.save(state) == ref
    assert memory.save(load(ref, memory, None, copy=True)) == ref
    assert memory.save(load(ref, memory, None, copy=False)) == ref
    assert set(memory.blobs) == blobs


@anything
@given(strategies.states())
def test_readers_measure_trees_as_they_are_written(state: dict[str, object]) -> None:
    """What readers compute as the length of a node, to judge how containers were split, is its length."""
    memory = Memory()
    memory.save(state)
    for name in memory.trees:
        assert lengths.length(json.loads(memory.blobs[name])) == len(memory.blobs[name])


@anything
@given(strategies.states())
def test_a_walk_meets_every_blob(state: dict[str, object]) -> None:
    """A walk names exactly the blobs that were written, and knows which of them are trees."""
    memory = Memory()
    ref = memory.save(state)
    nodes = list(walk(ref, memory.tree))
    assert nodes[0].ref == ref
    assert {node.ref.id for node in nodes} == set(memory.blobs)
    assert {node.ref.id for node in nodes if node.is_tree} == memory.trees
    assert all(len(memory.blobs[node.ref.id]) == node.ref.size for node in nodes)


@anything
@given(strategies.states())
def test_a_lazy_state_holds_the_same(state: dict[str, object]) -> None:
    """Touching everything gives what loading gives, but with mappings for dicts; ties hold while arrays are held."""
    memory = Memory()
    lazy = LazyState(memory.save(state), memory)
    assert list(lazy) == list(state)
    found = {name: touched(item) for name, item in lazy.items()}
    assert untyped(exact(found)) == untyped(exact(state))
    assert objects(arrays_in(found)) == memories(arrays_in(state))
    assert exact(lazy.load()) == exact(state)


@anything
@given(strategies.states(), st.data())
def test_chosen_components_come_alone(state: dict[str, object], data: st.DataObject) -> None:
    """Each component stands alone: any choice of them loads, and ties among the chosen hold."""
    memory = Memory()
    ref = memory.save(state)
    assert list(read_manifest(ref, memory).components) == list(state)
    only = data.draw(st.sets(st.sampled_from(list(state)))) if state else set()
    chosen = {name: item for name, item in state.items() if name in only}
    back = load(ref, memory, only, copy=False)
    assert exact(back) == exact(chosen)
    assert objects(arrays_in(back)) == memories(arrays_in(chosen))
    skipped = {node.ref.id for node in walk(ref, memory.tree, skip=set(state) - only)}
    assert {ref.id, *(node.ref.id for node in walk(Memory.save(memory, chosen), memory.tree))} >= skipped - {ref.id}


@anything
@given(strategies.states())
def test_listing_names_every_value_once(state: dict[str, object]) -> None:
    """`leaves` gives every tensor, tie and value in order, each under its own path."""
    memory = Memory()
    entries = list(leaves(memory.save(state), memory.tree))
    assert [entry.kind in ("tensor", "tie") for entry in entries if entry.shape and entry.nbytes] == [True] * len(
        [array for array in arrays_in(state) if array.shape]
    )
    assert len(entries) == count(state)


def count(value: object, top: bool = True) -> int:
    """Counts the values of a state that have no parts."""
    parts = list(value.values()) if isinstance(value, Mapping) else value
    attributes = list(vars(value).values()) if isinstance(value, OrderedDict) else []
    if not isinstance(parts, list | tuple):
        return 1
    return sum(count(part, top=False) for part in (*parts, *attributes)) + (not parts and not top)


def untyped(value: object) -> object:
    """Makes what `exact` says of an OrderedDict and a dict the same."""
    if isinstance(value, tuple | list):
        return type(value)(untyped(item) for item in value)
    return dict if isinstance(value, type) and issubclass(value, dict) else value
