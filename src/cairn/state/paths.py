"""How a value inside a state is named to people: `model/layers/0/embed.weight`.

A path is the component, then the key or list index of each step. In the *readable* spelling a str key stands bare
where that reads well, else in quotes (`model/"a/b"`); in the *exact* spelling every str key is quoted, so that
different values always have different paths. Keys that are no str stand as in Python: `optimizer/state/(0, 'm')`. An
attribute of a container stands behind a dot: `model/._metadata`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

_SHOWN = 200
"""Longest text of one key in the readable spelling."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A numpy scalar as trees hold it: the name of its type and its little-endian bytes."""

    dtype: str
    data: bytes

    def __repr__(self) -> str:
        return f"{self.dtype}(0x{self.data[::-1].hex()})"


@dataclass(frozen=True, slots=True)
class Attribute:
    """A step to an attribute of a container, where others have a key."""

    name: str

    def __repr__(self) -> str:
        return f".{self.name}"


def readable(component: str, keys: Iterable[object]) -> str:
    """Name a value for messages and listings."""
    return "/".join([component, *map(readable_key, keys)])


def exact(component: str, keys: Iterable[object]) -> str:
    """Name a value so that no other value has the same path."""
    return "/".join([component, *map(exact_key, keys)])


def exact_key(key: object) -> str:
    """Spell one key: a str in JSON quotes, everything else as Python does."""
    return _quoted(key) if type(key) is str else repr(key)


def readable_key(key: object) -> str:
    """Spell one key for people, cut short if it is very long."""
    text = key if type(key) is str and _reads_well(key) else exact_key(key)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _reads_well(key: str) -> bool:
    return key.isprintable() and key != "" and "/" not in key and key[0] not in "\"'" and key == key.strip()


def _quoted(key: str) -> str:
    """Quote a str; what cannot be printed, lone surrogates included, is escaped."""
    text = json.dumps(key, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(key)
