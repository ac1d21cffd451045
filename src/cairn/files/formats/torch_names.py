"""The names of the tensors in torch's archives, from a symbolic reading of their pickles.

A tensor is a call of `torch._utils._rebuild_tensor_v2` (or a relative) on a storage, which stands in the pickle as the
persistent id `("storage", type, key, device, elements)` and in the archive as a member of that key. Its name is its
path: keys and indices, joined by slashes as in `cairn.state.paths`. What is no tensor is only looked through. For
TorchScript the attributes of the modules make the path, and the constants stand under `constants`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cairn.files.formats import symbolic
from cairn.files.formats.archives import Archive, is_storage
from cairn.files.formats.model import Refused, Source, TensorInfo, elements
from cairn.files.formats.symbolic import Call, Global, Mapping, Persistent
from cairn.files.formats.zips import Member
from cairn.state.paths import readable_key

MAX_PICKLE = 32 << 20
_MAX_DEPTH = 100
_MAX_NAME = 4096
_MAX_NAMES = 32 << 20
"""Characters of all names together."""

_DTYPES = {
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "uint16": ("U16", 2),
    "uint32": ("U32", 4),
    "uint64": ("U64", 8),
    "bool": ("BOOL", 1),
    "complex32": ("complex32", 4),
    "complex64": ("C64", 8),
    "complex128": ("complex128", 16),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
    "float4_e2m1fn_x2": ("float4_e2m1fn_x2", 1),
    "qint8": ("qint8", 1),
    "quint8": ("quint8", 1),
    "qint32": ("qint32", 4),
}
"""torch's name: the name in trees where there is one, and bytes of an element."""

_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "UntypedStorage": "uint8",
}
_TENSORS = {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor"}
_WRAPPERS = {"_rebuild_parameter", "_rebuild_parameter_with_state"}
_TYPED = {"_rebuild_from_type_v2"}
"""A tensor of a class of its own, or with attributes: function, class, arguments and state."""
_NODES = {list, tuple, Mapping, Call, Persistent}


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: str
    itemsize: int
    member: Member


def tensors(source: Source, archive: Archive) -> list[TensorInfo]:
    """Name the tensors of torch's archive in the order of its pickles. Raises Refused when one cannot be placed."""
    members = {member.name.removeprefix(archive.prefix): member for member in archive.members}
    big_endian = _content(source, members, b"byteorder", 16) == b"big"
    found: list[TensorInfo] = []
    for pickled, folder, name in ((b"data.pkl", b"data/", ""), (b"constants.pkl", b"constants/", "constants")):
        data = _content(source, members, pickled, MAX_PICKLE)
        if data:
            storages = {
                member_name.removeprefix(folder): member
                for member_name, member in members.items()
                if member_name.startswith(folder) and is_storage(archive, member)
            }
            found.extend(_Walk(storages, big_endian).named(symbolic.read(data), name))
    return found


def _content(source: Source, members: dict[bytes, Member], name: bytes, limit: int) -> bytes:
    member = members.get(name)
    if member is None:
        return b""
    if not member.stored or member.stop - member.start > limit:
        raise Refused(f"expected {name.decode()} stored in at most {limit} bytes, found {member.stop - member.start}")
    return source.exact(member.start, member.stop - member.start, "a member")


class _Walk:
    """One way through what a pickle describes. Every container is entered once, so cycles and repeats end."""

    def __init__(self, storages: dict[bytes, Member], big_endian: bool) -> None:
        self._storages = storages
        self._big_endian = big_endian
        self._entered: dict[int, Any] = {}
        self._visits = 0
        self._written = 0

    def named(self, node: Any, name: str, depth: int = 0) -> Iterator[TensorInfo]:
        """Yield the tensors in and below a node, depth first."""
        self._visits += 1
        if depth > _MAX_DEPTH or len(name) > _MAX_NAME or self._visits > symbolic.MAX_OPCODES:
            raise Refused(f"expected at most {_MAX_DEPTH} levels and names of {_MAX_NAME} characters, found more")
        if type(node) is Persistent:
            storage = self._storage(node)
            count = (storage.member.stop - storage.member.start) // storage.itemsize
            yield self._info(name, storage, (0, (count,), (1,)))
        elif type(node) is Call and _is_one(node.function, "torch._utils", _TENSORS):
            yield self._tensor(name, node.arguments)
        elif type(node) is Call and _is_one(node.function, "torch._utils", _WRAPPERS) and _arguments(node):
            yield from self.named(node.arguments[0], name, depth + 1)
        elif type(node) is Call and _is_one(node.function, "torch._tensor", _TYPED) and len(_arguments(node)) == 4:
            function, _, arguments, state = node.arguments
            yield from self.named(Call(function, arguments), name, depth + 1)
            yield from self.named(state, name, depth + 1)
        elif type(node) in _NODES and id(node) not in self._entered:
            self._entered[id(node)] = node
            for key, child in _children(node):
                if type(child) in _NODES:
                    spelled = readable_key(_plain(key))
                    yield from self.named(child, f"{name}/{spelled}" if name else spelled, depth + 1)

    def _tensor(self, name: str, arguments: Any) -> TensorInfo:
        if type(arguments) is not tuple or len(arguments) < 4 or type(arguments[0]) is not Persistent:
            raise Refused("expected a storage, an offset, a shape and strides of a tensor, found something else")
        storage = self._storage(arguments[0])
        rest = arguments[4:]
        dtype = next((a for a in rest if type(a) is Global and a.module == "torch" and a.name in _DTYPES), None)
        if dtype is not None:
            storage = _Storage(*_DTYPES[dtype.name], storage.member)
        return self._info(name, storage, arguments[1:4], _bits(rest))

    def _storage(self, node: Persistent) -> _Storage:
        key = node.key
        if type(key) is not tuple or len(key) != 5 or key[0] != "storage" or type(key[1]) is not Global:
            raise Refused("expected the id of a storage, found something else")
        dtype = _STORAGES.get(key[1].name) if key[1].module in ("torch", "torch.storage") else None
        member = self._storages.get(key[2].encode("utf-8", "replace")) if type(key[2]) is str else None
        if dtype is None or member is None or type(key[4]) is not int:
            raise Refused(f"expected a stored storage of a known type, found {key[1].name!r:.80}")
        name, itemsize = _DTYPES[dtype]
        if key[4] * itemsize != member.stop - member.start:
            raise Refused(f"expected {key[4]} elements of {itemsize} bytes, found {member.stop - member.start} bytes")
        return _Storage(name, itemsize, member)

    def _info(
        self, name: str, storage: _Storage, view: tuple[Any, ...], bits: frozenset[str] = frozenset()
    ) -> TensorInfo:
        offset, shape, strides = view
        if not _counts((offset,)) or not _counts(shape) or not _counts(strides) or len(shape) != len(strides):
            raise Refused("expected an offset, a shape and strides in whole numbers, found something else")
        last = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
        size = storage.member.stop - storage.member.start
        if elements(shape) and (offset + last + 1) * storage.itemsize > size:
            raise Refused(f"expected a tensor in {size} bytes of storage, found its end at element {offset + last}")
        self._written += len(name)
        if self._written > _MAX_NAMES:
            raise Refused(f"expected names of {_MAX_NAMES} characters in all, found more")
        return TensorInfo(
            name,
            storage.dtype,
            shape,
            storage.member.start,
            storage.member.stop,
            offset,
            None if _is_c_order(shape, strides) else strides,
            self._big_endian and storage.itemsize > 1,
            "conj" in bits,
            "neg" in bits,
        )


def _is_one(function: Any, module: str, names: set[str]) -> bool:
    return type(function) is Global and function.module == module and function.name in names


def _arguments(node: Call) -> tuple[Any, ...]:
    return node.arguments if type(node.arguments) is tuple else ()


def _plain(key: Any) -> Any:
    """A key that is short to spell, whatever it is; only str, numbers and tuples of numbers are keys in practice."""
    if type(key) in (str, bytes):
        return key[:256]
    if type(key) is tuple and len(key) <= 8:
        return tuple(_plain(part) if type(part) is not tuple else "tuple" for part in key)
    if type(key) in (int, bool, float) or key is None:
        return key
    return f"{key.module}.{key.name}"[:256] if type(key) is Global else type(key).__name__


def _bits(rest: tuple[Any, ...]) -> frozenset[str]:
    """Which of torch's bits are set on a tensor: metadata that stands behind its other arguments."""
    pairs = [pair for value in rest if type(value) is Mapping for pair in value.pairs]
    return frozenset(key for key, value in pairs if type(key) is str and value is True)


def _counts(values: Any) -> bool:
    return type(values) is tuple and len(values) <= 64 and all(type(v) is int and 0 <= v < 1 << 63 for v in values)


def _is_c_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements lie in order; the stride of a dimension of one element leads nowhere."""
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return 0 in shape
        step *= extent
    return True


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    """Pair the children of a node with what they are called."""
    if type(node) is Mapping:
        yield from node.pairs
    elif type(node) is Call:
        yield from node.pairs
        yield from enumerate(node.items)
        yield from enumerate(_arguments(node))
        yield from node.state.pairs if type(node.state) is Mapping else [("state", node.state)]
    else:
        yield from enumerate(node)
