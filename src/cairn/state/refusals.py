"""What is said about values that cannot be kept exactly: the type that was found and what to store instead."""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np

from cairn.state import jax_values, torch_values

_KEPT = (
    "a dict, OrderedDict, Counter, list, tuple, str, bytes, int, float, complex, bool, None, a numpy array or "
    "scalar, a torch tensor or a jax array, of exactly these types"
)

_HINTS: list[tuple[type[Any] | tuple[type[Any], ...], str]] = [
    (enum.Enum, "store its .value"),
    (defaultdict, "store dict(value); the default factory is code"),
    (deque, "store list(value) and its maxlen"),
    (Set, "store a sorted list of its members: a set has no order of its own"),
    (np.str_, "store str(value)"),
    (np.bytes_, "store bytes(value)"),
    (np.void, "store its fields one by one"),
    ((np.longdouble, np.clongdouble), "store float(value) or complex(value): its layout differs between machines"),
    (np.ma.MaskedArray, "store its .data and its .mask"),
    (np.ndarray, "store numpy.asarray(value), a plain array"),
    ((bytearray, memoryview), "store bytes(value)"),
    (range, "store list(value)"),
    (tuple, "store tuple(value); the names of the fields are code"),
    (list, "store list(value)"),
    (Mapping, "store dict(value)"),
    ((bool, int), "store int(value)"),
    (float, "store float(value)"),
    (complex, "store complex(value)"),
    (str, "store str(value)"),
    (bytes, "store bytes(value)"),
    (Callable, "store what it is made of: nothing is pickled"),  # type: ignore[list-item]
]


_TORCH_HINTS = {
    "torch.dtype": "store str(value)",
    "torch.device": "store str(value)",
    "torch.memory_format": "store str(value)",
    "torch.layout": "store str(value)",
    "torch._C.Generator": "store value.get_state()",
    "torch.storage.UntypedStorage": "store a tensor of it",
    "torch.storage.TypedStorage": "store a tensor of it",
}

_JAX_HINTS = {
    "flax.core.frozen_dict.FrozenDict": "store flax.core.unfreeze(value)",
    "flax.nnx.statelib.State": "store flax.nnx.to_pure_dict(value)",
    "jax._src.core.Ref": "store value[...]",
    "jax.ShapeDtypeStruct": "store an array: this has no values",
    "jaxlib._jax.PyTreeDef": "store jax.tree.leaves(…) of what has this structure",
    "jaxlib._jax.pytree.PyTreeDef": "store jax.tree.leaves(…) of what has this structure",
}
_JAX_TREE = "store jax.tree.leaves(value), and restore jax.tree.unflatten(jax.tree.structure(a new one), leaves)"


def of_type(value: object) -> str:
    """Say why a value of this type is refused and what to store instead."""
    kind = type(value)
    hint = _of_torch(value) or _of_jax(value)
    hint = hint or next((hint for known, hint in _HINTS if isinstance(value, known)), _foreign(value))
    return f"expected {_KEPT}; found {kind.__module__}.{kind.__qualname__}; {hint}"


def of_key(key: object) -> str:
    """Say why a key is refused and what to use instead."""
    return (
        "expected keys that are str, int, bool, None, float, complex, bytes, numpy scalars or tuples of these, "
        f"and short; found a key of type {type(key).__qualname__}: {key!r:.80}; use a list of pairs"
    )


def of_dtype(dtype: np.dtype[Any]) -> str:
    """Say why an array of this dtype is refused and what to store instead."""
    if dtype.metadata is not None:
        hint = "its metadata would be lost: store value.view(plain dtype)"
    elif dtype.kind in "gG" or dtype.char in "gG":
        hint = "its layout differs between machines: store value.astype('f8') or value.astype('c16')"
    elif dtype.hasobject:
        hint = "it holds Python objects, and nothing is pickled: store a list"
    elif dtype.names is not None:
        hint = "store each field as an array of its own"
    elif dtype.kind in "SUT":
        hint = "store value.tolist()"
    else:
        hint = "store value.view('u1') and its shape"
    return f"expected an array of numbers, bools, dates or durations; found dtype {dtype}; {hint}"


def _of_torch(value: object) -> str | None:
    if torch_values.is_relative(value):
        return "store the plain tensors that it is made of, such as value.to_local() or value.full_tensor()"
    if hasattr(value, "state_dict"):
        return "store value.state_dict()"
    return _TORCH_HINTS.get(f"{type(value).__module__}.{type(value).__qualname__}")


def _of_jax(value: object) -> str | None:
    hint = _JAX_HINTS.get(f"{type(value).__module__}.{type(value).__qualname__}")
    if hint is None and not isinstance(value, dict) and jax_values.is_pytree(value):
        return _JAX_TREE
    return hint


def _foreign(value: object) -> str:
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return "store it as a plain numpy array"
    return "store what it is made of: nothing is pickled"
