"""The names of element types in trees and the size of an element, known without importing numpy.

A name is safetensors' where its element has the same bytes, else the name in numpy or ml_dtypes. Python's long
double has no name: its layout differs between machines. Names of bytes, str, void, object and structured types do
not exist either: such arrays are no numbers.
"""

from __future__ import annotations

import re

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

ITEMSIZES = {name: size for name, (_, size) in SAFETENSORS.items()} | OTHERS
LIBRARY_NAMES = {name: library for name, (library, _) in SAFETENSORS.items()} | {name: name for name in OTHERS}

_TIME = re.compile(r"(datetime|timedelta)64(\[([2-9]|[1-9]\d{1,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?", re.ASCII)


def itemsize(name: object) -> int | None:
    """Bytes of one element, or None when there is no type of this name."""
    if type(name) is not str:
        return None
    size = ITEMSIZES.get(name)
    if size is None and is_time(name):
        return 8
    return size


def is_time(name: str) -> bool:
    """Whether the name is numpy's name for a type of dates or durations, with its unit."""
    return _TIME.fullmatch(name) is not None
