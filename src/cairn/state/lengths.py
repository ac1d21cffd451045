"""The length of a node as JSON, to prove that every container that had to be split was split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn import canonical
from cairn.state.syntax import Malformed
from cairn.state.trees import METADATA, SPLIT_BYTES


def check(raw: Any) -> None:
    """Raise Malformed for a container, here or inside, that is too long to stand whole."""
    kind = type(raw)
    if kind is list or (kind is dict and (len(raw) != 1 or next(iter(raw)) in _INNER or next(iter(raw))[:1] != "$")):
        length(raw)


def length(raw: Any) -> int:
    """The length of a value. Raises Malformed as `check` does."""
    kind = type(raw)
    if kind is list:
        return _list(raw, length)
    if kind is dict:
        if len(raw) == 1:
            ((key, inner),) = raw.items()
            if key in _INNER:
                return len(key) + 5 + _INNER[key](inner)
            if key[:1] == "$":
                return len(canonical.encode(raw))
        total = 1
        for key, value in raw.items():
            total += len(canonical.encode(key)) + 2 + length(value)
        return _limited(max(total, 2))
    return len(canonical.encode(raw))


def pair(raw: Any) -> int:
    """The length of a pair of a map, which itself is never split."""
    if type(raw) is list and len(raw) == 2:
        return len(canonical.encode(raw[0])) + 3 + length(raw[1])
    return length(raw)


def _list(raw: list[Any], entry: Callable[[Any], int]) -> int:
    total = 1
    for item in raw:
        total += 1 + entry(item)
    return _limited(max(total, 2))


def _map(raw: Any) -> int:
    if type(raw) is dict and list(raw)[:2] == ["type", "pairs"]:
        pairs = raw["pairs"]
        total = len(canonical.encode({"type": raw["type"], "pairs": 0})) - 1
        total += _list(pairs, pair) if type(pairs) is list else length(pairs)
        if METADATA in raw:
            total += len(METADATA) + 4 + length(raw[METADATA])
        return total
    return length(raw)


def _folder(raw: Any) -> int:
    if type(raw) is dict and list(raw) == ["mode", "entries"]:
        return len(canonical.encode({"mode": raw["mode"], "entries": 0})) - 1 + length(raw["entries"])
    return length(raw)


def _file(raw: Any) -> int:
    if type(raw) is dict and list(raw)[-1:] == ["slices"]:
        return len(canonical.encode({**raw, "slices": 0})) - 1 + length(raw["slices"])
    return length(raw)


def _limited(total: int) -> int:
    if total > SPLIT_BYTES:
        raise Malformed(f"expected a container over {SPLIT_BYTES} bytes in parts, found one of {total} whole")
    return total


_INNER: dict[str, Callable[[Any], int]] = {
    "$tuple": length,
    "$list": length,
    "$dict": length,
    "$map": _map,
    "$dir": _folder,
    "$file": _file,
}
