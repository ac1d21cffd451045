"""Any state that mixes torch and numpy comes back bit for bit, tied as it was, however it is read."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cairn.strategies import Memory
from tests.torch.common import DTYPES, bits, filled, tensors_in, torch

from cairn.state.decode import load
from cairn.state.lazy import LazyMapping, LazyState
from cairn.state.walk import leaves, walk

anything = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def views(draw: st.DrawFn) -> list[Any]:
    """Tensors over a few memories: themselves, the same view again, other views, parameters, and numpy's arrays."""
    found: list[Any] = []
    for seed in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([name for name in DTYPES if name != "complex32"]))
        shape = tuple(draw(st.lists(st.sampled_from([2, 1, 3, 0]), min_size=1, max_size=3)))
        base = filled(name, shape, seed)
        found += [base, base[...], base.detach(), base.transpose(0, -1), base[:1], torch.nn.Parameter(base, False)]
        if base.is_complex():
            found += [base.conj(), base.conj().conj(), base.conj().imag]
        if name in ("float32", "int64"):
            found.append(base.numpy())
        if name in ("float32", "bfloat16"):
            found += [torch.nn.Parameter(base), filled(name, shape, seed)]
    return found


@st.composite
def states(draw: st.DrawFn) -> dict[str, Any]:
    """States of components over these tensors."""
    leaf = st.one_of(st.sampled_from(draw(views())), st.sampled_from([None, 1, 0.5, "text", True]))
    value = st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.sampled_from(["w", "b", 0, (1, "m")]), inner, max_size=4),
            st.lists(inner, min_size=1, max_size=3).map(_state_dict),
        ),
        max_leaves=12,
    )
    return draw(st.dictionaries(st.sampled_from(["model", "optimizer", "ema"]), value, min_size=1, max_size=3))


def _state_dict(items: list[Any]) -> OrderedDict[str, Any]:
    made = OrderedDict((f"layers.{number}.weight", item) for number, item in enumerate(items))
    vars(made)["_metadata"] = OrderedDict([("", {"version": len(items)})])
    return made


def memories(found: list[Any]) -> list[int]:
    """Numbers tensors by the memory that they are; none is that of an empty one."""
    keys = [
        (type(t), t.requires_grad, t.data_ptr(), t.dtype, t.shape, t.stride(), t.is_conj(), t.is_neg(), t.numel() or n)
        for n, t in enumerate(found)
    ]
    return [keys.index(key) for key in keys]


def objects(found: list[Any]) -> list[int]:
    """Numbers tensors by the objects that they are."""
    ids = [id(tensor) for tensor in found]
    return [ids.index(number) for number in ids]


def touched(value: Any) -> Any:
    """Reads a lazy mapping value by value."""
    return {key: touched(item) for key, item in value.items()} if isinstance(value, LazyState | LazyMapping) else value


@anything
@given(states())
def test_any_state_comes_back(state: dict[str, Any]) -> None:
    """Types, bits, order and ties are those of the state; nothing loaded shares memory unless it is tied."""
    memory = Memory()
    ref = memory.save(state)
    found: Any = load(ref, memory, None)
    assert bits(found) == bits(state)
    tensors = [*tensors_in(found)]
    assert objects(tensors) == memories([*tensors_in(state)])
    assert memory.save(found) == ref
    starts = [tensor.data_ptr() for tensor in tensors if tensor.numel()]
    assert len(set(starts)) == len({id(tensor) for tensor in tensors if tensor.numel()})


@anything
@given(states())
def test_any_state_is_read_in_every_way(state: dict[str, Any]) -> None:
    """A walk meets every blob, a listing every tensor, and touching a lazy state gives what loading gives."""
    memory = Memory()
    ref = memory.save(state)
    assert {node.ref.id for node in walk(ref, memory.tree)} == set(memory.blobs)
    entries = [entry for entry in leaves(ref, memory.tree) if entry.kind in ("tensor", "tie")]
    assert len(entries) >= len([*tensors_in(state)])
    lazy = LazyState(ref, memory)
    held = [*tensors_in(touched(lazy))]
    assert [bits(tensor) for tensor in held] == [bits(tensor) for tensor in tensors_in(state)]
    assert objects(held) == memories([*tensors_in(state)])
    assert bits(lazy.load()) == bits(state)
    numpy: Any = load(ref, memory, None, as_numpy=True)
    assert not [*tensors_in(numpy)]
