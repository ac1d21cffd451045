"""The spelling of values without parts and without blobs: numbers, short strings, None, numpy scalars."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

from cairn.canonical import MAX_INT, float_text
from cairn.state.arrays import SCALAR_TYPES, name_of, scalar_bytes
from cairn.state.trees import INLINE_BYTES, INLINE_TEXT, MAX_INT_TEXT, MAX_KEY_DEPTH, stands_for_itself


def atom_text(value: object) -> bytes | None:
    """Spell a value as JSON, or say None: it has parts, needs a blob, or is of no type that can be kept."""
    kind = type(value)
    spell = _SPELLINGS.get(kind)
    if spell is not None:
        return spell(value)
    return _scalar_text(value) if kind in SCALAR_TYPES else None


def key_text(key: object, depth: int = 0) -> bytes | None:
    """Spell the key of a pair, or say None: it is of no type that a key may have, or too deep."""
    if type(key) is not tuple:
        return atom_text(key)
    texts = [key_text(item, depth + 1) for item in key] if depth < MAX_KEY_DEPTH else [None]
    spelled = [text for text in texts if text is not None]
    return b'{"$tuple":[' + b",".join(spelled) + b"]}" if len(spelled) == len(texts) else None


def plain_text(text: str) -> bytes:
    """Spell a str that stands for itself."""
    return encode_basestring(text).encode()


def _int_text(value: int) -> bytes | None:
    if -MAX_INT <= value <= MAX_INT:
        return b"%d" % value
    if value.bit_length() > 4 * (MAX_INT_TEXT - 3):
        return None
    return b'{"$int":"%s"}' % hex(value).encode()


def _float_text(value: float) -> bytes:
    return b'{"$float":"%s"}' % float_text(value).encode()


def _complex_text(value: complex) -> bytes:
    return b'{"$complex":["%s","%s"]}' % (float_text(value.real).encode(), float_text(value.imag).encode())


def _str_text(value: str) -> bytes | None:
    if stands_for_itself(value):
        return plain_text(value)
    if len(value) > INLINE_TEXT:
        return None
    data = value.encode("utf-8", "surrogatepass")
    return b'{"$str":"%s"}' % b64encode(data) if len(data) <= INLINE_BYTES else None


def _bytes_text(value: bytes) -> bytes | None:
    return b'{"$bytes":"%s"}' % b64encode(value) if len(value) <= INLINE_BYTES else None


def _scalar_text(value: Any) -> bytes | None:
    name = name_of(value.dtype)
    if name is None:
        return None
    return b'{"$scalar":{"dtype":"%s","data":"%s"}}' % (name.encode(), scalar_bytes(value, name).hex().encode())


_SPELLINGS: dict[type, Callable[[Any], bytes | None]] = {
    type(None): lambda _: b"null",
    bool: lambda value: b"true" if value else b"false",
    int: _int_text,
    float: _float_text,
    complex: _complex_text,
    str: _str_text,
    bytes: _bytes_text,
}
