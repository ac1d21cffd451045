"""torch's tensors, without importing torch before a value is one of its own.

A tensor's state is its values, dtype and shape, that it is a Parameter, and whether that is frozen. Where it lies
(device, strides) and what autograd or other code attached to it (`requires_grad` of a plain tensor, gradients, hooks,
attributes) is not. Everything else that calls itself a tensor is refused by name. torch has no type that a checker sees
where it is not installed, so its values are Any here and nowhere else.
"""

from __future__ import annotations

import importlib
import sys
from math import prod
from typing import Any

import numpy as np

from cairn.errors import CairnError
from cairn.state import arrays, dtypes
from cairn.state.trees import FROZEN_PARAMETER, PARAMETER, TORCH

_NAMES = {f"torch.{attribute}": name for name, attribute in dtypes.TORCH_NAMES.items()}
_RAW = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
_NO_MEMORY = "expected a tensor whose memory can be read, found one {}; store value.clone() of one that has its values"


def kind_of(value: object) -> str | None:
    """What a value comes back as if it is a tensor of torch: one of `TORCH_KINDS`, else None."""
    torch: Any = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor is None:
        return None
    if type(value) is tensor:
        return TORCH
    made: Any = value
    if type(value) is getattr(getattr(torch, "nn", None), "Parameter", None):
        return PARAMETER if made.requires_grad else FROZEN_PARAMETER
    return None


def is_relative(value: object) -> bool:
    """Whether a value is of a class derived from torch's tensor."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def name_of(tensor: Any) -> str | None:
    """The name of a tensor's element type in trees, or None when its values cannot be kept exactly."""
    return _NAMES.get(str(tensor.dtype))


def why_refused(tensor: Any) -> str | None:
    """Say why a tensor cannot be kept and what to store instead, or None."""
    if tensor.is_nested:
        return "expected a tensor of one shape, found a nested one; store list(value.unbind())"
    if tensor.is_quantized:
        return f"expected plain numbers, found dtype {tensor.dtype}; store value.int_repr() and how it was quantized"
    if str(tensor.layout) != "torch.strided":
        return f"expected a dense tensor, found layout {tensor.layout}; store value.to_dense(), or its parts"
    if tensor.device.type == "meta":
        return "expected a tensor with values, found one on the device meta; store it when it has some"
    if name_of(tensor) is None:
        return f"expected a dtype of whole bytes, found {tensor.dtype}; store value.view(torch.uint8) and its shape"
    if name_of(tensor) in dtypes.PACKED and tensor.dim() == 0:
        return f"expected a shape to count the values of {tensor.dtype} in, found none; store value.reshape(1)"
    return _why_unreadable(tensor) if tensor.numel() else None


def memory_of(tensor: Any, kind: str) -> object:
    """What two tensors have in common when they are one memory: kind, address, dtype, shape, strides, and bits."""
    bits = (tensor.is_conj(), tensor.is_neg())
    return (kind, tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), bits)


def plain_bytes(tensor: Any) -> arrays.Bytes | None:
    """The bytes of a tensor where they lie in memory, or None when they do not lie there as they are stored."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return None
    torch: Any = sys.modules["torch"]
    raw: arrays.Bytes = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return raw if sys.byteorder == "little" else None


def copy_bytes(tensor: Any, name: str, target: arrays.Bytes) -> None:
    """Copy the bytes of a tensor, from wherever they lie, as they are stored."""
    torch: Any = sys.modules["torch"]
    torch.from_numpy(target).view(tensor.dtype).reshape(tensor.shape).copy_(tensor.detach())
    target[:] = arrays.little(target, name)


def tensor_bytes(tensor: Any, name: str) -> memoryview:
    """The bytes of a tensor as stored; without a copy when they lie in this machine's memory exactly so."""
    plain = plain_bytes(tensor)
    if plain is None:
        plain = np.empty(tensor.nbytes, np.uint8)
        copy_bytes(tensor, name, plain)
    return plain.data


def fresh(name: str, shape: tuple[int, ...], kind: str, path: str) -> tuple[Any, memoryview]:
    """Make a tensor on the CPU; return its memory, too, which is to be filled.

    Raises CairnError where torch, or its type, is missing.
    """
    torch = _torch(path)
    dtype = getattr(torch, dtypes.TORCH_NAMES[name], None)
    if dtype is None:
        raise CairnError(
            f"{path}: expected a torch that has {dtypes.TORCH_NAMES[name]}, found torch {torch.__version__}; "
            "upgrade torch, or load with as_numpy=True"
        )
    tensor = _empty(torch, dtype, dtypes.in_bytes(name, shape))
    memory = tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")
    made = tensor if kind == TORCH else torch.nn.Parameter(tensor, requires_grad=kind == PARAMETER)
    return made, memory


def raw_elements(tensor: Any) -> arrays.Array | None:
    """The elements of a tensor as integers, where they lie; None where only torch can write them."""
    if tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg():
        return None
    torch: Any = sys.modules["torch"]
    plain, raw = tensor.detach(), _RAW.get(tensor.dtype.itemsize)
    found: arrays.Array = (plain.view(getattr(torch, raw)) if raw else plain).numpy()
    return found


def assign(target: Any, values: Any) -> None:
    """Give a tensor the values of another one of its dtype and shape, wherever it lies."""
    target.detach().copy_(values)


def reach(tensor: Any) -> int:
    """How many bytes a tensor's memory spans from its first element on."""
    last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())


def _why_unreadable(tensor: Any) -> str | None:
    try:
        storage = tensor.untyped_storage().nbytes()
    except RuntimeError:
        return _NO_MEMORY.format("inside a transformation or on a device that hides it")
    last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True))
    if (tensor.storage_offset() + last + 1) * tensor.element_size() > storage:
        return _NO_MEMORY.format(f"whose storage was cut to {storage} bytes")
    return None


def _torch(path: str) -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise CairnError(
            f"{path}: expected torch to be installed, for this was a tensor of torch, found {error}; "
            "install torch, or load with as_numpy=True"
        ) from error


def _empty(torch: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    if dtype is torch.complex32:
        # torch warns whenever it makes one of these, but not of a view.
        return torch.empty(prod(shape) * dtype.itemsize, dtype=torch.uint8, device="cpu").view(dtype).reshape(shape)
    return torch.empty(shape, dtype=dtype, device="cpu")
