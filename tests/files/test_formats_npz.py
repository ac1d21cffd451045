"""numpy's files are cut behind their headers, which are matched and never evaluated."""

from __future__ import annotations

import io
import random
import struct
import time
from typing import Any

import numpy as np
import pytest
from tests.fuzz.samples import Item, cut, names, npy_file, npz_file, pieces, zip_file

ARRAYS = [
    np.arange(6, dtype="<f4").reshape(2, 3),
    np.array(3, "<i8"),
    np.array([True, False]),
    np.array([1 + 2j], "<c8"),
    np.zeros(3, "<M8[ns]"),
    np.arange(3, dtype=">u2"),
    np.array(["a", "bcd"]),
    np.array([b"xy"]),
]
NAMES = ["F32", "I64", "BOOL", "C64", "datetime64[ns]", "U16", "<U3", "|S2"]


def npy(text: str, data: bytes = b"", *, version: tuple[int, int] = (1, 0)) -> bytes:
    """Writes a header as it is given, and the data."""
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text.encode()))
    return b"\x93NUMPY" + bytes(version) + length + text.encode() + data


def refused(data: bytes) -> str:
    """Cuts a file that must stay opaque, and returns the reason."""
    found = cut(data)
    assert found.format == "opaque"
    assert found.reason is not None
    assert names(data) == []
    return found.reason


@pytest.mark.parametrize(("array", "name"), list(zip(ARRAYS, NAMES, strict=True)), ids=NAMES)
def test_an_array_is_the_bytes_behind_its_header(
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], name: str
) -> None:
    """The slice of an `.npy` file is the array's bytes, and its description is the array's."""
    data = npy_file(array)
    assert pieces(data) == [array.tobytes()]
    (found,) = names(data)
    assert (found.name, found.dtype, found.shape) == ("", name, array.shape)
    assert found.big_endian == (array.dtype.byteorder == ">")


def test_fortran_order_is_told_by_strides() -> None:
    """An array written in Fortran's order is described by strides, so that nobody reads it in rows."""
    array = np.asfortranarray(np.arange(24, dtype="<f8").reshape(2, 3, 4))
    (found,) = names(npy_file(array))
    assert found.strides == (1, 2, 6)
    assert found.shape == (2, 3, 4)


def test_every_version_is_read() -> None:
    """Versions 1.0, 2.0 and 3.0 differ in the width of a length and in the encoding of the header."""
    for version in ((1, 0), (2, 0), (3, 0)):
        out = io.BytesIO()
        np.lib.format.write_array(out, ARRAYS[0], version=version)
        assert pieces(out.getvalue()) == [ARRAYS[0].tobytes()]
    assert "version" in refused(npy("{}", version=(4, 0)))
    assert "version" in refused(npy("{}", version=(1, 1)))


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        '{"shape":(2,),"fortran_order":True,"descr":"<f4"}\n',
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,), }   \n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n",
    ],
)
def test_spellings_of_other_writers_are_read(text: str) -> None:
    """Order of keys, quotes and the L of an old Python do not matter."""
    assert pieces(npy(text, bytes(8))) == [bytes(8)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (%s)}" % ("1," * 65),
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,99999999999)}",
        "{'descr': 'f4'.__class__, 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<q8', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        "(" * 60_000,
        "{'descr': " * 5_000,
        "{'descr': '<f4'," + " " * 60_000,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1 " * 30_000,
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}" + "\n" * 60_000 + "x",
        "'\\d'",
    ],
    ids=lambda text: text[-40:].strip() or "empty",
)
def test_doubtful_headers_stay_opaque(text: str) -> None:
    """HDR-01: a header that is not exactly the three keys, or whose size is not the file's, stays opaque, at once."""
    started = time.process_time()
    assert "expected" in refused(npy(text, bytes(8)))
    assert time.process_time() - started < 1


@pytest.mark.parametrize("descr", ["|b2", "<m4[ns]", "<f16", "<i3", "|V2", "<M8[weeks]"])
def test_other_types_keep_their_names(descr: str) -> None:
    """A type that trees have no name for is cut like any other, and keeps the name that numpy gives it."""
    size = int("".join(filter(str.isdigit, descr)))
    data = npy(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (3,), }}", bytes(3 * size))
    assert pieces(data) == [bytes(3 * size)]
    assert [tensor.dtype for tensor in names(data)] == [descr]


def test_lying_lengths_stay_opaque() -> None:
    """HDR-01: a header longer than the file, or than any header is, is not read."""
    good = npy_file(ARRAYS[0])
    assert "a length of" in refused(good[:8] + b"\xff\xff" + good[10:])
    assert "a length of" in refused(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(100))


def test_arrays_without_elements_are_no_slices() -> None:
    """ZERO-01: an array of no elements has a description and no slice."""
    assert cut(npy_file(np.zeros((0, 3)))).slices == ()
    assert [tensor.shape for tensor in names(npy_file(np.zeros((0, 3))))] == [(0, 3)]


def test_truncated_arrays_stay_opaque() -> None:
    """TRUNC-01: an array cut short at any length is opaque; so is one with bytes behind it."""
    data = npy_file(np.arange(100, dtype="<f4"))
    for size in range(6, len(data)):
        assert "expected" in refused(data[:size])
    refused(data + b"\0")


def test_archives_share_with_single_arrays() -> None:
    """The slices of `savez` are the arrays' bytes, the same as those of `save`, named by their keys."""
    arrays: dict[str, Any] = {f"layer/{number}": array for number, array in enumerate(ARRAYS)}
    data = npz_file(**arrays, empty=np.zeros(0))
    assert cut(data).format == "npz"
    assert pieces(data) == [array.tobytes() for array in ARRAYS]
    found = {tensor.name: tensor for tensor in names(data)}
    assert list(found) == [*arrays, "empty"]
    assert {name: found[name].dtype for name in arrays} == dict(zip(arrays, NAMES, strict=True))


def test_compressed_archives_are_kept_as_they_are() -> None:
    """Of compressed members only the large ones are slices, and no names are told: nothing is unpacked."""
    noise = np.frombuffer(random.Random(0).randbytes(100_000), "u1")
    data = npz_file(compressed=True, a=noise, b=np.zeros(3))
    assert cut(data).format == "npz"
    assert [len(piece) > 65_536 for piece in pieces(data)] == [True]
    assert names(data) == []


def test_arrays_of_objects_are_members_like_others() -> None:
    """Pickles and structures inside an archive spoil nothing: they are slices only if they are large."""
    objects = np.array([None, {}], dtype=object)
    table = np.zeros(10_000, [("a", "<f4"), ("b", "<i8")])
    data = npz_file(o=objects, t=table, w=ARRAYS[0])
    assert pieces(data)[0].endswith(table.tobytes())
    assert pieces(data)[1:] == [ARRAYS[0].tobytes()]
    assert [tensor.name for tensor in names(data)] == ["w"]


def test_broken_arrays_keep_the_archive_whole() -> None:
    """A member that is called an array and is none makes the archive opaque."""
    assert "version 1.0" in refused(zip_file([Item("a.npy", npy_file(ARRAYS[0])), Item("b.npy", b"text")]))
    assert "elements" in refused(zip_file([Item("a.npy", npy_file(ARRAYS[0])[:-1])]))
    assert cut(zip_file([Item("a.npy", b"text"), Item("b.txt", b"text")])).format == "zip"
