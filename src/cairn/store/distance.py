"""How far two tensors are apart, read side by side in windows, so that memory does not grow with the tensors.

Elements correspond by their place in C order. Two tensors that lie in memory in one and the same dense order are read
in that order instead, which gives the same numbers. Windows that lie in the same bytes of the same blobs are equal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cairn.files.formats import TensorInfo
from cairn.state import arrays, dtypes
from cairn.state.arrays import Array
from cairn.store.diff import Numbers
from cairn.store.extents import Elements, windows

WINDOW = 1 << 17
"""Elements that are compared at once."""

_SMALL = re.compile(r"BOOL|[IU](8|16|32)|u?int\d")
"""Whole numbers that float64 holds, and their differences too."""
_WHOLE = ("I64", "U64")
_TINY = 1e-290
"""Sums of squares below this lose digits."""
_LOST = np.iinfo(np.int64).min
"""What stands for no date and no duration."""


def family(dtype: str) -> str | None:
    """What kind of numbers an element type has, or None when they cannot be computed with here."""
    if arrays.dtype_of(dtype, big=False) is None:
        return None
    if dtypes.is_time(dtype):
        return dtype
    if dtype in arrays.COMPLEX:
        return "complex"
    if dtype in _WHOLE:
        return "whole"
    return "small" if _SMALL.fullmatch(dtype) else "real"


def meeting(before: str, after: str) -> str | None:
    """The kind of numbers in which two element types are compared, or None."""
    one, other = family(before), family(after)
    if one is None or other is None or one == other:
        return one if other is not None else None
    pair = {one, other}
    if not pair <= {"small", "whole", "real", "complex"}:
        return None
    return "complex" if "complex" in pair else "real" if "real" in pair else "whole"


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
    greatest: int | float = 0
    distance: float = 0.0
    norm: float = 0.0

    def add(self, start: int, stop: int) -> None:
        """Compare some elements."""
        x = self.before.elements(start, stop)
        with np.errstate(all="ignore"):
            a = self._values(x, self.before.info)
            if self._by_bits and self.before.extents(start, stop) == self.after.extents(start, stop):
                self.norm = math.hypot(self.norm, _norm(a[self._known(a)]))
                return
            y = self.after.elements(start, stop)
            b = self._values(y, self.after.info)
            changed = _unequal_bits(x, y) if self._by_bits else _unequal(a, b)
            self.changed += int(np.count_nonzero(changed))
            if self._is_exact:
                self._add_whole(a, b, changed)
            elif not self._add_smooth(a, b):
                self._add_rough(a, b, changed)

    def result(self, count: int) -> Numbers:
        """What the windows come to."""
        relative = self.distance / self.norm if self.norm else math.inf if self.distance else 0.0
        greatest = float(self.greatest) if self.kind in ("real", "complex") else int(self.greatest)
        return Numbers(count, self.changed, greatest, relative, self.nan)

    @property
    def _is_exact(self) -> bool:
        """Whether float64 does not hold the numbers, which then stay whole."""
        return self.kind not in ("real", "complex", "small")

    @property
    def _by_bits(self) -> bool:
        """Whether equal elements have equal bits, which those of two types, or signed otherwise, have not."""
        one, other = self.before.info, self.after.info
        return (one.dtype, one.conjugate, one.negative) == (other.dtype, other.conjugate, other.negative)

    def _add_smooth(self, a: Array, b: Array) -> bool:
        """Take in numbers if all of them are finite and no square is out of range; say whether they were."""
        far = a - b
        distance, norm = _square(far), _square(a)
        if not math.isfinite(distance + norm) or (distance < _TINY and far.any()) or (norm < _TINY and a.any()):
            return False
        self._extend(math.sqrt(distance), math.sqrt(norm), np.abs(far))
        return True

    def _add_rough(self, a: Array, b: Array, changed: Array) -> None:
        """Take in any numbers."""
        known = self._known(a) & self._known(b)
        far = np.abs(a[changed] - b[changed])
        lost = np.isnan(far)
        self.nan += int(np.count_nonzero(lost))
        self._extend(_norm(far[known[changed]]), _norm(a[known]), far[~lost])

    def _add_whole(self, a: Array, b: Array, changed: Array) -> None:
        """Take in 64-bit numbers or dates."""
        known = self._known(a) & self._known(b)
        self.nan += int(np.count_nonzero(changed & ~known))
        far = _far_whole(a[known], b[known])
        self._extend(_norm(far), _norm(a[known]), far)

    def _extend(self, distance: float, norm: float, far: Array) -> None:
        self.distance = math.hypot(self.distance, distance)
        self.norm = math.hypot(self.norm, norm)
        if far.size:
            self.greatest = max(self.greatest, far.max().item() if far.dtype != object else far.max())

    def _values(self, x: Array, info: TensorInfo) -> Array:
        if self._is_exact:
            if x.dtype.kind in "mM":
                return x.view(np.int64)
            return x.astype(np.uint64 if info.dtype == "U64" else np.int64, copy=False)
        values = x.astype(np.complex128 if self.kind == "complex" else np.float64, copy=False)
        if not self._by_bits:
            values = -values if info.negative else values
            values = np.conj(values) if info.conjugate else values
        return values

    def _known(self, values: Array) -> Array:
        """Which values have a distance from others."""
        known: Array = np.isfinite(values)
        if dtypes.is_time(self.kind):
            known = np.not_equal(values, _LOST)
        return known


def _unequal_bits(x: Array, y: Array) -> Array:
    width = min(x.dtype.itemsize, 8)
    bits: Array = np.not_equal(x.view(f"u{width}"), y.view(f"u{width}"))
    return bits[::2] | bits[1::2] if x.dtype.itemsize > width else bits


def _unequal(a: Array, b: Array) -> Array:
    """Which values differ; NaNs of two types are equal, zeros of two signs are not."""
    if a.dtype.kind not in "fc":
        unequal: Array = np.not_equal(a, b)
        return unequal
    return _unequal_bits(a, b) & ~(np.isnan(a) & np.isnan(b))


def _far_whole(a: Array, b: Array) -> Array:
    """Distances without a sign, exact: the difference of two 64-bit numbers has 64 bits when it is not negative."""
    if a.dtype != b.dtype:
        far: Array = np.abs(a.astype(object) - b.astype(object))
        return far
    far = a.view(np.uint64) - b.view(np.uint64)
    return np.where(a > b, far, -far)


def _square(values: Array) -> float:
    """The sum of squares, on one core: small sums are not worth the threads of a BLAS."""
    if values.dtype.kind == "c":
        return _square(values.real) + _square(values.imag)
    return float(np.einsum("i,i->", values, values))


def _norm(values: Array) -> float:
    """The square root of the sum of squares, which may leave the range of float64 on the way."""
    sizes: Any = np.abs(values) if values.dtype.kind == "c" else values.astype(np.float64, copy=False)
    total = _square(sizes)
    if math.isfinite(total) and total > _TINY:
        return math.sqrt(total)
    scale = float(np.abs(sizes).max(initial=0.0))
    if scale == 0.0 or not math.isfinite(scale):
        return scale
    return scale * math.sqrt(_square(sizes / scale))
