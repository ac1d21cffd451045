"""A comparison as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from cairn.canonical import float_text
from cairn.cli import text
from cairn.cli.jsonout import plain

if TYPE_CHECKING:
    from cairn.store.diff import Change, Diff, Numbers, Side

_SHOWN = 40
"""Characters of a value."""
_FOLDED = 12
"""When more values of one container changed, the first few stand for all."""
_FIRST = 3

_Row = tuple[str, str, str, str, str, str]


def diff(found: Diff) -> str:
    """One line for each change, then the sum."""
    if found.same:
        return _no_differences(found)
    rows = [row for group in _groups(found.changes) for row in _rows(group)]
    lines = text.table(("path", "change", "what", "elements", "max abs", "rel. L2"), rows, (3, 4, 5))
    return f"{lines}\n\n{_sum(found)}"


def stat(found: Diff) -> str:
    """One line for each component, then the sum."""
    if found.same:
        return _no_differences(found)
    rows = []
    for part in found.components:
        tensors = {**part.counts.get("tensor", {}), **({"equal": part.equal_tensors} if part.equal_tensors else {})}
        others = [_counted(kind, counts) for kind, counts in part.counts.items() if kind not in ("tensor", "value")]
        values = _words(part.counts.get("value", {}))
        rows.append((text.safe(part.name), part.status, _words(tensors), values, "; ".join(others)))
    return f"{text.table(('component', 'status', 'tensors', 'values', 'others'), rows)}\n\n{_sum(found)}"


def _no_differences(found: Diff) -> str:
    if found.path is not None:
        return f"No differences at {text.safe(found.path)}"
    if found.components:
        return f"No differences in {text.safe(', '.join(part.name for part in found.components))}"
    return f"No differences: both commits have the manifest {found.before.manifest}"


def _sum(found: Diff) -> str:
    counts: dict[str, dict[str, int]] = {}
    for change in found.changes:
        for kind in change.kinds:
            counts.setdefault(change.kind, {}).setdefault(kind, 0)
            counts[change.kind][kind] += 1
    equal = sum(part.equal_tensors or 0 for part in found.components)
    if equal:
        counts.setdefault("tensor", {})["equal"] = equal
    words = "; ".join(_counted(kind, found) for kind, found in sorted(counts.items(), key=lambda item: _ORDER[item[0]]))
    same = [part.name for part in found.components if part.status == "same"]
    tail = f". The same: {text.safe(', '.join(same))}" if same else ""
    return f"{text.count(len(found.changes), 'difference')}: {words}{tail}."


_ORDER = {"tensor": 0, "value": 1, "container": 2, "file": 3, "folder": 4, "link": 5}


def _counted(kind: str, counts: Mapping[str, int]) -> str:
    return f"{kind}s {_words(counts)}"


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts.items())


def _groups(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Neighbours that are values of one container."""
    for _, group in groupby(changes, key=lambda change: (change.kind, change.path.rpartition("/")[0])):
        yield list(group)


def _rows(group: list[Change]) -> list[_Row]:
    if group[0].kind != "value" or len(group) <= _FOLDED:
        return [_row(change) for change in group]
    above = text.safe(group[0].path.rpartition("/")[0])
    more = (f"{above}/…", "", f"and {len(group) - _FIRST} more values; --json has them all", "", "", "")
    return [*map(_row, group[:_FIRST]), more]


def _row(change: Change) -> _Row:
    path = text.safe(change.path) or "(components)"
    return path, ", ".join(change.kinds), text.safe(_what(change)), *_numbers(change.numbers)


def _numbers(numbers: Numbers | None) -> tuple[str, str, str]:
    if numbers is None:
        return "", "", ""
    nan = f", {numbers.nan} NaN" if numbers.nan else ""
    return (
        f"{numbers.changed} of {numbers.elements}{nan}",
        text.number(numbers.max_abs),
        f"{numbers.relative_l2:.3g}",
    )


def _what(change: Change) -> str:
    before, after = change.before, change.after
    if before is None or after is None:
        side = after or before
        return _described(side) if side is not None else ""
    if before.kind != after.kind:
        return f"{before.kind} {_described(before)} → {after.kind} {_described(after)}"
    if before.kind == "tensor":
        return ", ".join(_tensor(change, before, after))
    if before.kind in ("file", "folder", "container"):
        return ", ".join(_node(change, before, after))
    if "retyped" in change.kinds:
        return f"{before.dtype} {_described(before)} → {after.dtype} {_described(after)}"
    return _values(before, after)


def _tensor(change: Change, before: Side, after: Side) -> Iterator[str]:
    types = _arrow(before.dtype or "", after.dtype or "")
    shapes = _arrow(_shape(before), _shape(after))
    if "reshaped" in change.kinds and "retyped" in change.kinds:
        yield f"{_described(before)} → {_described(after)}"
    else:
        yield f"{types} {shapes}"
    if "retied" in change.kinds:
        yield _arrow(_tie(before), _tie(after))
    if "byteswapped" in change.kinds:
        yield f"{before.byte_order}-endian → {after.byte_order}-endian"


def _node(change: Change, before: Side, after: Side) -> Iterator[str]:
    if "changed" in change.kinds:
        yield _arrow(text.size(before.bytes), text.size(after.bytes))
    if "recut" in change.kinds:
        yield "the same bytes in other blobs"
    if "retyped" in change.kinds:
        yield _arrow(before.dtype or "", after.dtype or "")
    if "reordered" in change.kinds:
        yield "order of keys" if before.value is None else f"{_listed(before)} → {_listed(after)}"
    if "mode" in change.kinds:
        yield _arrow(f"{before.mode or 0:o}", f"{after.mode or 0:o}")


def _values(before: Side, after: Side) -> str:
    """Both values, from where they begin to differ if they are long."""
    one, other = _spelled(before.value), _spelled(after.value)
    if before.value is None or after.value is None or one == other:
        return f"{_described(before, bits=True)} → {_described(after, bits=True)}"
    if max(len(one), len(other)) > _SHOWN:
        same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
        start = max(same - 8, 0)
        one, other = (f"{'…' * (start > 0)}{value[start:]}" for value in (one, other))
    return f"{_cut(one)} → {_cut(other)}"


def _described(side: Side, *, bits: bool = False) -> str:
    if side.kind == "tensor":
        tied = f", {_tie(side)}" if side.tie else ""
        return f"{side.dtype} {_shape(side)}{tied}"
    if side.kind == "file":
        return text.size(side.bytes)
    if side.kind in ("container", "folder"):
        return side.dtype or ""
    if side.bytes:
        return f"{side.dtype} of {text.size(side.bytes)}"
    if bits and isinstance(side.value, float):
        return float_text(side.value)
    return _cut(_spelled(side.value))


def _spelled(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def _listed(side: Side) -> str:
    return ", ".join(map(str, side.value)) if isinstance(side.value, tuple) else ""


def _tie(side: Side) -> str:
    return f"tied to {side.tie}" if side.tie else "not tied"


def _shape(side: Side) -> str:
    return "×".join(map(str, side.shape or ())) or "0-d"


def _arrow(one: str, other: str) -> str:
    return one if one == other else f"{one} → {other}"


def _cut(value: str) -> str:
    return value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
