"""Whatever the bytes, a cut is a cut: sorted, disjoint, inside the file; and nothing is raised or run."""

from __future__ import annotations

import builtins
import random
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.fuzz.samples import cut, names, one_of_each, pieces, reader

from cairn.files.formats import cut_file, tensors

DATA = Path(__file__).parent / "data"
SAMPLES = list(one_of_each().values()) + [path.read_bytes() for path in sorted(DATA.glob("*.[pg]*"))]
MAGIC = [b"PK\x03\x04", b"PK\x05\x06", b"PK\x01\x02", b"\x93NUMPY\x01\x00", b"GGUF\x03\0\0\0", b"\x02\0\0\0\0\0\0\0{}"]
WORDS = [b"\xff" * 4, b"\xff" * 8, b"\0" * 4, b"\x01\0\0\0", b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"[[", b'"', b"9" * 19]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Changes a file at a few places, as damage and as malice do."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed) + 1)
        kind = draw.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            word = draw.choice(WORDS)
            changed[at : at + len(word)] = word
        elif kind == 2:
            del changed[at : at + draw.choice((1, 4, 8, 46))]
        elif kind == 3:
            changed[at:at] = draw.choice(WORDS)
        elif kind == 4:
            source = draw.randrange(len(changed) + 1)
            changed[at:at] = changed[source : source + draw.choice((1, 8, 46, 200))]
        elif kind == 5 and at + 4 < len(changed):
            value = int.from_bytes(changed[at : at + 4], "little") + draw.choice((-1, 1, -64, 64))
            changed[at : at + 4] = (value % (1 << 32)).to_bytes(4, "little")
    return bytes(changed)


@given(st.integers(0, len(SAMPLES) - 1), st.integers(0, 1 << 64))
@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
def test_damaged_files_are_cut_or_kept_whole(number: int, seed: int) -> None:
    """Sound files of every format, changed at a few places, never give anything but a sound cut and sound names."""
    data = mutated(SAMPLES[number], random.Random(seed))
    cut(data)
    names(data)


@given(st.sampled_from(MAGIC), st.binary(max_size=200))
@example(b"", b"")
@settings(max_examples=1000, deadline=None)
def test_any_bytes_are_cut_or_kept_whole(magic: bytes, data: bytes) -> None:
    """Noise, with a format's first bytes or without, never gives anything but a sound cut and sound names."""
    for content in (magic + data, data):
        cut(content)
        names(content)


@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_truncation_at_every_length(sample: bytes) -> None:
    """TRUNC-01: cut short at any length, no file gives a slice, unless only padding is missing: nothing is guessed."""
    for size in range(len(sample)):
        found = cut(sample[:size])
        assert not found.slices or (found.format == "gguf" and pieces(sample[:size]) == pieces(sample))
        assert found.format == "opaque" or found.slices
    names(sample[: len(sample) // 2])


def test_nothing_is_imported_or_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting and naming run no code of the file: nothing is imported, evaluated or unpickled."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something of the file was run")

    for sample in SAMPLES:
        names(sample)
    before = set(sys.modules)
    for name in ("eval", "exec", "compile", "__import__"):
        monkeypatch.setattr(builtins, name, refuse)
    for sample in SAMPLES:
        cut(sample)
        names(sample)
    monkeypatch.undo()
    assert set(sys.modules) == before


def test_short_reads_keep_the_file_whole() -> None:
    """A file that becomes shorter while it is read is opaque; the store finds out when it hashes it."""
    for sample in SAMPLES:
        for limit in range(0, len(sample), 16):
            found = cut_file(reader(sample[:limit]), len(sample))
            assert all(piece.stop <= len(sample) for piece in found.slices)
            tensors(reader(sample[:limit]), len(sample))


def test_errors_of_reading_are_not_hidden() -> None:
    """What reading raises comes through: a failing disk is not a damaged file."""

    def read_at(offset: int, size: int) -> bytes:
        raise OSError(offset, size)

    with pytest.raises(OSError, match="16"):
        cut_file(read_at, 100)
    with pytest.raises(OSError, match="16"):
        tensors(read_at, 100)


def test_documents_are_not_read() -> None:
    """TOKJ-01: of a tokenizer's JSON, whatever its size and style, only the first bytes are looked at."""
    for text in (b'{\n  "version": "1.0",\n', b'{"a":1e400,"a":1.0}', b"\xef\xbb\xbf{}", b'{"x":"\xc3\xa9"}\r\n'):
        asked: list[tuple[int, int]] = []

        def read_at(offset: int, size: int, text: bytes = text, asked: list[tuple[int, int]] = asked) -> bytes:
            asked.append((offset, size))
            return text[offset : offset + size].ljust(size)

        found = cut_file(read_at, 32 << 20)
        assert (found.format, found.slices, found.reason) == ("opaque", (), None)
        assert asked == [(0, 16)]


def test_indexes_decide_nothing() -> None:
    """IDX-01: every shard is cut by its own header, whatever an index says about it; the index is plain bytes."""
    shard = SAMPLES[0]
    index = b'{"metadata":{},"weight_map":{"w":"model-00002-of-00002.safetensors"}}'
    assert cut(index).reason is None
    assert cut(index).slices == ()
    assert [tensor.name for tensor in names(shard)] == ["w", "b"]
