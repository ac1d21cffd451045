"""Canonical JSON: one spelling for each value, so that equal documents have equal bytes and equal ids.

UTF-8, no white space, members in the order given, no duplicate keys. Only `str`, `bool`, `None`, `int` within
±2^53, `list` and `str`-keyed `dict` are spelled; a float stands as text (`float_text`), so no reader's number
parser can change a bit. Strings escape `"`, `\\` and the control characters below U+0020 as `JSON.stringify`
does and nothing else. A reader decodes, encodes again, and refuses bytes that come out different.

A *sealed* document is one line: the canonical JSON of an object whose last member, `blake3`, is the hash of
every byte before `,"blake3":"`. It is plain JSON to any parser, and `head -c -78 FILE | b3sum` checks it.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Any

from cairn.errors import Damaged
from cairn.ids import blob_id

MAX_INT = 1 << 53
MAX_NESTING = 500
SEAL_BYTES = len(',"blake3":"') + 64 + len('"}\n')

_CONTAINERS = {dict, list}
_NAN = re.compile(r"[7f]ff[0-9a-f]{13}", re.ASCII)


class _Refused(ValueError):
    """The reason why bytes are not canonical JSON."""


def encode(value: Any) -> bytes:
    """Spell a value. Raises TypeError or ValueError for what canonical JSON has no spelling for."""
    _check(value, 0)
    return _spelled(value)


def decode(data: bytes, what: str) -> Any:
    """Read a value, refusing every spelling but the canonical one. Raises Damaged, naming `what`."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_float=_refuse_number, parse_constant=_refuse_number, parse_int=_int)
        _check_nesting(value)
        # A key that occurs twice is spelled once here, so it needs no look of its own.
        same = _spelled(value) == data
        if not same:
            json.loads(text, object_pairs_hook=_object)
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(f"{what}: expected canonical JSON, found {_reason(error)}") from None
    if not same:
        raise Damaged(f"{what}: expected canonical JSON, found another spelling of the same value")
    return value


def seal(document: dict[str, Any]) -> bytes:
    """Spell an object as one line that ends in the hash of what stands before it."""
    body = encode(document)[:-1]
    return body + b',"blake3":"' + blob_id(body).encode() + b'"}\n'


def unseal(data: bytes, what: str) -> tuple[dict[str, Any], str]:
    """Check a sealed line; return the document without its seal, and the seal. Raises Damaged."""
    body, tail = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
    expected = blob_id(body)
    if len(body) < 2 or tail != b',"blake3":"' + expected.encode() + b'"}\n':
        raise Damaged(
            f'{what}: expected a line that ends in its own hash, ,"blake3":"{expected}"}}, '
            f"found {len(data)} bytes that end otherwise; the file was changed or cut short"
        )
    document = decode(body + b"}", what)
    if not isinstance(document, dict):
        raise Damaged(f"{what}: expected a JSON object, found {type(document).__name__}")
    return document, expected


def float_text(value: float) -> str:
    """Spell a float so that every bit comes back: shortest round-trip text, or a NaN's 16 hex digits."""
    if math.isnan(value):
        return struct.pack(">d", value).hex()
    return repr(float(value))


def parse_float(text: object, what: str) -> float:
    """Read what `float_text` wrote and nothing else. Raises Damaged."""
    if isinstance(text, str):
        try:
            if _NAN.fullmatch(text):
                value: float = struct.unpack(">d", bytes.fromhex(text))[0]
            else:
                value = float(text)
            if float_text(value) == text:
                return value
        except ValueError:
            pass
    raise Damaged(f"{what}: expected the shortest text of a float, found {text!r:.60}")


def _spelled(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")


def _check_nesting(value: Any) -> None:
    """Do what `_check` does for a value that was JSON, level by level: all else of it holds for any such value."""
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_NESTING):
        if not level:
            return
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) in _CONTAINERS
        ]
    if level:
        raise _Refused(f"nesting deeper than {MAX_NESTING}")


def _check(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is int:
        if not -MAX_INT <= value <= MAX_INT:
            raise _Refused(f"the integer {value:#x} beyond 2^53")
    elif kind is dict or kind is list:
        if depth >= MAX_NESTING:
            raise _Refused(f"nesting deeper than {MAX_NESTING}")
        if kind is dict:
            for key, item in value.items():
                if type(key) is not str:
                    raise _Refused(f"a key of type {type(key).__name__}")
                _check(item, depth + 1)
        else:
            for item in value:
                _check(item, depth + 1)
    elif not (kind is str or kind is bool or value is None):
        raise _Refused(f"a value of type {kind.__name__}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _Refused("a duplicate key")
    return document


def _int(text: str) -> int:
    if len(text) > 17:
        raise _Refused(f"the number {text[:20]}…")
    value = int(text)
    if not -MAX_INT <= value <= MAX_INT:
        raise _Refused(f"the integer {value:#x} beyond 2^53")
    return value


def _refuse_number(text: str) -> Any:
    raise _Refused(f"the number {text[:20]}")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"nesting deeper than {MAX_NESTING}"
    if isinstance(error, UnicodeDecodeError):
        return "bytes that are not UTF-8"
    return str(error)
