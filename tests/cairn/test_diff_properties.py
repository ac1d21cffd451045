"""diff of arbitrary states: empty exactly where manifests are equal, and one mutation is one place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cairn.strategies import Memory, arrays_in, atoms, states, tensors

from cairn.history.commit import Commit
from cairn.ids import BlobRef
from cairn.state import arrays, paths
from cairn.state.paths import Scalar
from cairn.store.comparison import Comparison
from cairn.store.diff import Diff

Steps = tuple[Any, ...]
State = dict[str, Any]

values = st.one_of(
    tensors(),
    atoms,
    st.lists(st.one_of(atoms, tensors()), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "$c", ""]), st.one_of(atoms, tensors()), max_size=3),
)


def shown(key: Any) -> Any:
    """A key as paths spell it: numpy's scalars by their bits."""
    if isinstance(key, np.generic):
        name = arrays.name_of(key.dtype)
        assert name is not None
        return Scalar(name, arrays.scalar_bytes(key, name))
    return tuple(map(shown, key)) if type(key) is tuple else key


def path_of(steps: Steps) -> str:
    """The path of a place."""
    return paths.readable(str(steps[0]), map(shown, steps[1:]))


def places(value: Any, steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Everything in a state: the keys that lead there, and what is there."""
    if steps:
        yield steps, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*steps, key))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from places(item, (*steps, place))


def is_rebuilt_exactly(value: Any) -> bool:
    """Whether the mutations below can rebuild a value: mappings with attributes and counters are not theirs."""
    if isinstance(value, dict):
        known = type(value) is dict or (type(value) is OrderedDict and not vars(value))
        return known and all(map(is_rebuilt_exactly, value.values()))
    return not isinstance(value, list | tuple) or all(map(is_rebuilt_exactly, value))


def replaced(value: Any, steps: Steps, new: Any) -> Any:
    """The state with something else at one place; all arrays elsewhere stay the same memory."""
    if not steps:
        return new
    if isinstance(value, dict):
        pairs = [(key, replaced(item, steps[1:], new) if key is steps[0] else item) for key, item in value.items()]
        return OrderedDict(pairs) if isinstance(value, OrderedDict) else dict(pairs)
    items = [replaced(item, steps[1:], new) if place == steps[0] else item for place, item in enumerate(value)]
    return tuple(items) if isinstance(value, tuple) else items


def without(value: Any) -> Any:
    """A container without its last entry."""
    if isinstance(value, dict):
        pairs = list(value.items())[:-1]
        return OrderedDict(pairs) if isinstance(value, OrderedDict) else dict(pairs)
    return value[:-1]


def turned(value: Any) -> Any:
    """A mapping with its entries in reverse, or a sequence of the other type."""
    if isinstance(value, OrderedDict):
        return dict(value)
    if isinstance(value, dict):
        return dict(reversed(value.items()))
    return tuple(value) if isinstance(value, list) else list(value)


@st.composite
def mutations(draw: st.DrawFn) -> tuple[State, State, Steps, Any, Any]:
    """A state, the same with one place mutated, the place, and what was and is there."""
    state: Any = draw(states().filter(is_rebuilt_exactly))
    steps, old = draw(st.sampled_from(list(places(state))))
    kind = draw(st.sampled_from(["new", "new", "copy", "without", "turned", "other"]))
    new = draw(values.filter(is_rebuilt_exactly))
    if kind == "copy" and isinstance(old, np.ndarray):
        new = old.copy()
    elif kind == "without" and isinstance(old, dict | list | tuple) and old:
        new = without(old)
    elif kind == "turned" and isinstance(old, dict | list | tuple):
        new = turned(old)
    elif kind == "other" and arrays_in(state):
        new = draw(st.sampled_from(arrays_in(state)))
    return state, replaced(state, steps, new), steps, old, new


def memory(array: Any) -> object:
    """What arrays of one memory have in common."""
    return array.__array_interface__["data"][0], array.dtype, array.shape, array.strides


class Plain:
    """As much of a store as comparing needs: blobs in a dict."""

    def __init__(self) -> None:
        memory = Memory()
        self.save, self.tree, self.data, self.blobs = memory.save, memory.tree, memory.data, self

    def prefer(self, packs: Sequence[str]) -> None:
        """There are no packs."""


def committed(manifest: BlobRef) -> Commit:
    """A commit that was never written."""
    return Commit(manifest.id, manifest.id, (), "main", 1, None, {}, None, "", {}, (), manifest.size, ())


def both_ways(before: State, after: State, path: str | None = None) -> tuple[Diff, Diff]:
    """Compare two states in full, and back."""
    core: Any = Plain()
    one, other = committed(core.save(before)), committed(core.save(after))
    there = Comparison(core, one, other, path, None).run(values=True, advance=lambda nbytes: None)
    return there, Comparison(core, other, one, path, None).run(values=True, advance=lambda nbytes: None)


def check(found: Diff, back: Diff) -> None:
    """Empty exactly where the manifests are equal; the way back is the same, unless the order says what is first."""
    assert found.same == (found.before.manifest == found.after.manifest) == (not found.changes)
    assert back.same == found.same
    if any("reordered" in change.kinds for change in found.changes):
        return
    mirror = {"added": "removed", "removed": "added"}
    for change, reverse in zip(found.changes, back.changes, strict=True):
        assert change.path == reverse.path
        assert repr((change.before, change.after)) == repr((reverse.after, reverse.before))  # NaN is not itself.
        assert change.kinds == tuple(mirror.get(kind, kind) for kind in reverse.kinds)
        assert (change.numbers is None) == (reverse.numbers is None)
        if change.numbers and reverse.numbers:
            assert (change.numbers.changed, change.numbers.nan) == (reverse.numbers.changed, reverse.numbers.nan)
            assert change.numbers.max_abs == reverse.numbers.max_abs


@settings(max_examples=150, deadline=None)
@given(mutations())
def test_one_mutation_is_one_place(mutation: tuple[State, State, Steps, Any, Any]) -> None:
    """Whatever is put in one place, every change is there or below; of what shared its memory, only ties change."""
    before, after, steps, old, new = mutation
    found, back = both_ways(before, after)
    check(found, back)
    touched = {memory(array) for array in [*arrays_in(old), *arrays_in(new)]}
    shared = {
        path_of(other)
        for state in (before, after)
        for other, value in places(state)
        if isinstance(value, np.ndarray) and memory(value) in touched
    }
    path = path_of(steps)
    for change in found.changes:
        here = change.path == path or change.path.startswith(f"{path}/")
        assert here or (change.kinds == ("retied",) and change.path in shared), change


@settings(max_examples=60, deadline=None)
@given(states(), states())
def test_a_diff_is_empty_exactly_where_manifests_are_equal(before: State, after: State) -> None:
    """Any two states, and each with itself, compared in full although the manifests say it already."""
    check(*both_ways(before, after))
    check(*both_ways(before, before))
    name = next(iter(before))
    assert both_ways(before, before, name)[0].same
