"""diff: how far tensors are apart, against the plainest computation; and how much of them is read at once."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cairn.strategies import DTYPE_NAMES, Memory

from cairn.files.formats import TensorInfo
from cairn.ids import BlobRef
from cairn.state import arrays, dtypes
from cairn.store import distance
from cairn.store.diff import Numbers
from cairn.store.extents import Bytes, Elements, Extent, of_blobs
from cairn.store.tensor_diff import tensor_kinds

SUPPORTED = [name for name in DTYPE_NAMES if arrays.dtype_of(name, big=False) is not None]


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Small tensors are many windows, except where large ones are compared."""
    if "large" not in request.node.name:
        monkeypatch.setattr(distance, "WINDOW", 3)


def elements(array: np.ndarray[Any, Any], pieces: int = 1, **layout: Any) -> Elements:
    """Put the bytes of an array into blobs."""
    memory = Memory()
    data = array.tobytes()
    step = max(-(-len(data) // pieces), 1)
    refs = [memory.put(data[at : at + step]) for at in range(0, len(data), step)]
    name = arrays.name_of(array.dtype)
    assert name is not None
    info = TensorInfo("t", name, layout.pop("shape", array.shape), 0, len(data), **layout)
    return Elements(info, of_blobs(memory, refs))


def compared(before: Elements, after: Elements) -> Numbers | None:
    """Compare two tensors."""
    return tensor_kinds(before, after, lambda nbytes: None)[1]


def values(array: np.ndarray[Any, Any]) -> list[Any]:
    """The elements as Python has them."""
    name = arrays.name_of(array.dtype) or ""
    flat = array.reshape(-1)
    if dtypes.is_time(name):
        return [int(value) for value in flat.view("i8")]
    make: Any = {"whole": int, "small": int, "real": float, "complex": complex}[distance.family(name) or ""]
    return [make(value) for value in flat]


def plainly(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any]) -> Numbers:
    """The same numbers, one element at a time."""
    time = before.dtype.kind in "mM"
    size = before.dtype.itemsize
    one, other = before.tobytes(), after.tobytes()
    changed = nan = 0
    greatest: Any = 0
    far: list[float] = []
    norm: list[float] = []
    for at, (a, b) in enumerate(zip(values(before), values(after), strict=True)):
        lost = -(1 << 63) in (a, b) if time else a != a or b != b
        finite = not lost and all(abs(value) < math.inf for value in (a, b))
        if finite:
            norm.append(float(abs(a)))
        if one[at * size : (at + 1) * size] != other[at * size : (at + 1) * size]:
            changed += 1
            nan += lost
            if not lost:
                greatest = max(greatest, abs(a - b))
            if finite:
                far.append(float(abs(a - b)))
    relative = math.hypot(*far) / math.hypot(*norm) if any(norm) else math.inf if any(far) else 0.0
    return Numbers(before.size, changed, greatest, relative, nan)


def check(found: Numbers | None, expected: Numbers) -> None:
    """Compare numbers; a norm may be rounded."""
    assert found is not None
    assert (found.elements, found.changed, found.nan) == (expected.elements, expected.changed, expected.nan)
    assert found.max_abs == pytest.approx(expected.max_abs, rel=1e-14 if isinstance(found.max_abs, float) else 0, abs=0)
    assert type(found.max_abs) is type(expected.max_abs) or expected.max_abs == 0
    if expected.max_abs == 0 or expected.max_abs > 1e-290:  # The smallest floats have few digits.
        assert found.relative_l2 == pytest.approx(expected.relative_l2, rel=1e-9, nan_ok=True)


@st.composite
def pairs(draw: st.DrawFn, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two arrays of one type and any bits, equal in some elements."""
    dtype = arrays.dtype_of(name, big=False)
    assert dtype is not None
    count = draw(st.integers(1, 8))
    before = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    after = bytearray(draw(st.binary(min_size=len(before), max_size=len(before))))
    for at in draw(st.sets(st.integers(0, count - 1))):
        after[at * dtype.itemsize : (at + 1) * dtype.itemsize] = before[at * dtype.itemsize : (at + 1) * dtype.itemsize]
    return np.frombuffer(before, dtype), np.frombuffer(bytes(after), dtype)


@pytest.mark.parametrize("name", SUPPORTED)
def test_numbers_of_every_type(name: str) -> None:
    """Any bits of any type: what the windows add up to is what one element at a time gives."""

    @settings(max_examples=25, deadline=None)
    @given(pairs(name), st.integers(1, 4), st.integers(1, 4))
    def run(both: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], one: int, other: int) -> None:
        before, after = both
        if before.tobytes() == after.tobytes():
            assert tensor_kinds(elements(before, one), elements(after, other), lambda nbytes: None) == ([], None)
        else:
            check(compared(elements(before, one), elements(after, other)), plainly(before, after))

    run()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (np.array([0.0, 1.0]), np.array([-0.0, 1.0]), Numbers(2, 1, 0.0, 0.0, 0)),
        (np.array([0.0]), np.array([2.0]), Numbers(1, 1, 2.0, math.inf, 0)),
        (np.array([1.0, np.nan]), np.array([np.nan, 1.0]), Numbers(2, 2, 0.0, 0.0, 2)),
        (np.array([np.inf, 3.0]), np.array([-np.inf, 0.0]), Numbers(2, 2, math.inf, 1.0, 0)),
        (np.array([np.inf, 4.0]), np.array([np.inf, 5.0]), Numbers(2, 1, 1.0, 0.25, 0)),
        (np.array([1e300, 1e300]), np.array([0.0, 0.0]), Numbers(2, 2, 1e300, 1.0, 0)),
        (np.array([3e-200, 0.0]), np.array([0.0, 3e-200]), Numbers(2, 2, 3e-200, math.sqrt(2), 0)),
        (np.array([-(1 << 63)]), np.array([(1 << 63) - 1]), Numbers(1, 1, (1 << 64) - 1, 2.0, 0)),
        (np.array([1 << 63], "u8"), np.array([(1 << 63) + 1], "u8"), Numbers(1, 1, 1, 2.0**-63, 0)),
        (np.array([True, False]), np.array([False, False]), Numbers(2, 1, 1, 1.0, 0)),
        (np.array(["NaT", 5], "M8[s]"), np.array([1, 7], "M8[s]"), Numbers(2, 2, 2, 0.4, 1)),
        (np.array([3 + 4j]), np.array([0j]), Numbers(1, 1, 5.0, 1.0, 0)),
    ],
)
def test_numbers_at_the_edges(before: np.ndarray[Any, Any], after: np.ndarray[Any, Any], expected: Numbers) -> None:
    """Zeros of two signs, NaN, infinities, the largest distances, dates."""
    check(compared(elements(before), elements(after)), expected)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (np.array([1.5, 2.0], "f4"), np.array([1.5, 2.0]), Numbers(2, 0, 0.0, 0.0, 0)),
        (np.array([3.0, 4.0]), np.array([3.0, 4.0078125], ml_dtypes.bfloat16), Numbers(2, 1, 0.0, 0.0, 0)),
        (np.array([np.nan, -0.0], "f2"), np.array([-np.nan, 0.0], "f4"), Numbers(2, 1, 0.0, 0.0, 0)),
        (np.array([1, 2], "i4"), np.array([1.0, 2.5]), Numbers(2, 1, 0.5, 0.5 / math.sqrt(5), 0)),
        (np.array([-1, 5], "i8"), np.array([(1 << 64) - 1, 5], "u8"), Numbers(2, 1, 1 << 64, 2**64 / math.sqrt(26), 0)),
        (np.array([True, True]), np.array([1, 3], "i1"), Numbers(2, 1, 2, math.sqrt(2), 0)),
        (np.array([3.0, 0.0]), np.array([3.0, 4j]), Numbers(2, 1, 4.0, 4 / 3, 0)),
    ],
)
def test_tensors_of_two_types_are_compared_by_value(
    before: np.ndarray[Any, Any], after: np.ndarray[Any, Any], expected: Numbers
) -> None:
    """A cast that changes no value changes no element; NaNs of two types are equal, zeros of two signs are not."""
    if after.dtype == ml_dtypes.bfloat16:
        expected = Numbers(
            2, int(float(after[1]) != 4.0), abs(float(after[1]) - 4.0), abs(float(after[1]) - 4.0) / 5, 0
        )
    kinds, numbers = tensor_kinds(elements(before), elements(after), lambda nbytes: None)
    assert kinds == ["retyped"] + ["changed"] * (expected.changed > 0)
    check(numbers, expected)


def test_dates_and_numbers_do_not_meet() -> None:
    """There is no distance between a date and a number, nor between dates of two units."""
    date = np.array([1], "M8[s]")
    for other in (np.array([1]), np.array([1.0]), np.array([1], "M8[ms]"), np.array([1], "m8[s]")):
        assert tensor_kinds(elements(date), elements(other), lambda nbytes: None) == (["retyped"], None)


def test_types_without_numbers_are_compared_by_bytes() -> None:
    """Blocks of quantised weights have no elements of their own here."""

    def blocks(data: bytes) -> Elements:
        memory = Memory()
        return Elements(TensorInfo("t", "Q4_0", (32,), 1, 19), of_blobs(memory, [memory.put(b"x" + data)]))

    one = tensor_kinds(blocks(b"a" * 18), blocks(b"a" * 17 + b"b"), lambda nbytes: None)
    assert one == (["changed"], None)
    memory = Memory()
    moved = Elements(TensorInfo("t", "Q4_0", (32,), 0, 18), of_blobs(memory, [memory.put(b"a" * 18)]))
    assert tensor_kinds(blocks(b"a" * 18), moved, lambda nbytes: None) == ([], None)


# Tensors in files lie in any order.


@st.composite
def layouts(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Strides without overlap, an offset, and how many elements the storage has."""
    strides = [0] * len(shape)
    step = draw(st.integers(1, 2))
    for dimension in draw(st.permutations(range(len(shape)))):
        strides[dimension] = step
        step *= shape[dimension] * draw(st.integers(1, 2))
    offset = draw(st.integers(0, 3))
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    return tuple(strides), offset, offset + last + 1 + draw(st.integers(0, 2))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_strides_do_not_change_the_numbers(data: st.DataObject) -> None:
    """Views, transposed and big-endian tensors: their elements correspond, wherever they lie."""
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    sides: list[Elements] = []
    found: list[np.ndarray[Any, Any]] = []
    layout = data.draw(layouts(shape))
    for _ in range(2):
        layout = data.draw(st.sampled_from([layout, data.draw(layouts(shape))]))
        strides, offset, size = layout
        storage = np.array(data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)), "f4")
        view = np.lib.stride_tricks.as_strided(storage[offset:], shape, [4 * stride for stride in strides])
        found.append(np.ascontiguousarray(view))
        big = data.draw(st.booleans())
        stored = storage.byteswap() if big else storage
        pieces = data.draw(st.integers(1, 3))
        sides.append(elements(stored, pieces, shape=shape, offset=offset, strides=strides, big_endian=big))
    before, after = sides
    numbers = distance.numbers(before, after, lambda nbytes: None)
    check(numbers, plainly(*found))


def test_bits_of_torch_are_part_of_the_value() -> None:
    """A conjugate or negative view has other values than its storage; two of them are compared as they lie."""
    z = np.array([1 + 2j, 3 - 1j])
    plain, conjugate = elements(z), elements(z, conjugate=True)
    assert compared(conjugate, elements(z + 1, conjugate=True)) == compared(plain, elements(z + 1))
    check(compared(plain, conjugate), Numbers(2, 2, 4.0, math.sqrt(20 / 15), 0))
    assert compared(plain, elements(z.conj(), conjugate=True)) is None
    x = np.array([1.0, -2.0])
    check(compared(elements(x), elements(x, negative=True)), Numbers(2, 2, 4.0, 2.0, 0))
    assert tensor_kinds(elements(x), elements(-x, negative=True), lambda nbytes: None) == ([], None)


# Memory.


class Endless:
    """Blobs of 16 MiB, all but one of the same bytes; says which were read and that each was read alone."""

    def __init__(self, fill: bytes) -> None:
        self.reads: list[str] = []
        self._data = np.frombuffer(fill * ((1 << 24) // len(fill)), np.uint8).data

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        """Give one blob."""
        (ref,) = refs
        self.reads.append(ref.id)
        return self._data[: ref.size]


def test_of_large_tensors_windows_are_in_memory() -> None:
    """Two tensors of 160 MiB take a few windows; of blobs that both have one side is read, for the norm."""
    one, other = Endless(b"\0\0\x80\x3f"), Endless(b"\0\0\0\x40")
    count = 10
    sides = []
    for source, name in ((one, "a"), (other, "b")):
        blobs = [BlobRef("same" if at < 4 else f"{name}{at}", 1 << 24) for at in range(count)]
        info = TensorInfo("t", "F32", (count << 22,), 0, count << 24)
        sides.append(Elements(info, Bytes(source, [Extent(ref, 0, ref.size) for ref in blobs])))
    done: list[int] = []
    tracemalloc.start()
    try:
        kinds, numbers = tensor_kinds(sides[0], sides[1], done.append)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kinds == ["changed"]
    check(numbers, Numbers(count << 22, 6 << 22, 1.0, math.sqrt(6 / 10), 0))
    assert peak < 24 << 20
    assert (len(one.reads), len(other.reads)) == (7, 6)
    assert sum(done) == count << 24
