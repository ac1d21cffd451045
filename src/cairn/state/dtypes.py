"""The names of element types in trees and the size of an element, known without importing numpy.

A name is safetensors' where its element has the same bytes, else the name in numpy or ml_dtypes. Python's long
double has no name: its layout differs between machines. Names of bytes, str, void, object and structured types do
not exist either: such arrays are no numbers. A packed type keeps several values in a byte; shapes count the values, as
in safetensors, so the last dimension fills whole bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

SAFETENSORS = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
    "C64": ("complex64", 8),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
}
"""Name in trees: name in numpy or ml_dtypes, and bytes of an element."""

OTHERS = {
    "complex128": 16,
    "complex32": 4,
    "bcomplex32": 4,
    "float8_e3m4": 1,
    "float8_e4m3": 1,
    "float8_e4m3b11fnuz": 1,
    "float4_e2m1fn": 1,
    "float6_e2m3fn": 1,
    "float6_e3m2fn": 1,
    "int1": 1,
    "int2": 1,
    "int4": 1,
    "uint1": 1,
    "uint2": 1,
    "uint4": 1,
}
"""Types that safetensors has no name for, under the name of numpy or ml_dtypes."""

PACKED = {"F4": 2}
"""Packed types, which only torch has: name in trees and values in a byte."""

ITEMSIZES = {name: size for name, (_, size) in SAFETENSORS.items()} | OTHERS
LIBRARY_NAMES = {name: library for name, (library, _) in SAFETENSORS.items()} | {name: name for name in OTHERS}

TORCH_NAMES = {name: library for name, (library, _) in SAFETENSORS.items()} | {
    "complex32": "complex32",
    "complex128": "complex128",
    "F4": "float4_e2m1fn_x2",
}
"""Types that torch has too, under its names."""

WITH_GRADIENTS = frozenset(name for name, torch in TORCH_NAMES.items() if "float" in torch or "complex" in torch)
"""Types of which a Parameter that is not frozen may be."""

JAX_NAMES = frozenset(SAFETENSORS) | {
    "complex128",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float4_e2m1fn",
    "int2",
    "int4",
    "uint2",
    "uint4",
}
"""Types that jax has too."""

_TIME = re.compile(r"(datetime|timedelta)64(\[([2-9]|[1-9]\d{1,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?", re.ASCII)


def itemsize(name: object) -> int | None:
    """Bytes of one element, or None when there is no type of this name whose elements have bytes of their own."""
    if type(name) is not str:
        return None
    size = ITEMSIZES.get(name)
    if size is None and is_time(name):
        return 8
    return size


def size_of(name: object, shape: Sequence[int]) -> int | None:
    """Bytes of a tensor, or None when there is no type of this name, or none of it in this shape."""
    if type(name) is str and name in PACKED:
        return prod(shape) // PACKED[name] if shape and shape[-1] % PACKED[name] == 0 else None
    size = itemsize(name)
    return None if size is None else prod(shape) * size


def in_bytes(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an array of a packed type's bytes; that of any other type is the same."""
    return (*shape[:-1], shape[-1] // PACKED[name]) if name in PACKED else shape


def in_values(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The reverse of `in_bytes`."""
    return (*shape[:-1], shape[-1] * PACKED[name]) if name in PACKED else shape


def is_time(name: str) -> bool:
    """Whether the name is numpy's name for a type of dates or durations, with its unit."""
    return _TIME.fullmatch(name) is not None
