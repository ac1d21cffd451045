"""jax on two devices of the CPU, or the reason to skip a file; and arrays to test with, compared bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.cairn.strategies import Memory, exact

from cairn.state.decode import load

jax: Any = pytest.importorskip("jax", reason="jax is not installed; `make test-jax` installs it")
jnp: Any = jax.numpy
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)

SMALL = ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")
LONG = ("float64", "int64", "uint64", "complex128")
DTYPES = (
    "bool", "uint8", "int8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32", "complex64",
    "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e3m4",
    "float8_e4m3", "float8_e4m3b11fnuz", *SMALL, *LONG,
)  # fmt: skip
IMPLEMENTATIONS = ("threefry2x32", "rbg", "unsafe_rbg")


def filled(name: str, shape: tuple[int, ...]) -> Any:
    """Makes an array whose bytes run through everything that its type allows."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    raw = (np.arange(prod(shape) * dtype.itemsize) * 37 + 1).astype(np.uint8)
    values = raw.astype(np.int8) % 2 if name in SMALL else raw % 2 if name == "bool" else raw
    source = values.astype(dtype) if name in SMALL else values.view(dtype)
    with jax.enable_x64(name in LONG):
        made = jnp.array(source.reshape(shape))
    assert made.dtype == dtype
    return made


def bits(value: object) -> object:
    """Turns a value into one whose == tells every bit, type, key order, dtype, weakness and kind of key."""
    if isinstance(value, jax.Array):
        array: Any = value
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            return ("key", jax.random.key_impl(array), array.shape, np.asarray(jax.random.key_data(array)).tobytes())
        return ("array", array.dtype, array.weak_type, array.shape, np.asarray(array).tobytes())
    if isinstance(value, Mapping):
        return (type(value), [(exact(key), bits(item)) for key, item in value.items()])
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
