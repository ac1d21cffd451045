"""jax's arrays and random keys, without importing jax before a value is one of its own.

The state of an array is its values, dtype, shape, and whether its type is weak, which decides what later arithmetic
promotes to; of a key its implementation, too. Device, sharding and layout are not. An array that is not of this
process alone, a tracer, and keys of other implementations are refused by name. Memory of jax's never changes, so no
snapshot copies it; who lends jax memory of his own (`jax.device_put` of an aligned numpy array, dlpack) must not write
to it, as jax says. jax has no type that a checker sees where it is not installed, so its values are Any here.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from cairn.errors import CairnError
from cairn.state import arrays, dtypes
from cairn.state.arrays import Array
from cairn.state.trees import JAX, JAX_KEYS, KEY_WORDS, WEAK_JAX

_KINDS = {impl: kind for kind, impl in JAX_KEYS.items()}


def is_array(value: object) -> bool:
    """Whether a value is an array of jax: one with values, random keys, or a tracer, which stands for one."""
    array = getattr(sys.modules.get("jax"), "Array", None)
    return isinstance(array, type) and isinstance(value, array)


def is_pytree(value: object) -> bool:
    """Whether jax knows how to take a value apart."""
    jax: Any = sys.modules.get("jax")
    return hasattr(jax, "tree_util") and not jax.tree_util.all_leaves([value])


def why_refused(array: Any) -> str | None:
    """Say why an array cannot be kept and what to store instead, or None."""
    jax: Any = sys.modules["jax"]
    if isinstance(array, jax.core.Tracer):
        return "expected an array with values, found a tracer; commit outside of jax.jit, grad, vmap and the like"
    if array.is_deleted():
        return "expected an array with values, found one that was deleted or donated; store what took its place"
    if not (array.is_fully_addressable or array.is_fully_replicated):
        return (
            "expected an array that this process can read, found one that is spread over several; store "
            "jax.experimental.multihost_utils.process_allgather(value), or the shards apart"
        )
    if _is_key(jax, array):
        impl = jax.random.key_impl(array)
        known = ", ".join(KEY_WORDS)
        return None if impl in _KINDS else (
            f"expected keys of one of jax's own implementations ({known}), found {impl!s:.80}; "
            "store jax.random.key_data(value)"
        )  # fmt: skip
    return None if _name_of(array) in dtypes.JAX_NAMES else (
        f"expected an array of numbers or bools, found dtype {array.dtype}; store it as another dtype"
    )  # fmt: skip


def description(array: Any) -> tuple[str, tuple[int, ...], str]:
    """The element type, shape and kind of an array that is not refused, as trees spell them."""
    jax: Any = sys.modules["jax"]
    if _is_key(jax, array):
        impl = jax.random.key_impl(array)
        return "U32", (*array.shape, KEY_WORDS[impl]), _KINDS[impl]
    return _name_of(array) or "", tuple(array.shape), WEAK_JAX if array.weak_type else JAX


def array_bytes(array: Any, name: str) -> memoryview:
    """The bytes of an array as stored, which nobody changes; without a copy when the memory of this machine has them.

    While they are held, jax neither gives that memory back nor lets a jitted function write to it, be the array
    deleted or donated. Raises RuntimeError when jax cannot read the array, or no longer.
    """
    jax: Any = sys.modules["jax"]
    if _is_key(jax, array):
        array = jax.random.key_data(array)
    if array.is_fully_replicated:
        # jax keeps a host's copy with the array that was asked for it; this one is soon gone.
        array = array.addressable_data(0)
    return arrays.array_bytes(jax.device_get(array), name)


def array_from(values: Array, kind: str, path: str) -> Any:
    """Make an array, or keys, on jax's default device. Raises CairnError where jax, or the type, is missing.

    jax may use the memory of the values as the array's, so nobody may change it.
    """
    jax = _jax(path)
    try:
        dtype = jax.dtypes.canonicalize_dtype(values.dtype)
        if dtype == values.dtype:
            made = jax.device_put(values)
            if kind in JAX_KEYS:
                return jax.random.wrap_key_data(made, impl=JAX_KEYS[kind])
            return _weak(jax, made) if kind == WEAK_JAX else made
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise CairnError(
            f"{path}: expected a jax that can make an array of {values.dtype}, found jax {jax.__version__}, which says "
            f"{str(error)[:200]!r}; use another version of jax, or load with as_numpy=True"
        ) from error
    raise CairnError(
        f"{path}: expected jax to have {values.dtype}, found that it would make it {dtype}; call "
        "jax.config.update('jax_enable_x64', True) first, or load with as_numpy=True"
    )


def _weak(jax: Any, array: Any) -> Any:
    # The one public way to an array that also jitted functions take for weak, as they do not one that was unpickled.
    like = jax.ShapeDtypeStruct(array.shape, array.dtype, weak_type=True)
    with jax.debug_nans(False), jax.disable_jit(False):
        return jax.jit(lambda same: same).lower(like).compile()(array)


def _is_key(jax: Any, array: Any) -> bool:
    found: bool = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    return found


def _name_of(array: Any) -> str | None:
    """The name of an array's element type in trees, or None when numpy has no such type."""
    return arrays.name_of(array.dtype) if isinstance(array.dtype, np.dtype) else None


def _jax(path: str) -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise CairnError(
            f"{path}: expected jax to be installed, for this was an array of jax, found {error}; "
            "install jax, or load with as_numpy=True"
        ) from error
