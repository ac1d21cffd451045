"""Arrays of every layout through the tensor file, and the trainer's idea of equality."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load

from minitrain.errors import CheckpointError
from minitrain.module import ties
from minitrain.tensorfile import decode_tensors, encode_tensors
from minitrain.testing import byte_equal

BASE = np.arange(24, dtype=np.float32).reshape(4, 6)
SPECIAL = np.array([np.nan, -0.0, np.inf, np.finfo(np.float32).smallest_subnormal], dtype=np.float32)
PAYLOAD = np.array([0x7FC12345, 0xFFA00001], dtype=np.uint32).view(np.float32)

LAYOUTS: dict[str, npt.NDArray[Any]] = {
    "C order": BASE,
    "transposed": BASE.T,
    "Fortran order": np.asfortranarray(BASE),
    "strided": BASE[:, ::2],
    "reversed": BASE[::-1],
    "broadcast": np.broadcast_to(np.float32(3), (2, 3)),
    "big-endian": BASE.astype(">f4"),
    "zero dimensions": np.asarray(7, dtype=np.int64),
    "no elements": np.zeros((3, 0), dtype=np.float32),
    "special values": SPECIAL,
    "payloads of NaN": PAYLOAD,
    "booleans": np.array([True, False]),
    "half precision": BASE.astype(np.float16),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_written_by_its_values(name: str) -> None:
    """Our reader and the official one get the shape, and the bytes of the array in C order and little-endian."""
    array = LAYOUTS[name]
    expected = array.astype(array.dtype.newbyteorder("<"))
    data = encode_tensors({"x": array}, {})
    for found in (load(data)["x"], decode_tensors(data)[0]["x"]):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()


def test_the_bytes_depend_on_content_only() -> None:
    """Neither the order of the names, nor that of several metadata keys, nor a copy changes a byte."""
    metadata = {f"alias{number}": f"ALIAS(x{number})" for number in range(6)}
    names = list(LAYOUTS)
    first = encode_tensors(LAYOUTS, metadata)
    second = encode_tensors({name: LAYOUTS[name].copy() for name in reversed(names)}, dict(reversed(metadata.items())))
    assert first == second
    assert decode_tensors(first)[1] == metadata


def test_every_tensor_is_aligned_to_its_size() -> None:
    """A reader that maps the file can use each tensor where it lies."""
    data = encode_tensors(LAYOUTS, {})
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    for name, entry in json.loads(data[8 : 8 + length]).items():
        assert entry["data_offsets"][0] % LAYOUTS[name].dtype.itemsize == 0


@pytest.mark.parametrize("array", [np.zeros(2, dtype=np.complex128), np.array(["text"]), np.array([None])])
def test_types_that_the_format_lacks_are_refused(array: npt.NDArray[Any]) -> None:
    """Nothing is converted to a type that was not asked for; the message names the tensor."""
    with pytest.raises(CheckpointError, match=r"blocks\.0\.x"):
        encode_tensors({"blocks.0.x": array}, {})


@pytest.mark.parametrize("cut", [lambda data: data[:4], lambda data: data[:-1], lambda _: b"not a tensor file"])
def test_a_broken_file_is_refused_in_a_sentence(cut: Callable[[bytes], bytes]) -> None:
    """Truncated and foreign bytes raise the trainer's own error."""
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        decode_tensors(cut(encode_tensors({"x": BASE}, {})))


def test_equality_is_of_bytes() -> None:
    """Signed zeros, types and shapes tell values apart; a NaN with the same bits is the same."""
    zero = np.zeros(3, dtype=np.float32)
    assert byte_equal(SPECIAL, SPECIAL.copy())
    assert byte_equal(BASE, np.asfortranarray(BASE))
    assert not byte_equal(zero, -zero)
    assert not byte_equal(zero, zero.astype(np.float64))
    assert not byte_equal(zero, zero.reshape(3, 1))
    assert not byte_equal(PAYLOAD, np.full(2, np.nan, dtype=np.float32))
    assert not byte_equal(1, 1.0)
    assert not byte_equal(True, 1)
    assert byte_equal({"a": {"b": zero}}, {"a": {"b": zero.copy()}})
    assert not byte_equal({"a": zero}, {"a": zero, "b": zero})


def test_a_tie_is_the_same_memory_and_never_equal_values() -> None:
    """Two objects over one memory are tied; a copy is not, nor a view of another shape."""
    array = BASE.copy()
    arrays = {"head": array[:], "embed": array, "copy": array.copy(), "view": array.reshape(6, 4)}
    assert ties(arrays) == {"head": "embed"}
