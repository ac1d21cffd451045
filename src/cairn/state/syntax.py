"""The reading of one JSON node of a tree into what it says, refusing every spelling the encoder does not use.

Nothing here follows a reference, so what stands in other trees is not judged: `cairn.state.reader` does that.
numpy is not needed, so that listing a commit starts fast.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from cairn.canonical import MAX_INT, parse_float
from cairn.errors import Damaged
from cairn.ids import BlobRef
from cairn.objects.cutting import WHOLE_BYTES, cut
from cairn.state import dtypes
from cairn.state.basics import Body, Malformed, members, parse_ref, parse_refs
from cairn.state.filesyntax import FileNode, parse_file, parse_folder, parse_link
from cairn.state.nodes import Link as FileLink
from cairn.state.paths import Scalar
from cairn.state.trees import (
    INLINE_BYTES,
    JAX_KEYS,
    JAX_KINDS,
    KEY_WORDS,
    MAP_TYPES,
    MAX_DATA_BYTES,
    MAX_DEPTH,
    MAX_DIMENSIONS,
    MAX_INT_TEXT,
    MAX_KEY_DEPTH,
    METADATA,
    PARAMETER,
    TORCH_KINDS,
    stands_for_itself,
)

__all__ = [
    "Body",
    "FileNode",
    "Link",
    "Long",
    "Malformed",
    "Steps",
    "Tensor",
    "members",
    "parse",
    "parse_key",
    "parse_ref",
    "parse_refs",
]

Steps = tuple[str | int, ...]


class Tensor(NamedTuple):
    """A tensor: its element type, byte order, shape, pieces, and what it comes back as."""

    dtype: str
    big: bool
    shape: tuple[int, ...]
    nbytes: int
    blobs: tuple[BlobRef, ...]
    kind: str | None = None
    """One of `TORCH_KINDS` or `JAX_KINDS`, or None for a numpy array."""


@dataclass(frozen=True, slots=True)
class Link:
    """The memory of an earlier tensor of the same component."""

    steps: Steps


@dataclass(frozen=True, slots=True)
class Long:
    """A str or bytes kept in blobs."""

    kind: str
    nbytes: int
    blobs: tuple[BlobRef, ...]


def parse(raw: Any) -> object:
    """Read a node: a Tensor, Link, Long, Body, Scalar, FileNode or file link, or the plain value it stands for.

    Raises Malformed.
    """
    kind = type(raw)
    if kind is dict:
        for key in raw:
            if key[:1] == "$":
                return _special(raw)
        return Body("dict", "fields", raw, False)
    if kind is list:
        return Body("list", "items", raw, False)
    if kind is str and not stands_for_itself(raw):
        raise Malformed(f"expected a text over 64 KiB as $str, found it in the tree ({len(raw)} characters)")
    return raw


def parse_key(raw: Any, depth: int = 0) -> object:
    """Read the key of a pair, numpy scalars as Scalar. Raises Malformed."""
    node = parse(raw)
    if isinstance(node, Body) and node.kind == "tuple" and not node.parts and depth < MAX_KEY_DEPTH:
        return tuple([parse_key(item, depth + 1) for item in node.raw])
    if isinstance(node, Body | Tensor | Link | Long | FileNode | FileLink):
        raise Malformed(f"expected a key, found {raw!r:.60}")
    return node


def fits_memory(shape: Sequence[int], dtype: str) -> bool:
    """Whether an array can have a shape, empty ones included: its other dimensions must fit, too."""
    extent = prod([n for n in shape if n]) * (dtypes.itemsize(dtype) or 1)
    return len(shape) <= MAX_DIMENSIONS and extent < 1 << 63 and all(n <= MAX_INT for n in shape)


def parse_steps(raw: Any) -> Steps:
    """Read a path inside a component. Raises Malformed."""
    if type(raw) is list and len(raw) <= MAX_DEPTH:
        for step in raw:
            if not (type(step) is str or (type(step) is int and step >= 0)):
                break
        else:
            return tuple(raw)
    raise Malformed(f"expected a list of at most {MAX_DEPTH} keys and places, found {raw!r:.90}")


def _special(raw: dict[str, Any]) -> object:
    if len(raw) != 1:
        raise Malformed(f"expected one member beside a key with $, found {len(raw)}: {', '.join(raw)!s:.90}")
    ((key, inner),) = raw.items()
    read = _KINDS.get(key)
    if read is None:
        raise Malformed(f"expected a kind of value this version knows, found {key!r:.60}")
    return read(inner)


def _tensor(raw: Any) -> Tensor:
    big, kind = _tensor_endings(raw)
    name, shape = raw["dtype"], raw["shape"]
    if type(shape) is not list or len(shape) > MAX_DIMENSIONS or not _are_counts(shape):
        raise Malformed(f"expected a shape of at most {MAX_DIMENSIONS} whole numbers, found {shape!r:.90}")
    nbytes = dtypes.size_of(name, shape) if _is_of_kind(name, shape, kind) else None
    if nbytes is None or (big and dtypes.itemsize(name) == 1):
        raise Malformed(
            f"expected an element type this version knows, found {name!r:.60} in {shape!r:.60}"
            f"{', big-endian' * big}{f', of {kind}' if kind else ''}"
        )
    if not (0 < nbytes <= MAX_DATA_BYTES or fits_memory(shape, name)):
        raise Malformed(f"expected a shape that fits in memory, found {shape!r:.90}")
    return Tensor(name, big, tuple(shape), nbytes, _pieces(raw["blobs"], nbytes), kind)


def _are_counts(shape: list[Any]) -> bool:
    return set(map(type, shape)) <= {int} and (not shape or min(shape) >= 0)


def _is_of_kind(name: Any, shape: list[int], kind: str | None) -> bool:
    if type(name) is not str:
        return False
    if kind is None:
        return name not in dtypes.PACKED
    if kind in JAX_KEYS:
        return name == "U32" and shape[-1:] == [KEY_WORDS[JAX_KEYS[kind]]]
    if kind in JAX_KINDS:
        return name in dtypes.JAX_NAMES
    return name in (dtypes.WITH_GRADIENTS if kind == PARAMETER else dtypes.TORCH_NAMES)


def _tensor_endings(raw: Any) -> tuple[bool, str | None]:
    """Whether a tensor is big-endian, and which of torch's or jax's kinds it is, if any."""
    names = list(raw) if type(raw) is dict else []
    if names == ["dtype", "shape", "blobs"]:
        return False, None
    if names == ["dtype", "shape", "blobs", "order"] and raw["order"] == "big":
        return True, None
    if names == ["dtype", "shape", "blobs", "as"] and raw["as"] in TORCH_KINDS + JAX_KINDS:
        return False, raw["as"]
    raise Malformed(f"expected an object with dtype, shape, blobs and perhaps order or as, found {raw!r:.90}")


def _pieces(raw: Any, nbytes: int) -> tuple[BlobRef, ...]:
    refs = parse_refs(raw)
    if len(refs) == 1 and refs[0].size == nbytes <= WHOLE_BYTES:
        return refs
    if nbytes > MAX_DATA_BYTES:
        raise Malformed(f"expected at most {MAX_DATA_BYTES} bytes, found {nbytes}")
    if [ref.size for ref in refs] != [end - start for start, end in cut(nbytes)]:
        found = ", ".join(str(ref.size) for ref in refs[:8])
        raise Malformed(f"expected {nbytes} bytes in {len(cut(nbytes))} pieces, found {len(refs)} pieces of {found}")
    return refs


def _link(raw: Any) -> Link:
    return Link(parse_steps(raw))


def _scalar(raw: Any) -> Scalar:
    name, text = members(raw, "dtype", "data")
    size = dtypes.itemsize(name)
    if size is None:
        raise Malformed(f"expected an element type this version knows, found {name!r:.60}")
    try:
        data = bytes.fromhex(text)
    except (ValueError, TypeError):
        data = b""
    if len(data) != size or data.hex() != text:
        raise Malformed(f"expected {2 * size} lower-case hex digits, found {text!r:.60}")
    return Scalar(name, data)


def _float(raw: Any) -> float:
    try:
        return parse_float(raw, "float")
    except Damaged:
        raise Malformed(f"expected the shortest text of a float, found {raw!r:.60}") from None


def _int(raw: Any) -> int:
    try:
        if type(raw) is str and len(raw) <= MAX_INT_TEXT:
            value = int(raw, 16)
            if hex(value) == raw and not -MAX_INT <= value <= MAX_INT:
                return value
    except ValueError:
        pass
    raise Malformed(f"expected a whole number beyond 2^53 in lower-case hex, found {raw!r:.60}")


def _complex(raw: Any) -> complex:
    if type(raw) is not list or len(raw) != 2:
        raise Malformed(f"expected a real and an imaginary part, found {raw!r:.60}")
    return complex(_float(raw[0]), _float(raw[1]))


def _tuple(raw: Any) -> Body:
    return _list_body("tuple", "items", raw)


def _map(raw: Any) -> Body:
    metadata: tuple[Any, ...] = ()
    if type(raw) is dict and list(raw)[2:] == [METADATA] and raw.get("type") == "OrderedDict":
        metadata = (raw[METADATA],)
        raw = {name: inner for name, inner in raw.items() if name != METADATA}
    kind, pairs = members(raw, "type", "pairs")
    if kind not in MAP_TYPES:
        raise Malformed(f"expected one of the mappings {', '.join(MAP_TYPES)}, found {kind!r:.60}")
    body = _list_body(kind, "pairs", pairs)
    return Body(kind, body.shape, body.raw, body.parts, metadata=metadata)


def _list_body(kind: str, shape: str, raw: Any) -> Body:
    if type(raw) is list:
        return Body(kind, shape, raw, False)
    if type(raw) is dict and list(raw) == ["$list"]:
        return Body(kind, shape, raw["$list"], True)
    raise Malformed(f"expected a list, whole or in parts, found {raw!r:.60}")


def _text(raw: Any) -> object:
    if type(raw) is list:
        return _long("str", raw)
    try:
        text = _base64(raw).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Malformed("expected UTF-8, found other bytes") from None
    if stands_for_itself(text):
        raise Malformed("expected a text with lone surrogates, found one that stands for itself")
    return text


def _data(raw: Any) -> object:
    return _long("bytes", raw) if type(raw) is list else _base64(raw)


def _long(kind: str, raw: list[Any]) -> Long:
    refs = parse_refs(raw)
    nbytes = sum(ref.size for ref in refs)
    if nbytes <= INLINE_BYTES:
        raise Malformed(f"expected {nbytes} bytes to stand in the tree, found blobs")
    return Long(kind, nbytes, _pieces(raw, nbytes))


def _base64(raw: Any) -> bytes:
    try:
        data = b64decode(raw, validate=True)
    except (ValueError, TypeError):
        raise Malformed(f"expected base64 text, found {raw!r:.60}") from None
    if len(data) > INLINE_BYTES:
        raise Malformed(f"expected at most {INLINE_BYTES} bytes to stand in the tree, found {len(data)}")
    if b64encode(data).decode() != raw:
        raise Malformed(f"expected base64 text in its one spelling, found {raw!r:.60}")
    return data


_KINDS: dict[str, Callable[[Any], object]] = {
    "$tensor": _tensor,
    "$tie": _link,
    "$scalar": _scalar,
    "$float": _float,
    "$int": _int,
    "$complex": _complex,
    "$tuple": _tuple,
    "$map": _map,
    "$str": _text,
    "$bytes": _data,
    "$file": parse_file,
    "$dir": lambda raw: parse_folder(raw, parse),
    "$link": parse_link,
    "$dict": lambda raw: Body("dict", "fields", raw, True),
    "$list": lambda raw: Body("list", "items", raw, True),
}
