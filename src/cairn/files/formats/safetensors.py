"""safetensors: 8 bytes of header length, a JSON header, then the tensors without hole or overlap.

Read as `safetensors/src/tensor.rs` and the format's README say, and more strictly where readers differ: keys are
unique, an entry has its three keys and no other, the header starts with `{`. The order of keys, white space and
padding are free. Types that this version does not know are fine: the offsets alone decide.

The header is never turned into Python objects at once: a scanner walks it entry by entry and stops at the first byte
that is not as expected, so a hostile header costs one pass and no more memory than its tensors.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.files.formats.model import (
    MAX_DIMENSIONS,
    MAX_HEADER,
    MAX_TENSORS,
    Refused,
    Slice,
    Source,
    TensorInfo,
    tiled,
)
from cairn.state.dtypes import SAFETENSORS

_PACKED_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Types whose elements are no whole bytes. They keep these names: ml_dtypes gives each element a byte of its own."""

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"([^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+)"'
_NUMBER = rb"(?:0|[1-9][0-9]{0,18})"
_COMMA = _SPACE + rb"," + _SPACE


def _compile(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(_SPACE + pattern + _SPACE)


_KEY = _compile(_STRING + _SPACE + rb":")
_VALUE = _compile(_STRING)
_OPEN = _compile(rb"\{")
_NEXT = _compile(rb"([,}])")
_SHAPE = (
    rb"\["
    + _SPACE
    + rb"((?:"
    + _NUMBER
    + rb"(?:"
    + _COMMA
    + _NUMBER
    + rb"){0,%d}+)?)" % (MAX_DIMENSIONS - 1)
    + _SPACE
    + rb"\]"
)
_OFFSETS = rb"\[" + _SPACE + rb"(" + _NUMBER + rb")" + _COMMA + rb"(" + _NUMBER + rb")" + _SPACE + rb"\]"
_FIELD = _compile(
    rb'(?:"dtype"' + _SPACE + rb":" + _SPACE + rb'"([A-Za-z0-9_]{1,32})"'
    rb'|"shape"' + _SPACE + rb":" + _SPACE + _SHAPE + rb'|"data_offsets"' + _SPACE + rb":" + _SPACE + _OFFSETS + rb")"
)
_UTF8_STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def looks_like(head: bytes, size: int) -> bool:
    """Whether the first bytes are meant as a safetensors header. No text starts like this: a length has a zero byte."""
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or 0 not in head[:8]:
        return False
    if head[8:9] == b"{":
        return True
    if size == 8:
        return length == 0
    return 0 < length <= min(size - 8, MAX_HEADER) and head[8:9] in (b"[", b" ", b"\xef")


def cut(source: Source) -> tuple[Slice, ...]:
    """Find the tensors' bytes. Raises Refused when the file is not exactly as the format says."""
    start, header = _header(source)
    pieces = (Slice(start + e.begin, start + e.end, SAFETENSORS.get(e.dtype, ("", 1))[1]) for e in _entries(header))
    return tiled(pieces, start, source.size, "tensors")


def tensors(source: Source) -> list[TensorInfo]:
    """Name the tensors in the order of the header. Raises Refused."""
    cut(source)
    start, header = _header(source)
    return [TensorInfo(e.name, e.dtype, e.shape, start + e.begin, start + e.end) for e in _entries(header)]


def _header(source: Source) -> tuple[int, bytes]:
    (length,) = struct.unpack("<Q", source.exact(0, 8, "the length of a header"))
    limit = min(source.size - 8, MAX_HEADER)
    if not 2 <= length <= limit:
        raise Refused(f"expected a header of 2 to {limit} bytes, found a length of {length}")
    header = source.exact(8, length, "a header")
    if header[:1] != b"{":
        raise Refused(f"expected a header that starts with '{{', found {header[:8]!r}")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, length, _UTF8_STEP):
            decoder.decode(header[at : at + _UTF8_STEP], final=at + _UTF8_STEP >= length)
    except UnicodeDecodeError as error:
        raise Refused(f"expected a header in UTF-8, found {error.reason}") from None
    return 8 + length, header


def _entries(header: bytes) -> Iterator[_Entry]:
    """Scan the header. Raises Refused at the first byte that is not as the format says."""
    seen: set[bytes | str] = set()
    for at in _members(header, 0):
        key, at_value = _key(header, at, seen)
        if key == "__metadata__":
            yield_at = _metadata(header, at_value)
            seen.add(yield_at.to_bytes(8, "little"))
    raise NotImplementedError
