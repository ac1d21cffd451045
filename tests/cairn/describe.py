"""A state as text, bit for bit: two states with the same text are the same in type, bits, order and ties.

Knows nothing of cairn, so that what another reader found can be described in a process of its own. Files, folders and
links are told by what they have: data or read, entries, target.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np


def describe(state: object) -> str:
    """Spell a state, one line for each value; an array that occurs again is named by its first place."""
    lines: list[str] = []
    _describe(state, "", {}, lines)
    return "\n".join(lines)


def _describe(value: Any, path: str, seen: dict[int, tuple[str, object]], lines: list[str]) -> None:
    kind = type(value).__name__
    if hasattr(value, "entries"):
        lines.append(f"{path}: folder {value.mode:o} of {len(value.entries)}")
        for name, item in value.entries.items():
            _describe(item, f"{path}/{_atom(name)}", seen, lines)
    elif hasattr(value, "mode"):
        data = value.read() if hasattr(value, "read") else getattr(value, "data", b"")
        lines.append(f"{path}: file {value.mode:o} {data.hex()}")
    elif hasattr(value, "target"):
        lines.append(f"{path}: link to {_atom(value.target)}")
    elif isinstance(value, Mapping):
        lines.append(f"{path}: {kind} of {len(value)}")
        for key, item in value.items():
            _describe(item, f"{path}/{_atom(key)}", seen, lines)
    elif isinstance(value, list | tuple):
        lines.append(f"{path}: {kind} of {len(value)}")
        for place, item in enumerate(value):
            _describe(item, f"{path}/{place}", seen, lines)
    elif isinstance(value, np.ndarray):
        # Holding the array keeps its id from being given to another.
        first = seen.setdefault(id(value), (path, value))[0] if value.nbytes else path
        text = f"array {value.dtype.str} {value.dtype.name} {value.shape} {value.tobytes().hex()}"
        lines.append(f"{path}: {text if first == path else 'the memory of ' + first}")
    else:
        lines.append(f"{path}: {_atom(value)}")


def _atom(value: Any) -> str:
    if type(value) is tuple:
        return f"({', '.join(map(_atom, value))})"
    if type(value) is float:
        return f"float {struct.pack('>d', value).hex()}"
    if type(value) is complex:
        return f"complex {struct.pack('>dd', value.real, value.imag).hex()}"
    if isinstance(value, np.generic):
        return f"{type(value).__name__} {value.dtype.str} {value.tobytes().hex()}"
    return f"{type(value).__name__} {value!a}"
