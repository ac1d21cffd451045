"""States for the tests of several files: how to make any, keep one in memory, and compare two bit for bit."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from cairn import canonical
from cairn.errors import Damaged
from cairn.ids import BlobRef, blob_id
from cairn.state import arrays, dtypes
from cairn.state.arrays import Array
from cairn.state.encode import cut, sketch
from cairn.state.source import Fetch

T = TypeVar("T")

TIME_NAMES = ("datetime64[ns]", "datetime64[25s]", "timedelta64[D]")
"""Without the units-free ones, which numpy can neither print nor hash."""
DTYPE_NAMES = (*dtypes.ITEMSIZES, *TIME_NAMES)


class Memory:
    """Blobs in a dict, checked when read: the plainest source there is."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.reads: list[str] = []
        self.trees: set[str] = set()
        self.afterwards: list[Callable[[], None]] = []

    def put(self, data: bytes | memoryview) -> BlobRef:
        ref = BlobRef(blob_id(data), len(data))
        self.blobs[ref.id] = bytes(data)
        return ref

    def put_tree(self, data: bytes) -> BlobRef:
        """Keeps a tree, which must be spelled as every reader expects."""
        canonical.decode(data, "a tree that was just written")
        ref = self.put(data)
        self.trees.add(ref.id)
        return ref

    def tree(self, ref: BlobRef) -> bytes:
        data = self.blobs.get(ref.id)
        if data is None or blob_id(data) != ref.id or len(data) != ref.size:
            raise Damaged(f"blob {ref.id}: expected {ref.size} bytes that hash to it, found others or none")
        self.reads.append(ref.id)
        return data

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        return memoryview(b"".join([self.tree(ref) for ref in refs])).toreadonly()

    def view(self, refs: Sequence[BlobRef]) -> memoryview:
        return self.data(refs)

    def fill(self, refs: Sequence[BlobRef], target: memoryview) -> None:
        target[:] = self.data(refs)

    def after(self, do: Callable[[], None]) -> None:
        self.afterwards.append(do)

    def fetched(self, build: Callable[[Fetch], T], threads: int | None = None) -> T:
        made = build(self)
        for do in self.afterwards:
            do()
        self.afterwards.clear()
        return made

    def save(self, state: Mapping[str, object]) -> BlobRef:
        """Does what a store does with a state."""
        plan = sketch(state)
        refs = {}
        for leaves in plan.components.values():
            for leaf in leaves:
                data = leaf.data()
                assert data.format == "B"
                assert data.ndim == 1
                assert data.nbytes == leaf.nbytes > 0
                refs[leaf] = [self.put(data[start:end]) for start, end in cut(leaf.nbytes)]
        return plan.manifest(refs, self.put_tree)


def saved(**tensors: tuple[str, list[int], str, bytes]) -> tuple[Memory, BlobRef]:
    """Saves tensors by dtype, shape, kind and bytes, as a state of torch's or jax's is saved."""
    memory = Memory()
    nodes: dict[str, object] = {
        name: {
            "$tensor": {"dtype": dtype, "shape": shape, "blobs": [[*memory.put(data)]] if data else [], "as": kind},
        }
        for name, (dtype, shape, kind, data) in tensors.items()
    }
    tree = memory.put_tree(canonical.encode(nodes | {"tied": {"$tie": [next(iter(nodes))]}}))
    return memory, memory.put_tree(canonical.encode({"components": {"model": [*tree]}, "ties": []}))


def exact(value: object) -> object:
    """Turns a value into one whose == tells every bit, type, key order and dtype, but not which memory it is."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        return (kind, value.dtype.name, arrays.is_big(value.dtype), value.shape, value.tobytes())
    if isinstance(value, np.generic):
        return (kind, value.dtype.name, value.tobytes())
    if isinstance(value, OrderedDict) and vars(value):
        return (kind, exact(OrderedDict(value)), exact(vars(value)))
    if isinstance(value, Mapping):
        return (kind, [(exact(key), exact(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (kind, [exact(item) for item in value])
    if isinstance(value, float):
        return (kind, struct.pack("<d", value))
    if isinstance(value, complex):
        return (kind, struct.pack("<dd", value.real, value.imag))
    return (kind, value)


def arrays_in(value: object) -> list[Array]:
    """The arrays of a state that are not empty, in order, each as often as it occurs."""
    if isinstance(value, np.ndarray):
        return [value] if value.nbytes else []
    if isinstance(value, Mapping):
        attributes = vars(value) if isinstance(value, OrderedDict) else {}
        return [found for item in (*value.values(), *attributes.values()) for found in arrays_in(item)]
    if isinstance(value, list | tuple):
        return [found for item in value for found in arrays_in(item)]
    return []


def memories(found: list[Array]) -> list[int]:
    """Numbers arrays by their memory: the same number is the same address, dtype, shape and strides."""
    keys = [(a.__array_interface__["data"][0], a.dtype, a.shape, a.strides) for a in found]
    return [keys.index(key) for key in keys]


def objects(found: list[Array]) -> list[int]:
    """Numbers arrays by their identity."""
    ids = [id(array) for array in found]
    return [ids.index(number) for number in ids]


@st.composite
def tensors(draw: st.DrawFn) -> Array:
    """Arrays of every dtype, byte order, small shape and memory order, with any bits."""
    name = draw(st.sampled_from(DTYPE_NAMES))
    dtype = arrays.dtype_of(name, big=draw(st.booleans()))
    assert dtype is not None
    shape = tuple(draw(st.lists(st.sampled_from([2, 1, 3, 0]), max_size=3)))
    layout = draw(st.sampled_from(["C", "F", "strided", "backwards", "broadcast", "offset"]))
    if layout == "broadcast":
        return np.broadcast_to(_filled(draw, shape, dtype), (2, *shape))
    if layout == "F":
        return _filled(draw, shape[::-1], dtype).T
    if layout == "strided" and shape:
        return _filled(draw, (*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
    if layout == "backwards":
        return _filled(draw, shape, dtype)[(slice(None, None, -1),) * len(shape)]
    if layout == "offset" and shape:
        return _filled(draw, (shape[0] + 1, *shape[1:]), dtype)[1:]
    return _filled(draw, shape, dtype)


def _filled(draw: st.DrawFn, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    made = np.zeros(shape, dtype)
    if made.nbytes:
        data = draw(st.binary(min_size=1, max_size=32))
        made.reshape(-1).view(np.uint8)[:] = np.resize(np.frombuffer(data, np.uint8), made.nbytes)
    return made


def _scalar(name: str, data: bytes) -> object:
    dtype = arrays.dtype_of(name, big=False)
    assert dtype is not None
    return np.frombuffer(data[: dtype.itemsize], dtype)[0]


scalars = st.builds(_scalar, st.sampled_from(DTYPE_NAMES), st.binary(min_size=16, max_size=16))
floats = st.one_of(st.floats(), st.binary(min_size=8, max_size=8).map(lambda data: struct.unpack("<d", data)[0]))
texts = st.one_of(st.text(max_size=6), st.text(st.characters(), max_size=3), st.sampled_from(["$", "$tensor", "", "/"]))
atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 80), 1 << 80),
    floats,
    st.builds(complex, floats, floats),
    texts,
    st.binary(max_size=12),
    scalars,
)
keys = st.recursive(atoms, lambda inner: st.lists(inner, max_size=2).map(tuple), max_leaves=3)


@st.composite
def states(draw: st.DrawFn) -> dict[str, object]:
    """States of several components over a few memories, which occur again as themselves and as other views."""
    pool = [draw(tensors()) for _ in range(draw(st.integers(1, 4)))]
    views = [*pool, *(array[...] for array in pool), *(array.T for array in pool)]
    names = draw(st.lists(st.sampled_from(["model", "optimizer", "rng", "0"]), min_size=1, max_size=4, unique=True))
    return {name: draw(_values(views, 0)) for name in names}


_LEAVES = ("array", "array", "atom")
_CONTAINERS = ("list", "tuple", "dict", "dict", "map", "ordered", "counter", "attributed")


@st.composite
def _values(draw: st.DrawFn, views: list[Array], depth: int) -> object:
    kind = draw(st.sampled_from(_LEAVES if depth == 4 else (*_CONTAINERS, *_LEAVES) if depth else _CONTAINERS))
    if kind == "array":
        return views[draw(st.integers(0, len(views) - 1))]
    if kind == "atom":
        return draw(atoms)
    items = [draw(_values(views, depth + 1)) for _ in range(draw(st.sampled_from([2, 3, 1, 0])))]
    if kind in ("list", "tuple"):
        return items if kind == "list" else tuple(items)
    names = [draw(texts if kind == "dict" else keys) for _ in items]
    pairs = zip(names, items, strict=True)
    if kind == "counter":
        return Counter(dict(pairs))
    if kind == "attributed":
        made = OrderedDict(pairs)
        vars(made)["_metadata"] = draw(_values(views, depth + 1))
        return made
    return OrderedDict(pairs) if kind == "ordered" else dict(pairs)
