"""GGUF, the files of llama.cpp: a header of keyed values, the descriptions of the tensors, then their padded data.

Read as ggml's `docs/gguf.md` and `gguf.cpp` say, versions 2 and 3, little-endian. Every tensor starts at the aligned
end of the one before it, and the data end the file. The values of the header are passed over, only `general.alignment`
is read. A type whose size is not in the table makes the file opaque: gaps between offsets are not sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cairn.files.formats.model import MAX_HEADER, MAX_TENSORS, Refused, Slice, Source, TensorInfo, alignment, elements

MAGIC = b"GGUF"
MAX_VALUES = 4_000_000
"""Most strings and nested arrays of a header; a vocabulary of 500 000 tokens with its merges has about a million."""

_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
}
"""Number of a type: its name, elements of a block, bytes of a block. Q8_1 (9) is missing: its size has changed."""

_FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of the header's values by the number of their type."""
_U32, _STRING, _ARRAY = 4, 8, 9
_MAX_DEPTH = 4
_MAX_TEXT = 1 << 16
_WINDOW = 1 << 18


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    block: int
    offset: int
    size: int


def cut(source: Source) -> tuple[Slice, ...]:
    """Find the tensors' bytes. Raises Refused when the file is not exactly as the format says."""
    start, found = _read(source)
    return tuple(Slice(start + t.offset, start + t.offset + t.size, alignment(t.block)) for t in found if t.size)


def tensors(source: Source) -> list[TensorInfo]:
    """Name the tensors in the order of their data; shapes have the fastest dimension last. Raises Refused."""
    start, found = _read(source)
    return [TensorInfo(t.name, t.dtype, t.shape, start + t.offset, start + t.offset + t.size) for t in found]


def _read(source: Source) -> tuple[int, list[_Tensor]]:
    """Read the header; return where the data start, and the tensors sorted and without gaps."""
    reader = _Reader(source)
    magic, version = reader.take(4), reader.u32()
    if magic != MAGIC or version not in (2, 3):
        raise Refused(f"expected GGUF of version 2 or 3, little-endian, found version {version:#x}")
    count, pairs = reader.u64(), reader.u64()
    if count > MAX_TENSORS or pairs > MAX_VALUES:
        raise Refused(f"expected at most {MAX_TENSORS} tensors and {MAX_VALUES} values, found {count} and {pairs}")
    step = _alignment(reader, pairs)
    found = sorted(_tensors(reader, count), key=lambda tensor: (tensor.offset, tensor.size))
    start = _aligned(reader.at, step)
    at = 0
    for tensor in found:
        if tensor.offset != _aligned(at, step):
            raise Refused(f"expected a tensor at {_aligned(at, step)}, found {tensor.name!r:.80} at {tensor.offset}")
        at = tensor.offset + tensor.size
    if not (reader.at if not found else start + at) <= source.size <= start + _aligned(at, step):
        raise Refused(f"expected data up to byte {start + at}, found a file of {source.size} bytes")
    return start, found


def _alignment(reader: _Reader, pairs: int) -> int:
    """Pass over the header's values and return what its tensors are aligned to."""
    keys: set[bytes] = set()
    step = 32
    for _ in range(pairs):
        key, kind = reader.text(), reader.u32()
        if key in keys:
            raise Refused(f"expected unique keys, found {key[:80]!r} twice")
        keys.add(key)
        if key == b"general.alignment":
            step = reader.u32() if kind == _U32 else 0
            if step.bit_count() != 1:
                raise Refused(f"expected an alignment that is a power of two, found {step} of type {kind}")
        else:
            reader.skip_values(kind, 1, 0)
    return step


def _tensors(reader: _Reader, count: int) -> Iterator[_Tensor]:
    names: set[str] = set()
    for _ in range(count):
        raw, dimensions = reader.text(), reader.u32()
        if dimensions > 4:
            raise Refused(f"expected at most 4 dimensions, found {dimensions} in {raw[:80]!r}")
        shape = tuple(reader.u64() for _ in range(dimensions))
        kind, offset = reader.u32(), reader.u64()
        if kind not in _TYPES:
            raise Refused(f"expected a known type of tensor, found {kind} in {raw[:80]!r}")
        dtype, length, size = _TYPES[kind]
        if (shape[0] if shape else 1) % length:
            raise Refused(f"expected rows of whole blocks of {length}, found {shape} in {raw[:80]!r}")
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Refused(f"expected names in UTF-8, found {raw[:80]!r}") from None
        if name in names:
            raise Refused(f"expected unique names, found {name!r:.80} twice")
        names.add(name)
        yield _Tensor(name, dtype, shape[::-1], size, offset, elements(shape) // length * size)


def _aligned(at: int, step: int) -> int:
    return -(-at // step) * step


class _Reader:
    """Reads a header forwards, a window at a time; nothing is read beyond the longest header."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._limit = min(source.size, MAX_HEADER)
        self._data = b""
        self._start = 0
        self.at = 0
        self._values = 0

    def take(self, size: int) -> bytes:
        begin = self.at - self._start
        if not 0 <= begin <= len(self._data) - size:
            self._fill(size)
            begin = 0
        self.at += size
        return self._data[begin : begin + size]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self) -> bytes:
        size = self.u64()
        if size > _MAX_TEXT:
            raise Refused(f"expected names of at most {_MAX_TEXT} bytes, found one of {size} at {self.at}")
        return self.take(size)

    def skip_values(self, kind: int, count: int, depth: int) -> None:
        """Pass over values of one type."""
        if kind in _FIXED:
            self._skip(_FIXED[kind] * count)
            return
        self._values += count
        if kind not in (_STRING, _ARRAY) or depth > _MAX_DEPTH or self._values > MAX_VALUES:
            raise Refused(f"expected values of a known type, at most {MAX_VALUES}, found {count} of type {kind}")
        for _ in range(count):
            if kind == _STRING:
                self._skip(int.from_bytes(self.take(8), "little"))
            else:
                self.skip_values(self.u32(), self.u64(), depth + 1)

    def _skip(self, size: int) -> None:
        if size > self._limit - self.at:
            raise Refused(f"expected {size} bytes of header at {self.at}, found an end at {self._limit}")
        self.at += size

    def _fill(self, size: int) -> None:
        room = self._limit - self.at
        if size > room:
            raise Refused(f"expected {size} bytes of header at {self.at}, found an end at {self._limit}")
        self._data = self._source.exact(self.at, min(max(size, _WINDOW), room), "a header")
        self._start = self.at
