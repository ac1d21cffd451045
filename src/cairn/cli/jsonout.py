"""The library's objects as JSON: the same fields under the same names.

What JSON lacks is spelled like this: NaN and the infinities as the strings "NaN", "Infinity" and "-Infinity", a path
as a string, a blob as [id, bytes], a tuple as an array, and much as in trees {"$bytes": base64},
{"$complex": [real, imaginary]} and {"$scalar": {"dtype", "data"}}. Only ASCII is printed, so no terminal and no
encoding can garble it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cairn.state.paths import Scalar


def print_json(value: object) -> None:
    """Print one document."""
    click.echo(json.dumps(plain(value), indent=2, allow_nan=False))


def plain(value: object) -> Any:
    """Spell a value with what JSON has."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Scalar):
        return {"$scalar": {"dtype": value.dtype, "data": value.data.hex()}}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, complex):
        return {"$complex": [_float(value.real), _float(value.imag)]}
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
