"""GGUF files are cut at their tensors, in rows without gaps; a type of unknown size is not guessed."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import numpy as np
import pytest
from tests.fuzz.samples import Gguf, cut, gguf_text, gguf_value, names, pieces

DATA = Path(__file__).parent / "data"
GOOD = Gguf([("w", (4, 3), 0, 0), ("q", (32, 2), 8, 64)], bytes(range(48)) + bytes(16) + bytes(range(68)))


def refused(file: Gguf | bytes) -> str:
    """Cuts a file that must stay opaque, and returns the reason."""
    data = file if isinstance(file, bytes) else file.file()
    found = cut(data)
    assert found.format == "opaque"
    assert found.reason is not None
    assert names(data) == []
    return found.reason


def test_each_tensor_is_a_slice() -> None:
    """Slices are the tensors without their padding; shapes are told with the fastest dimension last."""
    data = GOOD.file()
    assert cut(data).format == "gguf"
    assert pieces(data) == [bytes(range(48)), bytes(range(68))]
    assert [(t.name, t.dtype, t.shape) for t in names(data)] == [("w", "F32", (3, 4)), ("q", "Q8_0", (2, 32))]


def test_a_file_of_the_library_is_cut() -> None:
    """A file that gguf wrote, with an alignment and a vocabulary, is cut at its three tensors."""
    data = (DATA / "small.gguf").read_bytes()
    assert pieces(data) == [np.arange(12, dtype="<f4").tobytes(), np.ones(5, "<f2").tobytes(), b"\x01" * 68]
    assert [(t.name, t.dtype, t.shape) for t in names(data)] == [
        ("x", "F32", (3, 4)),
        ("y", "F16", (5,)),
        ("q", "Q8_0", (2, 32)),
    ]


def test_the_order_of_descriptions_is_free() -> None:
    """The tensors are cut in the order of their data, whatever the order of their descriptions."""
    file = Gguf(GOOD.tensors[::-1], GOOD.data)
    assert pieces(file.file()) == pieces(GOOD.file())


def test_final_padding_may_be_missing() -> None:
    """The last tensor may be padded or not, but no more than to its alignment."""
    assert len(pieces(GOOD.file() + bytes(28))) == 2
    assert "data up to byte" in refused(GOOD.file() + bytes(29))
    assert pieces(Gguf([], b"").file()) == []


def test_values_of_every_type_are_passed_over() -> None:
    """All types of values, arrays and arrays of arrays lead to the tensors behind them."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    values = [gguf_value(f"k{kind}", kind, bytes(size)) for kind, size in sizes.items()]
    values += [gguf_value(f"a{kind}", 9, struct.pack("<IQ", kind, 3) + bytes(3 * size)) for kind, size in sizes.items()]
    strings = struct.pack("<IQ", 8, 2) + gguf_text("ab") + gguf_text("")
    values += [gguf_value("s", 8, gguf_text("text")), gguf_value("as", 9, strings)]
    values += [gguf_value("aas", 9, struct.pack("<IQ", 9, 2) + strings * 2)]
    values += [gguf_value("general.alignment", 4, struct.pack("<I", 64))]
    file = Gguf(
        [("w", (4, 3), 0, 0), ("v", (1,), 28, 64)], bytes(72), b"".join(values), len(values), version=2, align=64
    )
    assert pieces(file.file()) == [bytes(48), bytes(8)]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (Gguf([("w", (4,), 99, 0)], bytes(32)), "a known type of tensor, found 99"),
        (Gguf([("w", (4,), 9, 0)], bytes(32)), "a known type of tensor, found 9"),
        (Gguf([("w", (31,), 8, 0)], bytes(64)), "whole blocks"),
        (Gguf([("w", (4,), 0, 0), ("w", (4,), 0, 32)], bytes(64)), "twice"),
        (Gguf([("w", (4,), 0, 0), ("v", (4,), 0, 64)], bytes(96)), "a tensor at 32"),
        (Gguf([("w", (4,), 0, 0), ("v", (4,), 0, 0)], bytes(32)), "a tensor at 32"),
        (Gguf([("w", (4,), 0, 0), ("v", (4,), 0, 16)], bytes(32)), "a tensor at 32"),
        (Gguf([("w", (4,), 0, 32)], bytes(64)), "a tensor at 0"),
        (Gguf([("w", (1 << 40, 1 << 40), 0, 0)], bytes(64)), "2^63"),
        (Gguf([("w", (1 << 62,), 0, 0)], bytes(64)), "data up to byte"),
        (Gguf([("w", (4,), 0, 1 << 63)], bytes(64)), "a tensor at 0"),
        (Gguf([("w", (1, 1, 1, 1, 1), 0, 0)], bytes(32)), "dimensions"),
        (Gguf([("w", (4,), 0, 0)], bytes(32), version=1), "version"),
        (Gguf([("w", (4,), 0, 0)], bytes(32), version=0x03000000), "version"),
        (Gguf([], b"", gguf_value("a", 13, b""), 1), "a known type"),
        (Gguf([], b"", gguf_value("a", 4, bytes(4)) * 2, 2), "twice"),
        (Gguf([], b"", gguf_value("general.alignment", 4, bytes(4)), 1), "power of two"),
        (Gguf([], b"", gguf_value("general.alignment", 4, b"\x21\0\0\0"), 1), "power of two"),
        (Gguf([], b"", gguf_value("general.alignment", 5, b"\x20\0\0\0"), 1), "power of two"),
        (Gguf([], b"", gguf_value("a", 8, struct.pack("<Q", 1 << 60)), 1), "bytes of header"),
        (Gguf([], b"", gguf_value("a", 9, struct.pack("<IQ", 0, 1 << 60)), 1), "bytes of header"),
        (Gguf([], b"", gguf_value("a", 9, struct.pack("<IQ", 8, 1 << 60)), 1), "at most"),
        (Gguf([], b"", struct.pack("<Q", 1 << 60), 1), "names of at most"),
        (Gguf([], b"", gguf_value("a", 9, struct.pack("<IQ", 9, 1) * 10_000), 1), "a known type"),
        (Gguf([], b"", b"", 1 << 40), "at most"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_doubtful_headers_stay_opaque(file: Gguf, reason: str) -> None:
    """HDR-01: an unknown type, a gap, an overlap or a lying length makes the file opaque, and the reason names it."""
    assert reason in refused(file)


def test_names_that_are_no_text_stay_opaque() -> None:
    """HDR-01: names must be UTF-8."""
    assert "UTF-8" in refused(GOOD.file().replace(gguf_text("w"), gguf_text("w")[:-1] + b"\xff"))


def test_truncated_files_stay_opaque() -> None:
    """TRUNC-01: a file cut short at any length is opaque."""
    data = GOOD.file()
    for size in range(4, len(data)):
        assert "expected" in refused(data[:size])


def test_vocabularies_are_passed_quickly() -> None:
    """Half a million tokens with their merges take a fraction of a second, and more than any model has are refused."""
    tokens = struct.pack("<IQ", 8, 500_000) + gguf_text("token") * 500_000
    started = time.process_time()
    assert cut(Gguf([], b"", gguf_value("tokens", 9, tokens), 1).file()).format == "gguf"
    assert time.process_time() - started < 3, "expected 0.3 s"
    assert "at most" in refused(Gguf([], b"", gguf_value("a", 9, struct.pack("<IQ", 8, 4_000_001)), 1))
