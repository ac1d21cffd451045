"""States on which other stores were seen to fail; every test names its row of the failure cases."""

from __future__ import annotations

import math
import random
import struct
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from tests.cairn.strategies import DTYPE_NAMES, Memory, exact

from cairn.errors import UnsupportedValue
from cairn.state import arrays
from cairn.state.arrays import Array
from cairn.state.decode import load
from cairn.state.encode import sketch
from cairn.state.walk import leaves


class Point(NamedTuple):
    """A tuple whose fields have names."""

    x: int


def back(value: object, *, copy: bool = False) -> Any:
    """Sends a value through a store and compares it bit for bit."""
    memory = Memory()
    found = load(memory.save({"x": value}), memory, None, copy)["x"]
    assert exact(found) == exact(value)
    return found


def blobs_of(**tensors: Array) -> dict[str, tuple[str, ...]]:
    """Tells which data blobs each tensor has."""
    memory = Memory()
    entries = leaves(memory.save({"x": dict(tensors)}), memory.tree)
    return {str(entry.path[1]): tuple(ref.id for ref in entry.blobs) for entry in entries}


def filled(name: str, shape: tuple[int, ...], *, big: bool = False) -> Array:
    """Makes an array whose bytes run through everything."""
    dtype = arrays.dtype_of(name, big)
    assert dtype is not None
    made = np.zeros(shape, dtype)
    made.reshape(-1).view(np.uint8)[:] = np.arange(made.nbytes).astype(np.uint8) * 37 + 1
    return made


@pytest.mark.parametrize("name", DTYPE_NAMES)
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0), (2, 3)])
def test_bf16_every_dtype_comes_back(name: str, shape: tuple[int, ...]) -> None:
    """BF16: each dtype keeps its type, shape and bytes as an array, and as a scalar."""
    array = filled(name, shape)
    assert type(back(array)) is np.ndarray
    if array.size:
        scalar = array.reshape(-1)[-1]
        assert type(back(scalar)) is type(scalar)


def test_bf16_unitless_times_come_back() -> None:
    """BF16: dates and durations without a unit, which numpy can hardly print, are kept all the same."""
    for dtype in ("M8", "m8"):
        back(np.arange(3).astype("i8").view(dtype))
        back(np.arange(3).astype("i8").view(dtype)[1])


def test_bf16_every_unit_of_time_comes_back() -> None:
    """BF16: dates and durations of every unit, also of several at once, keep it."""
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"):
        for number in ("", "2", "60", "999999999"):
            for kind in ("M8", "m8"):
                back(np.array([5, -5]).view(f"{kind}[{number}{unit}]"))


def test_bf16_equal_bits_share_a_blob_whatever_they_are_called() -> None:
    """BF16: bfloat16 and the uint16 of the same bits are one blob."""
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    found = blobs_of(a=array, b=array.view(np.uint16), c=array.copy())
    assert found["a"] == found["b"] == found["c"]


@pytest.mark.parametrize("dtype", ["g", "G", "O", "S3", "U3", "V4", "T", [("a", "f4")]])
def test_bf16_other_dtypes_are_refused_by_name(dtype: Any) -> None:
    """BF16: what has no exact place is refused before anything is stored, naming the tensor and its dtype."""
    array = np.zeros(2, dtype)
    with pytest.raises(UnsupportedValue) as error:
        sketch({"model": {"w": [array]}})
    assert str(error.value).startswith("model/w/0: ")
    assert str(array.dtype) in str(error.value)


def test_zero_empty_tensors_keep_shape_and_dtype() -> None:
    """ZERO: every empty shape comes back, no two are tied, none has a blob, and a state may hold nothing else."""
    shapes = [(0,), (2, 0), (0, 2), (0, 3), (0, 0, 4)]
    state = {
        f"{name} {shape}": np.zeros(shape, name) for shape in shapes for name in ("f4", "?", "i8", ml_dtypes.bfloat16)
    }
    found = back(state)
    assert len({id(array) for array in found.values()}) == len(state)
    memory = Memory()
    memory.save({"x": state})
    assert set(memory.blobs) == memory.trees


def test_zero_the_same_empty_tensor_twice_is_no_tie() -> None:
    """ZERO: empty tensors share no memory, so even one object under 200 names is 200 tensors."""
    memory = Memory()
    empty = np.zeros((0, 3))
    entries = list(leaves(memory.save({"x": dict.fromkeys(map(str, range(200)), empty)}), memory.tree))
    assert [entry.kind for entry in entries] == ["tensor"] * 200


def test_eqnt_equal_tensors_are_not_tied() -> None:
    """EQNT: a is c and b only equals a; one blob holds all, and after a change in place c follows a and b does not."""
    a, b = np.ones(4), np.ones(4)
    state = {"a": a, "b": b, "c": a}
    assert len(set(blobs_of(a=a, b=b).values())) == 1
    found = back(state, copy=True)
    found["a"] += 1
    assert found["c"].tolist() == [2, 2, 2, 2]
    assert found["b"].tolist() == [1, 1, 1, 1]


def test_eqnt_equal_tensors_stay_apart_when_committed_again() -> None:
    """EQNT: a loaded state's equal tensors are views of one blob; committing it again does not tie them."""
    memory = Memory()
    ref = memory.save({"m": {"a": np.zeros(4), "b": np.zeros(4)}, "v": np.zeros(4)})
    first, second = (load(ref, memory, None, copy=False) for _ in range(2))
    assert memory.save(first) == ref
    assert memory.save({"m": first["m"], "v": second["v"]}) == ref
    mixed = memory.save({"m": first["v"], "v": second["v"]})
    assert [entry.tie for entry in leaves(mixed, memory.tree)] == [None, None]


def test_empt_empty_containers_stay() -> None:
    """EMPT: every empty container and the empty key come back as what they were."""
    back({"a": 0, "b": {}, "c": [], "d": (), "e": (0, (), 1), "f": [{}, []], "g": None, "": 1, "h": OrderedDict()})


def test_flat_keys_are_never_joined() -> None:
    """FLAT: keys that would fall together if joined with a separator stay apart, nested as they were."""
    t = [np.array([number], "f4") for number in range(12)]
    back(
        {
            "a": {"b": t[1], "": t[4]}, "a.b": t[2], "a/b": t[3], "rng": t[5], "x.rng": t[6],
            "model.layers.0": {"weight": t[7]}, "model": {"layers": {"0": {"weight": t[8]}}},
            "L": [t[9]], "L.0": t[10], "D": {"0": t[11]},
        }
    )  # fmt: skip


def test_flat_a_key_with_a_dollar_is_a_key() -> None:
    """FLAT: a state that looks like the format's own spelling comes back as the plain dict it was."""
    back({"$tensor": {"dtype": "F32", "shape": [], "blobs": []}, "$": 1})
    back([{"$tie": ["x"]}, {"$float": "nan"}, {"$map": {"type": "dict", "pairs": []}}, {"$$": 0}])


def test_tup_tuples_and_keys_keep_their_types() -> None:
    """TUP: tuples stay tuples at every depth, also as keys, and an OrderedDict stays one."""
    back({"betas": (0.9, 0.999), "n": ((1, 2), [3, (4,)]), (1, 2): "k", ("a", None): "m"})
    back({1: "int", True + 1: "two", "1": "str", 1.5: "float", None: "none", b"\xff": "bytes", 2j: "complex"})
    back({np.int64(7): 1, np.float32(0.1): 2, (np.uint8(1), (ml_dtypes.bfloat16(2),)): 3})
    back(OrderedDict([("b", 1), ("a", OrderedDict()), (3, b"\xff")]))
    back({False: 0, (): 1, "$x": 2})


@pytest.mark.parametrize(
    "value",
    [
        {1}, frozenset({1}), deque([1]), Point(1), bytearray(b"x"), range(3),
        np.str_("x"), np.bytes_(b"x"), np.longdouble(1), np.clongdouble(1),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_tup_other_types_are_refused_by_name(value: object) -> None:
    """TUP, NPSC: a type that would not come back is refused with its path, its name and what to store instead."""
    with pytest.raises(UnsupportedValue, match=rf"^x/k/1: .*{type(value).__name__}; store ") as error:
        sketch({"x": {"k": [0, value]}})
    assert str(error.value).endswith("; nothing was written")


def test_tup_a_frozenset_as_key_is_refused() -> None:
    """TUP: a key of another type is refused with the path of its dict."""
    with pytest.raises(UnsupportedValue, match=r"^x/d: .*frozenset"):
        sketch({"x": {"d": {frozenset({1}): 2}}})


def test_npsc_numpy_scalars_stay_numpy_scalars() -> None:
    """NPSC: float32(.1) comes back as float32(.1), not 0.1; each numpy scalar keeps its type."""
    value = {
        "loss": np.float32(0.1), "step": np.int64(5), "ok": np.bool_(True), "h": np.float16(1), "c": np.complex64(1),
        "d": np.datetime64("2024-01-01"), "t": np.timedelta64(3, "s"), "f": np.float64(0.1),
        "never": np.datetime64("NaT"),
    }  # fmt: skip
    found = back(value)
    assert type(found["f"]) is np.float64
    assert type(back(0.1)) is float


def test_nanj_floats_that_json_lacks_come_back() -> None:
    """NANJ: infinities, NaN with any payload and sign, the negative zero and denormals keep every bit."""
    payloads = [struct.unpack("<Q", struct.pack("<d", math.nan))[0] | bits for bits in (0, 1, 1 << 63, 0xDEAD)]
    signalling = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000001))[0]
    nans = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in payloads]
    back(
        {"best": -math.inf, "loss": [math.nan, math.inf, -0.0, 1e-310, 5e-324, 0.1, 1e308], "nans": [*nans, signalling]}
    )
    back([complex(math.nan, -math.inf), complex(-0.0, 0.0), complex(0.0, -0.0)])


def test_nanj_whole_numbers_keep_every_digit() -> None:
    """NANJ: ints come back at any size, and bools stay bools."""
    edge = 1 << 53
    back([0, 1, -1, edge, -edge, edge + 1, -edge - 1, 1 << 4000, -(1 << 64), True, False])


def test_half_cached_halves_of_generators_come_back() -> None:
    """HALF: a generator that holds back half a draw goes on with it after its state was stored."""
    generator = np.random.default_rng(0)
    generator.integers(0, 10, dtype="u4")
    legacy = np.random.RandomState(0)
    legacy.randn()
    found = back({"g": generator.bit_generator.state, "l": legacy.get_state(legacy=False)}, copy=True)
    other = np.random.default_rng(1)
    other.bit_generator.state = found["g"]
    assert found["g"]["has_uint32"] == 1
    assert other.integers(0, 10, 5, dtype="u4").tolist() == generator.integers(0, 10, 5, dtype="u4").tolist()
    revived = np.random.RandomState(1)
    revived.set_state(found["l"])
    assert revived.randn(3).tolist() == legacy.randn(3).tolist()


@pytest.mark.parametrize("bit_generator", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_half_every_bit_generator_goes_on(bit_generator: str) -> None:
    """HALF: the state of each numpy bit generator comes back so that the stream goes on, read-only views included."""
    generator = np.random.Generator(getattr(np.random, bit_generator)(3))
    generator.integers(0, 10, 3, dtype="u4")
    found = back(generator.bit_generator.state)
    other = np.random.Generator(getattr(np.random, bit_generator)(4))
    other.bit_generator.state = found
    assert other.random(5).tolist() == generator.random(5).tolist()


@pytest.mark.parametrize(
    "name", [name for name in DTYPE_NAMES if (dtype := arrays.dtype_of(name, False)) and dtype.itemsize > 1]
)
def test_bige_big_endian_twins_share_a_blob(name: str) -> None:
    """BIGE: a big-endian array has the values and the dtype it had, and the blob of its little-endian twin."""
    big = filled(name, (2, 3), big=True)
    assert arrays.is_big(back(big).dtype)
    width = big.dtype.itemsize // (2 if "complex" in big.dtype.name else 1)
    little = arrays.dtype_of(name, big=False)
    assert little is not None
    twin = np.frombuffer(big.tobytes(), f"u{width}").byteswap().view(little).reshape(2, 3)
    found = blobs_of(big=big, little=twin, turned=np.asfortranarray(big), zero=big[0, 0:1].reshape(()))
    assert found["big"] == found["little"] == found["turned"]
    assert back(big.T).dtype == big.dtype
    assert back(big[0, 0:1].reshape(())).shape == ()


def test_bige_values_are_equal() -> None:
    """BIGE: the numbers themselves, not only their bytes, come back from either byte order."""
    for dtype in (">f4", ">i2", ">c8", ">u8", ">f8", ">M8[s]"):
        array = np.array([1, 2, 3]).astype(dtype)
        found = back(array)
        assert found.dtype == array.dtype
        assert (found == array).all()
        assert blobs_of(a=array) == blobs_of(a=array.astype(array.dtype.newbyteorder("<")))


def test_cplx_complex_numbers_keep_their_bits() -> None:
    """CPLX: complex64, complex128 and the half-size ones keep NaN, infinity and the sign of zero in both parts."""
    values = np.array([1 + 2j, complex(math.nan, -math.inf), complex(-0.0, 0.0)])
    for dtype in (np.complex64, np.complex128, ml_dtypes.complex32, ml_dtypes.bcomplex32):
        back(values.astype(dtype))


def test_neg0_the_sign_of_zero_stays() -> None:
    """NEG0: zeros of different signs are different bytes and come back so."""
    tensors = {"plus": np.zeros(4), "minus": -np.zeros(4), "both": np.array([0, -0.0, 0, 0])}
    assert np.signbit(back(tensors)["minus"]).all()
    assert len(set(blobs_of(**tensors).values())) == 3
    assert math.copysign(1, back(-0.0)) == -1


def test_pyrng_the_state_of_random_can_be_set() -> None:
    """PYRNG: `random.setstate` takes what was loaded, also after a gauss that left a second value behind."""
    draws: list[Callable[[random.Random], float]] = [lambda source: source.random(), lambda source: source.gauss(0, 1)]
    for draw in draws:
        source = random.Random(5)
        draw(source)
        found = back(source.getstate())
        other = random.Random(6)
        other.setstate(found)
        assert [other.gauss(0, 1), other.random()] == [source.gauss(0, 1), source.random()]


def test_alias_the_state_of_a_generator_is_kept_by_value() -> None:
    """ALIAS: loading does not touch the generator a state was taken of."""
    generator = np.random.Generator(np.random.MT19937(1))
    memory = Memory()
    ref = memory.save({"rng": generator.bit_generator.state})
    expected = np.random.Generator(np.random.MT19937(1)).random(10).tolist()
    assert generator.random(10).tolist() == expected
    found: Any = load(ref, memory, None, copy=True)["rng"]
    found["state"]["key"][:] = 0
    assert generator.random() != 0
    fresh: Any = load(ref, memory, None, copy=False)["rng"]
    generator.bit_generator.state = fresh
    assert generator.random(10).tolist() == expected


def test_nonc_memory_order_never_matters() -> None:
    """NONC: the logical values come back from any strides; equal content in C and Fortran order is one blob."""
    c = np.arange(6, dtype="f4").reshape(2, 3)
    grid = np.arange(120, dtype="f4").reshape(2, 3, 4, 5)
    views = {
        "f": np.asfortranarray(c), "skip": np.arange(8, dtype="f4")[::2], "t": c.T,
        "wide": np.broadcast_to(np.array([1, 2], "f4"), (4, 2)), "back": c[::-1, ::-1], "one": c[:1, ::2],
        "channels_last": grid.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2), "grid": grid, "c": c,
    }  # fmt: skip
    found = back(views)
    assert all(array.flags.c_contiguous for array in found.values())
    blobs = blobs_of(**views)
    assert blobs["f"] == blobs["c"]
    assert blobs["channels_last"] == blobs["grid"]
    assert all(array.flags.c_contiguous for array in back(views, copy=True).values())


def test_nonc_overlapping_views_are_stored_separately() -> None:
    """NONC: only the very same view is a tie; a part, a turned view or other bytes of one buffer are not."""
    base = np.arange(6, dtype="f4")
    state = {
        "a": base,
        "again": base[:],
        "part": base[:3],
        "turned": base[::-1],
        "bits": base.view("i4"),
        "2d": base[None],
    }
    memory = Memory()
    entries = leaves(memory.save({"x": state}), memory.tree)
    assert [entry.path[1] for entry in entries if entry.kind == "tie"] == ["again"]


def test_uni_keys_are_never_normalised() -> None:
    """UNI: look-alike, empty and unprintable keys and lone surrogates stay distinct and exact."""
    keys = [
        "é", "e\u0301", "ﬁ", "fi", "\U0001f600", "\u200f", "\0", "\n", "\t", "", " ", ".", "..", "\x7f", '"', "\\",
        "\u2028", "\ufeff", "\ud800", "\udfff", "\ud83d\ude00",
    ]  # fmt: skip
    found = back({key: np.array(number) for number, key in enumerate(keys)})
    assert list(found) == keys
    back([*keys, "".join(keys)])


def test_uni_listing_escapes_control_characters() -> None:
    """UNI: the path of a value shows on one line what cannot be printed."""
    memory = Memory()
    with pytest.raises(UnsupportedValue, match=r'^x/"a\\nb"/"\\ud800": '):
        sketch({"x": {"a\nb": {"\ud800": {1}}}})
    assert memory.blobs == {}
