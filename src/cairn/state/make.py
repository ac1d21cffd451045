"""One tensor of the bytes that are stored for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cairn.state import arrays, dtypes, jax_values, torch_values
from cairn.state.arrays import Array
from cairn.state.paths import Scalar
from cairn.state.place import Place
from cairn.state.stored import BlobSource
from cairn.state.syntax import Long, Tensor
from cairn.state.trees import JAX_KINDS

Make = Callable[[Tensor, BlobSource, Place], Any]
"""Makes what a tensor is loaded as. Raises Damaged."""


@dataclass(frozen=True, slots=True)
class Live:
    """Makes numpy arrays, read-only views of the store unless `copy`, and what torch and jax had as theirs, fresh.

    With `as_numpy` everything is an array, and that of a packed type has its bytes.
    """

    copy: bool = False
    as_numpy: bool = False

    def __call__(self, node: Tensor, source: BlobSource, place: Place) -> Any:
        """Make a tensor. Raises Damaged, and CairnError when torch or jax is not there."""
        if node.kind is None or self.as_numpy:
            return array(node, source, place, self.copy)
        if node.kind in JAX_KINDS:
            return jax_values.array_from(array(node, source, place, copy=True), node.kind, place.path)
        data = data_of(node, source, place) if node.blobs else memoryview(b"")
        return torch_values.tensor_from(data, node.dtype, node.shape, node.kind, place.path)


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor as it is stored, for those who pass its bytes on: C order, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def stored(node: Tensor, source: BlobSource, place: Place) -> StoredTensor:
    """Take a tensor as it is stored. Raises Damaged."""
    data = data_of(node, source, place) if node.blobs else memoryview(b"")
    return StoredTensor(node.dtype, node.shape, data)


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
