"""One tensor of the bytes that are stored for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cairn.ids import BlobRef
from cairn.state import arrays, dtypes, jax_values, torch_values
from cairn.state.arrays import Array
from cairn.state.paths import Scalar
from cairn.state.place import Place
from cairn.state.source import Fetch
from cairn.state.stored import BlobSource
from cairn.state.syntax import Long, Tensor
from cairn.state.trees import JAX_KINDS

Make = Callable[[Tensor, Fetch, Place], Any]
"""Makes what a tensor is loaded as. Raises Damaged."""


@dataclass(frozen=True, slots=True)
class Live:
    """Makes numpy arrays, read-only views of the store unless `copy`, and what torch and jax had as theirs, fresh.

    With `as_numpy` everything is an array, and that of a packed type has its bytes.
    """

    copy: bool = False
    as_numpy: bool = False

    def __call__(self, node: Tensor, fetch: Fetch, place: Place) -> Any:
        """Make a tensor. Raises Damaged, and CairnError when torch or jax is not there."""
        if node.kind is None or self.as_numpy:
            return self._array(node, fetch, place)
        if node.kind in JAX_KINDS:
            # jax makes its arrays of values that are there.
            return jax_values.array_from(array(node, fetch, place, copy=True), node.kind, place.path)
        tensor, memory = torch_values.fresh(node.dtype, node.shape, node.kind, place.path)
        if node.blobs:
            fetch.fill(node.blobs, memory)
            if arrays.BIG_HOST:
                fetch.after(lambda: arrays.swap(np.frombuffer(memory, np.uint8), node.dtype))
        return tensor

    def _array(self, node: Tensor, fetch: Fetch, place: Place) -> Array:
        name = "U8" if node.dtype in dtypes.PACKED else node.dtype
        dtype, shape = _dtype(name, node.big, place), dtypes.in_bytes(node.dtype, node.shape)
        swapped = arrays.is_big(dtype)
        if node.blobs and not self.copy and not swapped:
            data = fetch.view(node.blobs)
            if data is not None and data.nbytes != node.nbytes:
                place.refuse(f"expected blobs of {node.nbytes} bytes, found {data.nbytes}")
            view = arrays.view_of(data, dtype, shape) if data is not None else None
            if view is not None:
                return view
        made = np.empty(shape, dtype)
        if node.blobs:
            memory = arrays.bytes_of(made)
            fetch.fill(node.blobs, memory)
            if swapped:
                fetch.after(lambda: arrays.swap(np.frombuffer(memory, np.uint8), name))
        made.flags.writeable = self.copy
        return made


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor as it is stored, for those who pass its bytes on: C order, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    blobs: tuple[BlobRef, ...]


def stored(node: Tensor, fetch: Fetch, place: Place) -> StoredTensor:
    """Take a tensor as it is stored, unread."""
    return StoredTensor(node.dtype, node.shape, node.nbytes, node.blobs)


def array(node: Tensor, source: BlobSource, place: Place, copy: bool) -> Array:
    """Make an array. Raises Damaged."""
    name = "U8" if node.dtype in dtypes.PACKED else node.dtype
    dtype, shape = _dtype(name, node.big, place), dtypes.in_bytes(node.dtype, node.shape)
    if not node.blobs:
        return arrays.empty(dtype, shape, copy)
    return arrays.array_from(data_of(node, source, place), name, dtype, shape, copy)


def scalar(node: Scalar, place: Place) -> object:
    """Make a numpy scalar. Raises Damaged."""
    return arrays.scalar_from(node.data, _dtype(node.dtype, False, place), node.dtype)


def live_key(key: object, place: Place) -> object:
    """The key of a mapping as Python has it: numpy scalars made, also inside tuples. Raises Damaged."""
    if isinstance(key, Scalar):
        made = scalar(key, place)
        try:
            hash(made)
        except (TypeError, ValueError):
            place.refuse(f"expected a key that can be hashed, found {key}")
        return made
    if type(key) is tuple:
        return tuple([live_key(item, place) for item in key])
    return key


def data_of(node: Tensor | Long, source: BlobSource, place: Place) -> memoryview:
    """The bytes of the blobs of a node. Raises Damaged."""
    data = source.data(node.blobs)
    if data.nbytes != node.nbytes:
        place.refuse(f"expected blobs of {node.nbytes} bytes, found {data.nbytes}")
    return data


def _dtype(name: str, big: bool, place: Place) -> arrays.DType:
    dtype = arrays.dtype_of(name, big)
    if dtype is None:
        place.refuse(f"expected an element type that numpy and ml_dtypes have here, found {name}")
    return dtype
