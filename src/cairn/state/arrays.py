"""numpy arrays and scalars to bytes and back: C order, little-endian, every bit kept.

Byte order is changed on integers of the element's size, never on floats, so that no NaN loses its payload.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from cairn.state import dtypes

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
DType = np.dtype[Any]

COMPLEX = {"C64", "complex128", "complex32", "bcomplex32"}
BIG_HOST = sys.byteorder == "big"


def _types() -> dict[str, type[Any]]:
    found: dict[str, type[Any]] = {}
    for name, library in dtypes.LIBRARY_NAMES.items():
        scalar = np.dtype(library).type if hasattr(np, library) else getattr(ml_dtypes, library, None)
        if scalar is not None:
            found[name] = scalar
    return found


_BY_NAME = _types()
_BY_TYPE = {scalar: name for name, scalar in _BY_NAME.items()} | {
    np.dtype(code).type: f"{'I' if code.islower() else 'U'}{8 * np.dtype(code).itemsize}" for code in "iIlLqQ"
}
SCALAR_TYPES = frozenset({*_BY_TYPE, np.datetime64, np.timedelta64})
"""The types of scalars that can be kept."""


def name_of(dtype: DType) -> str | None:
    """The name of an element type in trees, or None when its values cannot be kept exactly."""
    if dtype.metadata is not None:
        return None
    if dtype.kind in "mM":
        name = dtype.name
        return name if dtypes.is_time(name) else None
    known = _BY_TYPE.get(dtype.type)
    if known is None or (dtype.itemsize == 1 and dtype.byteorder == ">"):
        return None
    return known


def is_big(dtype: DType) -> bool:
    """Whether elements of this type lie in memory with the most significant byte first."""
    return dtype.itemsize > 1 and (dtype.byteorder == ">" or (BIG_HOST and dtype.byteorder == "="))


@lru_cache(maxsize=256)
def dtype_of(name: str, big: bool) -> DType | None:
    """The element type of a name, or None when this installation of numpy and ml_dtypes lacks it."""
    if name not in _BY_NAME and not dtypes.is_time(name):
        return None
    dtype: DType = np.dtype(_BY_NAME.get(name, name))
    return dtype if dtype.itemsize == 1 or big == BIG_HOST else dtype.newbyteorder(">" if big else "<")


class Loaded(np.ndarray[Any, Any]):
    """Owner of the memory that a load gave to one tensor.

    Tensors of equal bytes share a blob, so views of it lie at one address although they were never one memory in the
    state. Each view has an owner of its own, by which it is told from the others when it is committed again.
    """


def memory_of(array: Array) -> object:
    """What two arrays have in common when they are one memory: address, dtype, shape, strides and load."""
    owner: object = array.base
    while type(owner) is np.ndarray:
        owner = owner.base
    load = id(owner) if type(owner) is Loaded else 0
    return (array.__array_interface__["data"][0], array.dtype, array.shape, array.strides, load)


def plain_bytes(array: Array) -> Bytes | None:
    """The bytes of an array where they lie in memory, or None when they do not lie there as they are stored."""
    return array.reshape(-1).view(np.uint8) if array.flags.c_contiguous and not is_big(array.dtype) else None


def copy_bytes(array: Array, name: str, target: Bytes) -> None:
    """Copy the bytes of an array as they are stored."""
    np.copyto(target.view(array.dtype).reshape(array.shape), array)
    if is_big(array.dtype):
        swap(target, name, array.dtype.itemsize)


def array_bytes(array: Array, name: str) -> memoryview:
    """The bytes of an array as stored; without a copy when they lie in memory exactly so."""
    plain = plain_bytes(array)
    if plain is None:
        plain = np.empty(array.nbytes, np.uint8)
        copy_bytes(array, name, plain)
    return plain.data


def little(raw: Bytes, name: str) -> Bytes:
    """The bytes of elements in this machine's order, made little-endian; or the reverse."""
    itemsize = dtypes.itemsize(name) or 1
    if BIG_HOST and itemsize > 1:
        raw = raw.copy()
        swap(raw, name, itemsize)
    return raw


def scalar_bytes(scalar: Any, name: str) -> bytes:
    """The bytes of a numpy scalar as stored."""
    data = np.frombuffer(bytearray(scalar.tobytes()), np.uint8)
    if is_big(scalar.dtype):
        swap(data, name, data.nbytes)
    return data.tobytes()


def view_of(data: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array | None:
    """Make an array of stored bytes where they lie, read-only; None where this machine cannot compute with them."""
    array = Loaded(shape, dtype, data).view(np.ndarray)
    flags = array.flags
    flags.writeable = False
    return array if flags.aligned else None


def bytes_of(array: Array) -> memoryview:
    """The memory of an array that lies in C order."""
    return array.reshape(-1).view(np.uint8).data


def array_from(data: memoryview, name: str, dtype: DType, shape: tuple[int, ...], copy: bool) -> Array:
    """Make an array of stored bytes: a read-only view where possible, or, if `copy`, fresh and writable."""
    little = dtype_of(name, big=False)
    big = is_big(dtype)
    raw = Loaded(shape, little, buffer=data).view(np.ndarray)
    if copy or big or not raw.flags.aligned:
        raw = np.array(raw, order="C", copy=True)
    if big:
        swap(raw.reshape(-1).view(np.uint8), name, dtype.itemsize)
        raw = raw.view(dtype)
    raw.flags.writeable = copy
    return raw


def empty(dtype: DType, shape: tuple[int, ...], copy: bool) -> Array:
    """Make an array of no elements."""
    array = np.empty(shape, dtype)
    array.flags.writeable = copy
    return array


def scalar_from(data: bytes, dtype: DType, name: str) -> Any:
    """Make a numpy scalar of stored bytes."""
    return array_from(memoryview(data), name, dtype, (1,), copy=True)[0]


def swap(raw: Bytes, name: str, itemsize: int | None = None) -> None:
    """Change the order of the bytes in every element, in place; a complex one is two numbers."""
    itemsize = itemsize or dtypes.itemsize(name) or 1
    width = itemsize // 2 if name in COMPLEX else itemsize
    raw.view(f"u{width}").byteswap(inplace=True)
