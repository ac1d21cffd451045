"""torch's archives are cut at their storages; their tensors are named without running what their pickles say."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.fuzz.samples import (
    Item,
    Parameter,
    Stored,
    cut,
    names,
    opcodes,
    pieces,
    reader,
    torch_file,
    zip_file,
)

from cairn.files.formats import TensorInfo, tensors
from cairn.state.dtypes import LIBRARY_NAMES

DATA = Path(__file__).parent / "data"
SIX = np.arange(6, dtype="<f4")
WHOLE = Stored("FloatStorage", "0", 6, 0, (2, 3), (3, 1))


def array(data: bytes, tensor: TensorInfo) -> Any:
    """The elements of a tensor, as its description says they lie, before any bits are applied."""
    library = LIBRARY_NAMES[tensor.dtype]
    storage = np.frombuffer(data[tensor.start : tensor.stop], getattr(ml_dtypes, library, library))
    size = storage.itemsize
    strides = None if tensor.strides is None else tuple(step * size for step in tensor.strides)
    return np.ndarray(tensor.shape, storage.dtype, storage.tobytes(), tensor.offset * size, strides)


def described(name: str) -> tuple[bytes, dict[str, TensorInfo]]:
    """Reads a file that torch wrote, and names its tensors."""
    data = (DATA / name).read_bytes()
    return data, {tensor.name: tensor for tensor in names(data)}


def test_a_state_dict_of_torch_is_cut() -> None:
    """Two tied names are two descriptions of one slice."""
    data, found = described("tied.pt")
    twenty = np.arange(20, dtype="<f4")
    assert cut(data).format == "torch"
    assert pieces(data) == [twenty.tobytes()]
    assert list(found) == ["emb.weight", "head.weight"]
    assert len({(t.start, t.stop, t.offset) for t in found.values()}) == 1
    assert np.array_equal(array(data, found["emb.weight"]), twenty.reshape(5, 4))


def test_views_of_torch_are_described() -> None:
    """Types, offsets, strides and bits of real tensors are told; keys that are no text stand as in Python."""
    data, found = described("views.pt")
    base = np.arange(24, dtype="<f4").reshape(4, 6)
    expected: dict[str, Any] = {
        "bf16": np.arange(3).astype(ml_dtypes.bfloat16),
        "f8": np.arange(4).astype(ml_dtypes.float8_e4m3fn),
        "u16": np.arange(3, dtype="<u2"),
        "bool": np.array([True]),
        "base": base,
        "view": base[1:3, 2:],
        "t": base.T,
        "last": np.arange(24, dtype="<f4").reshape(1, 2, 3, 4),
        "conj": np.array([1 + 2j, 3 + 4j], "<c8"),
        "neg": np.array([6, 8], "<f4"),
        "empty": np.zeros((0, 3), "<f4"),
        "scalar": np.array(3.5, "<f4"),
        "list/0": np.ones(1, "<f4"),
        "(1, 2)": np.ones(2, "<f4"),
    }
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert array(data, found[name]).dtype == value.dtype
        assert np.array_equal(array(data, found[name]), value), name
    assert [name for name, tensor in found.items() if tensor.conjugate] == ["conj"]
    assert [name for name, tensor in found.items() if tensor.negative] == ["neg"]
    assert found["base"].strides is found["scalar"].strides is None


def test_optimizers_of_torch_are_named_by_their_paths() -> None:
    """Integers as keys make the path of a moment."""
    data, found = described("optimizer.pt")
    assert list(found) == ["state/0/step", "state/0/exp_avg", "state/0/exp_avg_sq"]
    assert array(data, found["state/0/step"]) == 1


@pytest.mark.parametrize(
    ("name", "expected"), [("script.pt", ["weight", "bias"]), ("frozen.pt", ["constants/0", "constants/1"])]
)
def test_torchscript_is_cut_and_named(name: str, expected: list[str]) -> None:
    """Storages of modules and of constants are slices, and named as far as the archive does."""
    data, found = described(name)
    weights = [np.arange(4, dtype="<f4"), np.array([8, 9], "<f4")]
    assert pieces(data) == [weight.tobytes() for weight in weights]
    assert list(found) == expected
    assert np.array_equal(array(data, found[expected[0]]).ravel(), weights[0])


def test_legacy_files_say_what_they_are() -> None:
    """A file of the older format is opaque, and the reason says so."""
    data = (DATA / "legacy.pt").read_bytes()
    assert "older format" in str(cut(data).reason)
    assert names(data) == []


def test_the_same_storage_is_the_same_slice() -> None:
    """A storage has the bytes of the array, wherever in an archive it stands, so that every copy is one blob."""
    first = torch_file({"a": WHOLE}, {"0": SIX.tobytes()})
    second = torch_file(
        {"b": Stored("FloatStorage", "7", 6, 0, (6,), (1,))}, {"3": bytes(8), "7": SIX.tobytes()}, prefix="archive"
    )
    assert pieces(first) == [SIX.tobytes()]
    assert pieces(second) == [bytes(8), SIX.tobytes()]


def test_large_members_beside_the_storages_are_slices() -> None:
    """Code and other large members are shared too, and compressed storages are only members."""
    noise = random.Random(0).randbytes(70_000)
    items = [Item("m/data.pkl", opcodes({})), Item("m/code/big.py", noise), Item("m/data/0", b"x" * 100, deflated=True)]
    data = zip_file(items)
    assert cut(data).format == "torch"
    assert pieces(data) == [noise]


def test_other_archives_are_no_torch_files() -> None:
    """A pickle among other folders makes no torch file."""
    assert cut(zip_file([Item("m/data.pkl", opcodes({})), Item("n/data.pkl", opcodes({}))])).format == "zip"
    assert cut(zip_file([Item("m/data.pkl", opcodes({})), Item("readme", b"")])).format == "zip"
    assert cut(zip_file([Item("data.pkl", opcodes({}))])).format == "zip"


def test_containers_make_paths() -> None:
    """Dictionaries, lists, tuples and parameters nest to any names; equal keys of two types differ in quotes."""
    value = {"a": [WHOLE, (Parameter(WHOLE), None)], 0: {"x/y": WHOLE, "": WHOLE}, None: {True: WHOLE, 1.5: WHOLE}}
    found = names(torch_file(value, {"0": SIX.tobytes()}))
    assert [tensor.name for tensor in found] == ["a/0", "a/1/0", '0/"x/y"', '0/""', "None/True", "None/1.5"]
    assert [tensor.name for tensor in names(torch_file(WHOLE, {"0": SIX.tobytes()}))] == [""]


def test_other_spellings_of_tensors_are_known() -> None:
    """Untyped storages with a type of their own, quantised tensors, and storages alone have descriptions."""
    typed = Stored("UntypedStorage", "0", 24, 1, (2, 2), (2, 1), dtype="uint32")
    storage = b"(X\x07\0\0\0storagectorch\nLongStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x03tQ"
    found = names(torch_file({"typed": typed, "storage": storage}, {"0": SIX.tobytes()}))
    assert [(t.name, t.dtype, t.shape, t.offset) for t in found] == [
        ("typed", "U32", (2, 2), 1),
        ("storage", "I64", (3,), 0),
    ]


def test_big_endian_files_say_so() -> None:
    """A file from a big-endian machine is described as such."""
    (found,) = names(torch_file(WHOLE, {"0": SIX.tobytes()}, byteorder="big"))
    assert found.big_endian


@pytest.mark.parametrize(
    "tensor",
    [
        Stored("FloatStorage", "1", 6, 0, (2, 3), (3, 1)),
        Stored("FloatStorage", "0", 7, 0, (2, 3), (3, 1)),
        Stored("FloatStorage", "0", 6, 1, (2, 3), (3, 1)),
        Stored("FloatStorage", "0", 6, -1, (2, 3), (3, 1)),
        Stored("FloatStorage", "0", 6, 0, (2, 3), (4, 1)),
        Stored("FloatStorage", "0", 6, 0, (2, 3), (3,)),
        Stored("FloatStorage", "0", 6, 0, (-2, 3), (3, 1)),
        Stored("FloatStorage", "0", 6, 0, (1 << 62, 1 << 62), (0, 0)),
        Stored("MysteryStorage", "0", 6, 0, (2, 3), (3, 1)),
        Stored("UntypedStorage", "0", 24, 0, (25,), (1,)),
    ],
    ids=repr,
)
def test_lying_tensors_have_no_names(tensor: Stored) -> None:
    """HDR-01: a tensor that is not where its storage is makes all names doubtful; the slices stay as they are."""
    data = torch_file({"good": WHOLE, "bad": tensor}, {"0": SIX.tobytes()})
    assert names(data) == []
    assert pieces(data) == [SIX.tobytes()]


def test_truncated_archives_stay_opaque() -> None:
    """TRUNC-01: a torch file cut short at any length is opaque, and says so."""
    for data in (torch_file({"w": WHOLE}, {"0": SIX.tobytes()}), (DATA / "tied.pt").read_bytes()):
        for size in range(4, len(data)):
            assert "expected" in str(cut(data[:size]).reason)


def test_many_tensors_are_named_quickly() -> None:
    """MANY-01: 10 000 tensors are named in well under a second of work."""
    count = 10_000
    value = {f"layer.{i}": Stored("FloatStorage", str(i), 1, 0, (1,), (1,)) for i in range(count)}
    data = torch_file(value, {str(i): bytes(4) for i in range(count)})
    started = time.process_time()
    assert len(tensors(reader(data), len(data))) == count
    assert time.process_time() - started < 0.8 * 3, "expected 0.8 s"
