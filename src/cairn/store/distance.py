"""How far two tensors are apart, read side by side in windows, so that memory does not grow with the tensors.

Elements correspond by their place in C order. Two tensors that lie in memory in one and the same dense order are read
in that order instead, which gives the same numbers. Windows that lie in the same bytes of the same blobs are equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cairn.files.formats import TensorInfo
from cairn.state import arrays, dtypes
from cairn.state.arrays import Array
from cairn.store.diff import Numbers
from cairn.store.extents import Elements, windows

WINDOW = 1 << 18
"""Elements that are compared at once."""

_WHOLE = re.compile(r"BOOL|[IU]\d+|u?int\d")
_LOST = np.iinfo(np.int64).min
"""What stands for no date and no duration."""


def family(dtype: str) -> str | None:
    """What kind of numbers an element type has, or None when they cannot be computed with here."""
    if arrays.dtype_of(dtype, big=False) is None:
        return None
    if dtypes.is_time(dtype):
        return f"time {dtype}"
    if dtype in arrays.COMPLEX:
        return "complex"
    return "whole" if _WHOLE.fullmatch(dtype) else "real"


def meeting(before: str, after: str) -> str | None:
    """The kind of numbers in which two element types are compared, or None."""
    one, other = family(before), family(after)
    if one is None or other is None or one == other:
        return one if other is not None else None
    pair = {one, other}
    if not pair <= {"whole", "real", "complex"}:
        return None
    return "complex" if "complex" in pair else "real"


def numbers(before: Elements, after: Elements, advance: Callable[[int], None]) -> Numbers | None:
    """Compare two tensors of one shape; None for types that cannot be computed with. `advance` is told the bytes."""
    kind = meeting(before.info.dtype, after.info.dtype)
    if kind is None:
        return None
    flat = before.info.strides == after.info.strides and _is_dense(before.info) and _is_dense(after.info)
    one, other = _Flow(before, flat), _Flow(after, flat)
    sums = _Sums(kind, one, other)
    count = math.prod(before.info.shape)
    for start, stop in windows(count, WINDOW):
        sums.add(start, stop)
        advance((stop - start) * one.itemsize)
    return sums.result(count)


def _is_dense(info: TensorInfo) -> bool:
    """Whether the elements fill a run of memory, in whatever order of the dimensions."""
    if info.strides is None:
        return True
    step = 1
    for stride, extent in sorted(zip(info.strides, info.shape, strict=True)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


class _Flow:
    """The elements of a tensor from front to back: as they lie, if `flat`, else in C order."""

    def __init__(self, tensor: Elements, flat: bool) -> None:
        dtype = arrays.dtype_of(tensor.info.dtype, big=False)
        assert_dtype: arrays.DType = dtype  # type: ignore[assignment] # `meeting` knows the type
        self.info = tensor.info
        self.itemsize = assert_dtype.itemsize
        self._dtype = assert_dtype
        self._data = tensor.data
        self._lies = flat or tensor.info.strides is None

    def elements(self, start: int, stop: int) -> Array:
        """Some elements in the machine's own byte order, their bits untouched."""
        if self._lies:
            return self._read(self.info.offset + start, self.info.offset + stop)
        places = self._places(start, stop)
        low, high = int(places.min()), int(places.max()) + 1
        found = np.empty(stop - start, self._dtype)
        for at, end in windows(high - low, 4 * WINDOW):
            inside = (places >= low + at) & (places < low + end)
            if inside.any():
                found[inside] = self._read(low + at, low + end)[places[inside] - (low + at)]
        return found

    def extents(self, start: int, stop: int) -> object:
        """What is equal only where the elements are; where they do not lie in a run, equal to nothing."""
        if not self._lies:
            return object()
        place = self.info.offset
        return self.info.big_endian, self._data.part(*self._bounds(place + start, place + stop))

    def _bounds(self, start: int, stop: int) -> tuple[int, int]:
        return self.info.start + start * self.itemsize, self.info.start + stop * self.itemsize

    def _read(self, start: int, stop: int) -> Array:
        raw = np.frombuffer(self._data.read(*self._bounds(start, stop)), np.uint8)
        if self.info.big_endian:
            raw = raw.copy()
            arrays.swap(raw, self.info.dtype, self.itemsize)
        typed = raw.view(self._dtype)
        return typed if typed.flags.aligned else typed.copy()

    def _places(self, start: int, stop: int) -> Array:
        places = np.full(stop - start, self.info.offset, np.int64)
        indices = np.unravel_index(np.arange(start, stop), self.info.shape)
        for index, stride in zip(indices, self.info.strides or (), strict=True):
            places += index * stride
        return places


@dataclass(slots=True)
class _Sums:
    """What is known of the windows so far."""

    kind: str
    before: _Flow
    after: _Flow
    changed: int = 0
    nan: int = 0
    greatest: int | float = field(init=False)
    distance: float = 0.0
    norm: float = 0.0

    def __post_init__(self) -> None:
        self.greatest = 0 if self._is_whole else 0.0

    @property
    def _is_whole(self) -> bool:
        return self.kind not in ("real", "complex")

    @property
    def _by_bits(self) -> bool:
        """Whether equal elements have equal bits, which those of two types, or signed otherwise, have not."""
        one, other = self.before.info, self.after.info
        return (one.dtype, one.conjugate, one.negative) == (other.dtype, other.conjugate, other.negative)

    def add(self, start: int, stop: int) -> None:
        """Compare some elements."""
        x = self.before.elements(start, stop)
        with np.errstate(all="ignore"):
            a = self._values(x, self.before.info)
            if self._by_bits and self.before.extents(start, stop) == self.after.extents(start, stop):
                self.norm = math.hypot(self.norm, _norm(_chosen(a, self._known(a))))
                return
            y = self.after.elements(start, stop)
            b = self._values(y, self.after.info)
            known = self._known(a) & self._known(b)
            self.norm = math.hypot(self.norm, _norm(_chosen(a, known)))
            changed = _unequal_bits(x, y) if self._by_bits else _unequal(a, b)
            self.changed += int(np.count_nonzero(changed))
            self._far(_chosen(a, changed), _chosen(b, changed), _chosen(known, changed))

    def result(self, count: int) -> Numbers:
        """What the windows come to."""
        relative = self.distance / self.norm if self.norm else math.inf if self.distance else 0.0
        return Numbers(count, self.changed, self.greatest, relative, self.nan)

    def _far(self, a: Array, b: Array, known: Array) -> None:
        """Take in the distance of elements that changed."""
        if self._is_whole:
            self.nan += int(np.count_nonzero(~known))
            far = _far_whole(a[known], b[known])
            self.distance = math.hypot(self.distance, _norm(far))
            self.greatest = max(self.greatest, int(far.max(initial=0)))
        else:
            far = np.abs(a - b)
            lost = np.isnan(far)
            self.nan += int(np.count_nonzero(lost))
            self.distance = math.hypot(self.distance, _norm(_chosen(far, known)))
            self.greatest = max(self.greatest, float(far[~lost].max(initial=0.0)))

    def _values(self, x: Array, info: TensorInfo) -> Array:
        if self._is_whole:
            return (
                x.view(np.int64) if x.dtype.kind in "mM" else x.astype(np.uint64 if info.dtype == "U64" else np.int64)
            )
        values = x.astype(np.complex128 if self.kind == "complex" else np.float64)
        if not self._by_bits:
            values = -values if info.negative else values
            values = np.conj(values) if info.conjugate else values
        return values

    def _known(self, values: Array) -> Array:
        """Which values have a distance from others."""
        known: Array = np.isfinite(values)
        return values != _LOST if self.kind.startswith("time") else known


def _chosen(values: Array, mask: Array) -> Array:
    """The values that a mask keeps, without a copy where it keeps all."""
    return values if mask.all() else values[mask]


def _unequal_bits(x: Array, y: Array) -> Array:
    width = min(x.dtype.itemsize, 8)
    bits = x.view(f"u{width}") != y.view(f"u{width}")
    return bits.reshape(x.size, -1).any(axis=1)


def _unequal(a: Array, b: Array) -> Array:
    """Which values differ; NaNs of two types are equal, zeros of two signs are not."""
    if a.dtype.kind not in "fc":
        unequal: Array = a != b
        return unequal
    nan = np.isnan(a) & np.isnan(b)
    return _unequal_bits(a, b) & ~nan


def _far_whole(a: Array, b: Array) -> Array:
    """Distances without a sign, exact: the difference of two 64-bit numbers has 64 bits when it is not negative."""
    if a.dtype != b.dtype:
        far: Array = np.abs(a.astype(object) - b.astype(object))
        return far
    return np.where(a > b, a.view(np.uint64) - b.view(np.uint64), b.view(np.uint64) - a.view(np.uint64))


def _norm(values: Array) -> float:
    """The square root of the sum of squares, which may leave the range of float64 on the way."""
    sizes: Any = np.abs(values) if values.dtype.kind == "c" else values.astype(np.float64, copy=False)
    total = float(np.dot(sizes, sizes))
    if math.isfinite(total) and total > 1e-290:
        return math.sqrt(total)
    scale = float(np.abs(sizes).max(initial=0.0))
    if scale == 0.0:
        return 0.0
    if not math.isfinite(scale):
        return scale
    sizes = sizes / scale
    return scale * math.sqrt(float(np.dot(sizes, sizes)))
