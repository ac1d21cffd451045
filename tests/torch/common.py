"""torch, or the reason to skip a file; and tensors to test with, compared bit for bit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.cairn.strategies import Memory, exact

from cairn.state.decode import load
from cairn.state.walk import leaves

torch: Any = pytest.importorskip("torch", reason="torch is not installed; `make test-all` installs it")
safetensors: Any = pytest.importorskip("safetensors.torch")
torch.set_num_threads(1)

DTYPES = (
    "float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float4_e2m1fn_x2", "complex32", "complex64", "complex128", "uint8", "int8", "int16", "uint16",
    "int32", "uint32", "int64", "uint64", "bool",
)  # fmt: skip


def filled(name: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Makes a tensor whose bytes run through everything that its type allows."""
    dtype = getattr(torch, name)
    count = dtype.itemsize
    for extent in shape:
        count *= extent
    raw = (torch.arange(count) * 37 + seed + 1).to(torch.uint8)
    return (raw % 2 if name == "bool" else raw).view(dtype).reshape(shape)


def raw(tensor: Any) -> bytes:
    """The bytes of a tensor's values in C order."""
    plain = tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    data: bytes = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    return data


def bits(value: object) -> object:
    """Turns a value into one whose == tells every bit, type, key order, dtype and attribute, but not its memory."""
    if isinstance(value, torch.Tensor):
        tensor: Any = value
        grad = tensor.requires_grad if type(value) is torch.nn.Parameter else None
        return (type(value), tensor.dtype, tuple(tensor.shape), grad, raw(tensor))
    if isinstance(value, Mapping):
        attributes = bits(dict(vars(value))) if isinstance(value, OrderedDict) and vars(value) else None
        return (type(value), [(exact(key), bits(item)) for key, item in value.items()], attributes)
    if isinstance(value, list | tuple):
        return (type(value), [bits(item) for item in value])
    return exact(value)


def back(value: object) -> Any:
    """Sends a value through a store, and compares it bit for bit, also when it is committed again."""
    memory = Memory()
    ref = memory.save({"x": value})
    found = load(ref, memory, None)["x"]
    assert bits(found) == bits(value)
    assert memory.save({"x": found}) == ref
    return found


def blobs_of(**tensors: Any) -> dict[str, tuple[str, ...]]:
    """Tells which blobs each tensor has, a tie those of its first name."""
    memory = Memory()
    entries = list(leaves(memory.save({"x": dict(tensors)}), memory.tree))
    found = {str(entry.path[1]): tuple(ref.id for ref in entry.blobs) for entry in entries}
    return {str(e.path[1]): found[str(e.tie[1]) if e.kind == "tie" and e.tie else str(e.path[1])] for e in entries}


def tensors_in(value: object) -> Iterator[Any]:
    """Yields the tensors of a state in order, each as often as it occurs."""
    if isinstance(value, torch.Tensor):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from tensors_in(item)
