"""safetensors files are cut at their tensors, and only if everything in the header is as it must be."""

from __future__ import annotations

import json
import struct
import time
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save
from tests.fuzz.samples import cut, entry, names, pieces, reader, safetensors_file

from cairn.files.formats import cut_file

TWO = {"a": entry("F32", [2], 0, 8), "b": entry("U8", [3], 8, 11)}
DATA = bytes(range(11))


def refused(header: str | bytes | dict[str, object], data: bytes = DATA) -> str:
    """Cuts a file that must stay opaque, and returns the reason."""
    found = cut(safetensors_file(header, data))
    assert found.format == "opaque"
    assert found.reason is not None
    assert "expected" in found.reason
    assert "found" in found.reason
    assert names(safetensors_file(header, data)) == []
    return found.reason


def test_each_tensor_is_a_slice() -> None:
    """A file that the library wrote is cut into exactly its tensors' bytes, named with type and shape."""
    arrays = {
        "w": np.arange(6, dtype="<f4").reshape(2, 3),
        "half": np.ones(5, ml_dtypes.bfloat16),
        "flag": np.array([True, False, True]),
        "scalar": np.array(7, "<i8"),
    }
    data = save(arrays, metadata={"format": "pt"})
    assert sorted(pieces(data)) == sorted(array.tobytes() for array in arrays.values())
    found = {tensor.name: tensor for tensor in names(data)}
    assert {name: (t.dtype, t.shape) for name, t in found.items()} == {
        "w": ("F32", (2, 3)),
        "half": ("BF16", (5,)),
        "flag": ("BOOL", (3,)),
        "scalar": ("I64", ()),
    }
    assert all(data[t.start : t.stop] == arrays[name].tobytes() for name, t in found.items())


def test_empty_tensors_are_no_slices() -> None:
    """A tensor without elements has a name and no bytes, wherever it stands between others."""
    header = {"e": entry("F32", [0, 3], 8, 8)} | TWO | {"first": entry("I8", [0], 0, 0)}
    data = safetensors_file(header, DATA)
    assert pieces(data) == [DATA[:8], DATA[8:]]
    assert [tensor.name for tensor in names(data)] == ["e", "a", "b", "first"]
    assert cut(safetensors_file("{}")).slices == ()
    assert cut(safetensors_file('{"__metadata__":{}}')).format == "safetensors"


def test_unknown_types_are_cut_by_their_offsets() -> None:
    """HDR-01: a type from the future costs nothing, because the offsets alone tell where its bytes are."""
    header = {"a": entry("F99", [2, 3], 0, 8), "b": entry("U8", [3], 8, 11)}
    data = safetensors_file(header, DATA)
    assert pieces(data) == [DATA[:8], DATA[8:]]
    assert [(tensor.dtype, tensor.shape) for tensor in names(data)] == [("F99", (2, 3)), ("U8", (3,))]


def test_packed_types_fill_whole_bytes() -> None:
    """Types under a byte are packed: their size is counted in bits."""
    assert cut(safetensors_file({"a": entry("F4", [2, 11], 0, 11)}, DATA)).format == "safetensors"
    assert "of 4 bits" in refused({"a": entry("F4", [21], 0, 11)})
    assert "of 6 bits" in refused({"a": entry("F6_E2M3", [14], 0, 11)})


def test_order_and_spelling_are_free() -> None:
    """METAORD-01: padding, white space, odd orders of keys and metadata change no tensor's bytes, so no blob."""
    header = (
        '{ "b" :\t{"data_offsets":[8 , 11],"dtype":"U8","shape":[ 3 ]},\n\n"__metadata__":{"x":"1", "y\\u00e9" : "{}"}'
        ' , "a":{"shape":[2],"data_offsets":[0,8] , "dtype" :"F32" } }   \n  '
    )
    data = safetensors_file(header, DATA)
    assert pieces(data) == pieces(safetensors_file(TWO, DATA)) == [DATA[:8], DATA[8:]]
    assert [tensor.name for tensor in names(data)] == ["b", "a"]
    metadata = {str(i): str(i) for i in range(16)}
    first, second = (save({"w": np.zeros(1)}, dict(sorted(metadata.items(), key=order))) for order in (str, repr))
    assert pieces(first) == pieces(second) == [bytes(8)]


def test_names_are_any_text() -> None:
    """Names come back as they are, escaped or not; equal names in two spellings are one name twice."""
    part = '{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    header = '{"\\u00e9\\n":' + part % (0, 1) + ',"é 𝄞":' + part % (1, 2) + "}"
    assert [tensor.name for tensor in names(safetensors_file(header, b"ab"))] == ["é\n", "é 𝄞"]
    assert "twice" in refused('{"a":' + part % (0, 1) + ',"\\u0061":' + part % (1, 2) + "}", b"ab")
    assert "UTF-8" in refused('{"\\ud800":' + part % (0, 1) + "}", b"a")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"a": entry("F32", [2], 8, 4), "b": entry("U8", [3], 8, 11)}, "in order"),
        ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[-1,4]}}', "dtype, shape and data_offsets"),
        ({"a": entry("F32", [2], 0, 8), "b": entry("U8", [5], 6, 11)}, "to continue at byte"),
        ({"a": entry("F32", [1], 0, 4), "b": entry("U8", [3], 8, 11)}, "to continue at byte"),
        ({"a": entry("U8", [9], 2, 11)}, "to continue at byte"),
        ({"a": entry("F32", [2], 0, 8)}, "end of the file"),
        ({"a": entry("U8", [11], 0, 11), "b": entry("U8", [11], 0, 11)}, "to continue at byte"),
        ({"a": entry("F32", [3], 0, 11)}, "3 elements of 32 bits"),
        ({"a": entry("U8", [1 << 63], 0, 11)}, "2^63"),
        ({"a": entry("U8", [1 << 40, 1 << 40], 0, 11)}, "2^63"),
        ({"a": entry("U8", [1] * 65, 0, 11)}, "dtype, shape and data_offsets"),
        ({"a": entry("U8", [11], 0, 1 << 70)}, "dtype, shape and data_offsets"),
        ({"a": entry("U8", [11], 0, 1 << 62)}, "elements of 8 bits"),
        ({"a": TWO["a"] | {"more": 1}}, "dtype, shape and data_offsets"),
        ('{"a":{"dtype":"U8","dtype":"U8","shape":[11],"data_offsets":[0,11]}}', "dtype, shape and data_offsets"),
        ('{"a":{"dtype":"U8","shape":[11],"shape":[11]}}', "twice"),
        ('{"a":{"dtype":"U8","dtype":"U8","data_offsets":[0,11]}}', "twice"),
        ('{"a":{"data_offsets":[0,11],"dtype":"U8","data_offsets":[0,11]}}', "twice"),
        ('{"a":{"dtype":"U8","shape":[11],"data_offsets":[0,11],}}', "dtype, shape and data_offsets"),
        ('{"a":{"dtype":"U8","shape":[011],"data_offsets":[0,11]}}', "dtype, shape and data_offsets"),
        ('{"a":{"dtype":"U8","shape":[11.0],"data_offsets":[0,11]}}', "dtype, shape and data_offsets"),
        (
            '{"w":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"w":{"dtype":"U8","shape":[6],"data_offsets":[5,11]}}',
            "twice",
        ),
        ('{"__metadata__":{},"__metadata__":{}}', "twice"),
        ('{"__metadata__":{"a":"1","a":"1"}}', "twice"),
        ('{"__metadata__":{"a":1}}', "text as a value"),
        ('{"__metadata__":{"a":"\n"}}', "text as a value"),
        ('{"__metadata__":{"a":"1",}}', "a key of metadata"),
        ('{"__metadata__":[]}', "an object of metadata"),
        ("[]", "starts with"),
        (" {}", "starts with"),
        ("\ufeff{}", "starts with"),
        ("{}\0", "only padding"),
        ("{}{}", "only padding"),
        ("{,}", "a name in quotes"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "dtype, shape and data_offsets"),
        ("{" + "[" * 100_000, "a name in quotes"),
        (b'{"\xff":{"dtype":"U8","shape":[11],"data_offsets":[0,11]}}', "UTF-8"),
        (b'{"a":{"dtype":"\xff","shape":[11],"data_offsets":[0,11]}}', "dtype, shape and data_offsets"),
    ],
    ids=lambda value: None if isinstance(value, dict) or len(value) > 60 else repr(value),
)
def test_damaged_headers_stay_opaque(header: str | bytes | dict[str, object], reason: str) -> None:
    """HDR-01: a header that is not as it must be makes the file opaque, and the reason names the fault."""
    assert reason in refused(header)


@pytest.mark.parametrize("length", [0, 1, 12, 100_000_001, 1 << 32, 1 << 63, (1 << 64) - 1])
def test_lying_lengths_allocate_nothing(length: int) -> None:
    """HDR-01: a length that the file or the format has no room for is refused before anything is read."""
    data = struct.pack("<Q", length) + b"{}        "
    largest = 0

    def read_at(offset: int, size: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        return data[offset : offset + size]

    found = cut_file(read_at, len(data))
    assert (found.format, found.slices) == ("opaque", ())
    assert found.reason is not None
    assert largest <= len(data)


def test_a_header_of_nothing_is_refused() -> None:
    """HDR-01: eight zero bytes are the length of a header that is not there."""
    assert "2 to 0 bytes" in str(cut(bytes(8)).reason)
    assert cut(bytes(9)).reason is None


@pytest.mark.parametrize(
    "header",
    [
        b"{" + b"[" * 99_999_999,
        b'{"__metadata__":{"a":"' + b"x" * 20_000_000,
        b'{"' + b"\\n" * 10_000_000,
        b'{"__metadata__":{"a":"' + b"x" * 60_000_000 + b'"}}',
    ],
    ids=["nested", "open", "escapes", "long"],
)
def test_hostile_headers_take_little_time_and_memory(header: bytes) -> None:
    """HDR-01: no header, up to the longest, takes long, or much more memory than its own bytes and names."""
    data = safetensors_file(header)
    started = time.process_time()
    assert cut(data).format == "opaque"
    assert time.process_time() - started < 3, "expected 0.5 s"
    tracemalloc.start()
    try:
        cut(data)
        assert tracemalloc.get_traced_memory()[1] < 2.2 * len(data)
    finally:
        tracemalloc.stop()


def test_the_number_of_names_is_bounded() -> None:
    """A header of more names than any model has is refused as soon as they are counted."""
    assert "at most 200000" in refused('{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(200_001)) + "}}")


@pytest.mark.parametrize("step", [1, 7])
def test_truncated_files_stay_opaque(step: int) -> None:
    """TRUNC-01: a file cut short at any length is opaque, and says so as soon as it can be known for what it was."""
    data = save({"w": np.arange(100, dtype="<f4"), "b": np.zeros(3)})
    for size in range(0, len(data), step):
        found = cut(data[:size])
        assert found.format == "opaque"
        assert (found.reason is not None) == (size > 8)
    assert cut(data + b"more").format == "opaque"


def test_many_tensors_are_fast() -> None:
    """MANY-01: the header of 10 000 tensors takes a fraction of a second."""
    count = 10_000
    header = {f"model.layers.{i}.weight": entry("BF16", [2, 2], 8 * i, 8 * i + 8) for i in range(count)}
    data = safetensors_file(json.dumps(header, separators=(",", ":")), bytes(8 * count))
    started = time.process_time()
    found = cut_file(reader(data), len(data))
    assert time.process_time() - started < 0.2 * 3, "expected 0.06 s"
    assert len(found.slices) == count


def test_text_is_not_taken_for_a_header() -> None:
    """JSON that happens to have a brace at the ninth byte is plain bytes, without a reason."""
    assert cut(b'{"aaaa":{"b":1}}').reason is None
    assert cut(b"").reason is None
    assert cut(b"short").reason is None
