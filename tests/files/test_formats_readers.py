"""What a cut says about a file is what the format's own reader says: damage never puts other bytes under a name."""

from __future__ import annotations

import io
import random
import zipfile
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
from tests.files.test_formats_hostile import mutated
from tests.fuzz.samples import Item, cut, names, npy_file, npz_file, one_of_each, reader, zip_file

from cairn.files.formats import TensorInfo
from cairn.files.formats.model import Source
from cairn.files.formats.zips import members
from cairn.state.dtypes import LIBRARY_NAMES, SAFETENSORS

ROUNDS = 6000
deserialize: Any = safetensors.deserialize
DATA = Path(__file__).parent / "data"


def headed(data: bytes, draw: random.Random) -> bytes:
    """Changes one byte of a file's first part, where headers are, or a few anywhere."""
    if draw.random() < 0.3:
        return mutated(data, draw)
    at = draw.randrange(min(len(data), 160))
    return data[:at] + bytes([draw.choice((draw.randrange(256), data[at] ^ 1, *b'0189{}[],: "'))]) + data[at + 1 :]


def as_array(data: bytes, tensor: TensorInfo) -> Any:
    """The array that a description promises."""
    library = LIBRARY_NAMES[tensor.dtype]
    dtype = np.dtype(getattr(ml_dtypes, library, library)).newbyteorder(">" if tensor.big_endian else "<")
    flat = np.frombuffer(data[tensor.start : tensor.stop], dtype)
    return flat.reshape(tensor.shape) if tensor.strides is None else flat.reshape(tensor.shape[::-1]).T


def test_safetensors_agree_with_the_library() -> None:
    """HDR-01: of damaged files, those that are cut have the tensors that the library finds."""
    draw, sample, agreed = random.Random(1), one_of_each()["safetensors"], 0
    for _ in range(ROUNDS):
        data = headed(sample, draw)
        found = names(data)
        if not found or any(tensor.dtype not in SAFETENSORS for tensor in found):
            continue
        expected = {name: (tuple(t["shape"]), t["dtype"], bytes(t["data"])) for name, t in deserialize(data)}
        assert {t.name: (t.shape, t.dtype, data[t.start : t.stop]) for t in found} == expected
        agreed += 1
    assert agreed > ROUNDS / 20


def test_safetensors_that_the_library_reads_are_cut() -> None:
    """Of damaged files, those that the library reads are cut: being strict costs no sharing."""
    draw, sample = random.Random(2), one_of_each()["safetensors"]
    for _ in range(ROUNDS):
        data = headed(sample, draw)
        try:
            deserialize(data)
        except safetensors.SafetensorError:
            continue
        assert cut(data).format == "safetensors", data


def test_archives_agree_with_zipfile() -> None:
    """Of damaged archives, those that are listed have the members that zipfile finds, and their bytes."""
    draw, agreed = random.Random(3), 0
    samples = [
        zip_file([Item("a", b"first"), Item("b", b"second", descriptor="<4sIII"), Item("c", b"third", wide=True)]),
        one_of_each()["npz"],
        (DATA / "tied.pt").read_bytes(),
    ]
    for number in range(ROUNDS):
        data = headed(samples[number % len(samples)], draw)
        if cut(data).format == "opaque":
            continue
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = {info.filename: info for info in archive.infolist()}
            found = members(Source(reader(data), len(data)))
            assert len(listed) == len(found)
            for member in found:
                if member.stored and (info := listed.get(member.name.decode("ascii", "replace"))) is not None:
                    assert member.stop - member.start == info.file_size
                    assert zlib.crc32(data[member.start : member.stop]) == info.CRC or not _readable(archive, info)
        agreed += 1
    assert agreed > ROUNDS / 20


def _readable(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    try:
        archive.read(info)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError):  # NotImplementedError: zipfile's for odd methods
        return False
    return True


def test_arrays_agree_with_numpy() -> None:
    """Of damaged arrays, those that are cut are what numpy loads."""
    draw, agreed = random.Random(4), 0
    samples = [npy_file(np.arange(6, dtype="<i2").reshape(2, 3)), npy_file(np.asfortranarray(np.ones((2, 2), ">f4")))]
    for number in range(ROUNDS):
        data = headed(samples[number % 2], draw)
        found = names(data)
        if found and found[0].dtype in LIBRARY_NAMES:
            assert np.array_equal(as_array(data, found[0]), np.load(io.BytesIO(data)), equal_nan=False) or _has_nan(
                data
            )
            agreed += 1
    assert agreed > ROUNDS / 20


def _has_nan(data: bytes) -> bool:
    loaded = np.load(io.BytesIO(data))
    return bool(np.issubdtype(loaded.dtype, np.inexact) and np.isnan(loaded).any())


def test_sound_archives_of_arrays_agree_with_numpy() -> None:
    """Every array of an archive is what numpy loads under its name."""
    arrays: dict[str, Any] = {"a": np.arange(3), "b/c": np.ones((2, 2), ">f8"), "é": np.zeros((0, 2), "<f2")}
    data = npz_file(**arrays)
    for tensor in names(data):
        assert np.array_equal(as_array(data, tensor), arrays[tensor.name])
