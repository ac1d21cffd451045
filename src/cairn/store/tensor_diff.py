"""How two tensors differ, live ones or tensors inside files."""

from __future__ import annotations

import math
from collections.abc import Callable

from cairn.store import distance
from cairn.store.diff import Numbers
from cairn.store.extents import Elements, windows

_WINDOW_BYTES = 1 << 20


def tensor_kinds(
    before: Elements, after: Elements, advance: Callable[[int], None] | None
) -> tuple[list[str], Numbers | None]:
    """Say how two tensors differ. Without `advance` nothing is read: other blobs are then other bytes."""
    one, other = before.info, after.info
    kinds = ["reshaped"] * (one.shape != other.shape) + ["retyped"] * (one.dtype != other.dtype)
    if one.dtype == other.dtype and before.is_same(after):
        return kinds, None
    if one.shape != other.shape:
        alike = one.dtype == other.dtype and math.prod(one.shape) == math.prod(other.shape)
        differ = alike and (advance is None or _differ(before, after))
        return kinds + ["changed"] * differ, None
    if advance is None:
        return kinds or ["changed"], None
    numbers = distance.numbers(before, after, advance)
    if numbers is not None:
        return kinds + ["changed"] * (numbers.changed > 0), numbers if numbers.changed or kinds else None
    return kinds + ["changed"] * (not kinds and _differ(before, after)), None


def _differ(before: Elements, after: Elements) -> bool:
    """Whether the bytes of two tensors differ."""
    one, other = before.info, after.info
    size = one.stop - one.start
    if size != other.stop - other.start:
        return True
    return any(
        before.data.read(one.start + at, one.start + end) != after.data.read(other.start + at, other.start + end)
        for at, end in windows(size, _WINDOW_BYTES)
    )
