"""safetensors: 8 bytes of header length, a JSON header, then the tensors without hole or overlap.

Read as `safetensors/src/tensor.rs` and the format's README say, and more strictly where readers differ: keys are
unique, an entry has its three keys and no other, the header starts with `{`. The order of keys, white space and
padding are free. Types that this version does not know are fine: the offsets alone decide.

The header is never turned into Python objects at once: a scanner walks it entry by entry and stops at the first byte
that is not as expected, so a hostile header costs one pass and no more memory than its tensors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cairn.files.formats.model import (
    MAX_DIMENSIONS,
    MAX_HEADER,
    MAX_TENSORS,
    Refused,
    Slice,
    Source,
    TensorInfo,
    elements,
    tiled,
)
from cairn.state.dtypes import SAFETENSORS

METADATA = "__metadata__"
MAX_TEXT = 16 << 20
"""Longest name or value of the metadata, because decoding it takes several times its size."""

_BITS = {name: 8 * size for name, (_, size) in SAFETENSORS.items()} | {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits of an element. The types under a byte are packed, unlike those of ml_dtypes, and so keep their own names."""

_S = r"[ \t\r\n]*+"
_STRING = r'"([^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+)"'
_NUMBER = r"(?:0|[1-9][0-9]{0,18}+)"
_SHAPE = rf"\[{_S}({_NUMBER}{_S}(?:,{_S}{_NUMBER}{_S}){{0,{MAX_DIMENSIONS - 1}}}+)?\]"
_OFFSETS = rf"\[{_S}({_NUMBER}){_S},{_S}({_NUMBER}){_S}\]"
_DTYPE = r'"([A-Za-z0-9_]{1,32}+)"'
_FIELD = rf'"dtype"{_S}:{_S}{_DTYPE}|"shape"{_S}:{_S}{_SHAPE}|"data_offsets"{_S}:{_S}{_OFFSETS}'


def _compile(pattern: str) -> re.Pattern[bytes]:
    return re.compile((_S + pattern + _S).encode())


_OPEN = _compile(r"\{")
_CLOSE = _compile(r"\}")
_NEXT = _compile(r"([,}])")
_KEY = _compile(rf"{_STRING}{_S}:")
_TEXT = _compile(_STRING)
_ENTRY = _compile(rf'\{{{_S}(?:(?:{_FIELD}){_S}(?:,{_S}(?=")|(?=\}}))){{3}}\}}')


class _Entry(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def looks_like(head: bytes, size: int) -> bool:
    """Whether a file starts like a safetensors header. A length, even a lying one, has a byte that no text has."""
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or not {0x00, 0xFF} & set(head[:8]):
        return False
    if head[8:9] == b"{":
        return True
    if size == 8:
        return length == 0
    return 0 < length <= min(size - 8, MAX_HEADER) and head[8:9] in (b"[", b" ", b"\xef")


def cut(source: Source) -> tuple[Slice, ...]:
    """Find the tensors' bytes. Raises Refused when the file is not exactly as the format says."""
    header = _header(source)
    return _tiled(_entries(header), 8 + len(header), source.size)


def tensors(source: Source) -> list[TensorInfo]:
    """Name the tensors in the order of the header. Raises Refused."""
    header = _header(source)
    start = 8 + len(header)
    entries = list(_entries(header))
    _tiled(entries, start, source.size)
    return [TensorInfo(e.name, e.dtype, e.shape, start + e.begin, start + e.end) for e in entries]


def _tiled(entries: Iterable[_Entry], start: int, stop: int) -> tuple[Slice, ...]:
    pieces = [Slice(start + e.begin, start + e.end, max(_BITS.get(e.dtype, 8) // 8, 1)) for e in entries]
    return tiled(pieces, start, stop, "tensors")


def _header(source: Source) -> bytes:
    length = int.from_bytes(source.exact(0, 8, "the length of a header"), "little")
    limit = min(source.size - 8, MAX_HEADER)
    if not 2 <= length <= limit:
        raise Refused(f"expected a header of 2 to {limit} bytes, found a length of {length}")
    return source.exact(8, length, "a header")


def _entries(header: bytes) -> Iterator[_Entry]:
    """Scan the header. Raises Refused at the first byte that is not as the format says."""
    if header[:1] != b"{":
        raise Refused(f"expected a header that starts with '{{', found {header[:8]!r}")
    scanner = _Scanner(header)
    scanner.take(_OPEN, "an object")
    names: set[str] = set()
    more = not scanner.skip(_CLOSE)
    while more:
        name = _unique(scanner.take(_KEY, "a name in quotes and a colon")[1], names)
        if name == METADATA:
            _check_metadata(scanner)
        else:
            yield _entry(name, scanner.take(_ENTRY, f"dtype, shape and data_offsets of {name!r:.80}"))
        more = scanner.take(_NEXT, "a comma or the end of the header")[1] == b","
    if scanner.at != len(header):
        raise Refused(f"expected only padding after the header's object, found {header[scanner.at :][:8]!r}")


def _entry(name: str, match: re.Match[bytes]) -> _Entry:
    dtype, shape, begin, end = match.groups()
    if dtype is None or begin is None or match[0].count(b'"shape"') != 1:
        raise Refused(f"expected dtype, shape and data_offsets of {name!r:.80}, found one of them twice")
    entry = _Entry(name, dtype.decode(), tuple(map(int, shape.split(b","))) if shape else (), int(begin), int(end))
    if entry.begin > entry.end:
        raise Refused(f"expected data_offsets of {name!r:.80} in order, found [{entry.begin}, {entry.end}]")
    bits = _BITS.get(entry.dtype)
    if bits is not None and elements(entry.shape) * bits != (entry.end - entry.begin) * 8:
        raise Refused(
            f"expected {elements(entry.shape)} elements of {bits} bits in {name!r:.80}, "
            f"found {entry.end - entry.begin} bytes"
        )
    return entry


def _check_metadata(scanner: _Scanner) -> None:
    """Pass over an object of strings."""
    scanner.take(_OPEN, "an object of metadata")
    names: set[str] = set()
    more = not scanner.skip(_CLOSE)
    while more:
        _unique(scanner.take(_KEY, "a key of metadata")[1], names)
        _text(scanner.take(_TEXT, "text as a value of metadata")[1])
        more = scanner.take(_NEXT, "a comma or the end of the metadata")[1] == b","


def _unique(raw: bytes, names: set[str]) -> str:
    name = _text(raw)
    if name in names:
        raise Refused(f"expected unique names, found {name!r:.80} twice")
    if len(names) >= MAX_TENSORS:
        raise Refused(f"expected at most {MAX_TENSORS} names, found more")
    names.add(name)
    return name


def _text(raw: bytes) -> str:
    """Decode what stands between quotes; an escaped half of a surrogate pair is no text."""
    if len(raw) > MAX_TEXT:
        raise Refused(f"expected texts of at most {MAX_TEXT} bytes, found one of {len(raw)}")
    try:
        if b"\\" not in raw:
            return raw.decode("utf-8")
        text: str = json.loads(b'"' + raw + b'"')
        text.encode("utf-8")
    except UnicodeError:
        raise Refused(f"expected text in UTF-8, found {raw[:40]!r}") from None
    return text


class _Scanner:
    """A place in the header, and what is expected there."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0

    def take(self, pattern: re.Pattern[bytes], what: str) -> re.Match[bytes]:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise Refused(f"expected {what} at byte {8 + self.at}, found {self.text[self.at : self.at + 40]!r}")
        self.at = match.end()
        return match

    def skip(self, pattern: re.Pattern[bytes]) -> bool:
        match = pattern.match(self.text, self.at)
        self.at = self.at if match is None else match.end()
        return match is not None
