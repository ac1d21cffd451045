"""Tensors of a state as the encoder sees them, whoever's they are: what trees say of one, and which memory it is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cairn.state import arrays, dtypes, jax_values, refusals, torch_values
from cairn.state.arrays import Array
from cairn.state.syntax import fits_memory


class Refused(Exception):
    """Why a tensor cannot be kept, and what to store instead."""


class Description(NamedTuple):
    """What stands in trees besides the blobs, and what is equal for tensors that are one memory."""

    dtype: str
    shape: tuple[int, ...]
    ending: str
    memory: object
    nbytes: int
    """Bytes as stored."""


@lru_cache(maxsize=1 << 12)
def around_blobs(dtype: str, shape: tuple[int, ...], ending: str) -> tuple[bytes, bytes] | None:
    """What stands in trees before and after the blobs of a tensor; None when no memory holds one of this shape.

    Remembered, because most states have many tensors of one shape.
    """
    if not fits_memory(shape, dtype):
        return None
    sizes = ",".join(map(str, shape))
    return f'{{"$tensor":{{"dtype":"{dtype}","shape":[{sizes}],"blobs":'.encode(), f"{ending}}}}}".encode()


def describe(value: object) -> Description | None:
    """Describe a tensor; None is for values that are none. Raises Refused."""
    if type(value) is np.ndarray:
        return _of_numpy(value)
    if jax_values.is_array(value):
        return _of_jax(value)
    kind = torch_values.kind_of(value)
    return None if kind is None else _of_torch(value, kind)


def is_immutable(value: object) -> bool:
    """Whether nobody can change the values of a tensor that was described."""
    return jax_values.is_array(value)


def data_of(value: Any, dtype: str) -> memoryview:
    """The bytes of a tensor that was described: C order, little-endian, flat; copied only where they lie otherwise.

    Raises Refused when they cannot be read any more.
    """
    if isinstance(value, np.ndarray):
        return arrays.array_bytes(value, dtype)
    if jax_values.is_array(value):
        try:
            return jax_values.array_bytes(value, dtype)
        except RuntimeError as error:
            reason = f"{error!s:.200}".rstrip(".")
            raise Refused(f"expected an array of jax that can be read, found that jax says {reason!r}") from error
    return torch_values.tensor_bytes(value, dtype)


def plain_bytes(value: Any) -> arrays.Bytes | None:
    """The bytes of a tensor where they lie in memory, or None when they do not lie there as they are stored."""
    return arrays.plain_bytes(value) if isinstance(value, np.ndarray) else torch_values.plain_bytes(value)


def copy_bytes(value: Any, dtype: str, target: arrays.Bytes) -> None:
    """Copy the bytes of a tensor as they are stored."""
    if isinstance(value, np.ndarray):
        arrays.copy_bytes(value, dtype, target)
    else:
        torch_values.copy_bytes(value, dtype, target)


def _of_numpy(array: Array) -> Description:
    name = arrays.name_of(array.dtype)
    if name is None:
        raise Refused(refusals.of_dtype(array.dtype))
    ending = ',"order":"big"' if arrays.is_big(array.dtype) else ""
    return Description(name, array.shape, ending, arrays.memory_of(array), array.nbytes)


def _of_jax(array: Any) -> Description:
    reason = jax_values.why_refused(array)
    if reason is not None:
        raise Refused(reason)
    name, shape, kind = jax_values.description(array)
    return Description(name, shape, f',"as":"{kind}"', ("jax", id(array)), dtypes.size_of(name, shape) or 0)


def _of_torch(tensor: Any, kind: str) -> Description:
    reason = torch_values.why_refused(tensor)
    if reason is not None:
        raise Refused(reason)
    name = torch_values.name_of(tensor) or ""
    shape = dtypes.in_values(name, tuple(tensor.shape))
    memory = torch_values.memory_of(tensor, kind) if tensor.numel() else None
    return Description(name, shape, f',"as":"{kind}"', memory, dtypes.size_of(name, shape) or 0)
