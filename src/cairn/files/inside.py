"""The tensors inside a committed file: their names, and their values as numpy has them. Nothing is executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cairn.errors import Damaged, NotFound, UnsupportedValue
from cairn.files.formats import TensorInfo
from cairn.files.formats import tensors as tensors_of
from cairn.files.formats.model import elements
from cairn.state import dtypes
from cairn.state.stored import StoredFile, StoredReader

if TYPE_CHECKING:
    import numpy.typing as npt

_SHOWN = 8
_MAX_SPREAD = 1 << 30
"""Most bytes of a tensor that is larger than what the file holds of it: one that repeats its elements."""


def tensors(file: StoredFile) -> list[TensorInfo]:
    """Name the tensors inside a file; none when it has none or is not as its format says. Raises Damaged."""
    return tensors_of(StoredReader(file).read_at, file.size)


def nbytes(tensor: TensorInfo) -> int:
    """The bytes of a tensor's elements; of one whose elements have no size of their own, those in the file."""
    size = dtypes.itemsize(tensor.dtype)
    return tensor.stop - tensor.start if size is None else elements(tensor.shape) * size


def array(file: StoredFile, name: str) -> npt.NDArray[Any]:
    """Read one tensor of a file. Raises NotFound, UnsupportedValue and Damaged."""
    found = tensors(file)
    for tensor in found:
        if tensor.name == name:
            return _array(file, tensor)
    names = [tensor.name for tensor in found[:_SHOWN]]
    known = (
        f"expected one of {', '.join(names)}{', …' if len(found) > _SHOWN else ''}" if found else "it has no tensors"
    )
    raise NotFound(f"{file.path} has no tensor {name!r}: {known}")


def _array(file: StoredFile, tensor: TensorInfo) -> npt.NDArray[Any]:
    # Imported here because listings need no arrays.
    import numpy as np

    from cairn.state import arrays

    words = f"{file.path}/{tensor.name}"
    dtype = arrays.dtype_of(tensor.dtype, tensor.big_endian)
    count = elements(tensor.shape)
    if dtype is None or (count * dtype.itemsize > max(tensor.stop - tensor.start, _MAX_SPREAD)):
        raise UnsupportedValue(
            f"{words}: expected a tensor that numpy can hold, found {tensor.dtype} of shape {tensor.shape}; "
            f"`cairn checkout … --only {file.path}` gives the file"
        )
    if not count:
        return np.empty(tensor.shape, dtype)
    last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.strides or (), strict=False))
    held = (last + 1 if tensor.strides is not None else count) * dtype.itemsize
    data = file.read_at(tensor.start + tensor.offset * dtype.itemsize, held)
    if len(data) != held:
        raise Damaged(f"{words}: expected {held} bytes in the file, found {len(data)}")
    flat = np.frombuffer(data, dtype)
    if tensor.strides is None:
        made = flat.reshape(tensor.shape)
    else:
        steps = [step * dtype.itemsize for step in tensor.strides]
        made = np.lib.stride_tricks.as_strided(flat, tensor.shape, steps, writeable=False)
    made = made.conj() if tensor.conjugate else made
    return -made if tensor.negative else made
