"""A component of live state as plain files describe it: JSON with tensors by name, for tools that know no cairn.

Finite floats are JSON numbers; containers that JSON lacks, and numbers it cannot spell for every reader, are objects
with one `$` key, spelled as in trees. A tensor is `{"$tensor": NAME}`, its name in the safetensors file, and for a tie
that of the tensor whose memory it is; one of a type that safetensors lacks also says its `dtype` and `shape`, and lies
there as bytes. A folder or file inside a component is `{"$dir": NAME}`, `{"$file": NAME}` or `{"$link": NAME}`, its
name among the component's files.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cairn import canonical
from cairn.ids import BlobRef
from cairn.state import arrays, dtypes
from cairn.state.make import StoredTensor
from cairn.state.nodes import MAX_NAME_BYTES, Folder, Link, Name
from cairn.state.stored import StoredFile
from cairn.state.trees import METADATA

_FILES: dict[type, str] = {Folder: "$dir", StoredFile: "$file", Link: "$link"}


@dataclass(frozen=True, slots=True)
class PlainTensor:
    """A tensor as safetensors holds it: name, type, shape, blobs, and what divides their place in the file.

    Of an array that is in no store there are no blobs.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    blobs: tuple[BlobRef, ...]
    itemsize: int


@dataclass
class Plain:
    """One component taken apart."""

    value: Any = None
    tensors: list[PlainTensor] = field(default_factory=list)
    ties: dict[str, str] = field(default_factory=dict)
    """Name of a tied tensor to the name of the tensor whose memory it is."""
    files: dict[Name, object] = field(default_factory=dict)
    """Folders, files and links inside the component, under names that any file system takes."""


def take_apart(state: object) -> Plain:
    """Describe a loaded component. Arrays, or stored tensors, that are one object are ties."""
    taking = _Taking(Plain())
    taking.plain.value = taking.value(state, ())
    return taking.plain


class _Taking:
    def __init__(self, plain: Plain) -> None:
        self.plain = plain
        self._names: set[str] = set()
        self._first: dict[int, str] = {}

    def value(self, value: Any, keys: tuple[object, ...]) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if abs(value) <= canonical.MAX_INT else {"$int": hex(value)}
        if kind is str:
            return value if _is_text(value) else {"$str": _base64(value.encode("utf-8", "surrogatepass"))}
        if kind is float:
            return value if math.isfinite(value) else {"$float": canonical.float_text(value)}
        if kind is np.ndarray:
            return self._tensor(value, _stored(value), keys)
        if kind is StoredTensor:
            return self._tensor(value, value, keys)
        if kind is list:
            return [self.value(item, (*keys, at)) for at, item in enumerate(value)]
        if kind is tuple:
            return {"$tuple": [self.value(item, (*keys, at)) for at, item in enumerate(value)]}
        if kind in (dict, OrderedDict, Counter):
            return self._mapping(value, keys)
        if kind in _FILES:
            return {_FILES[kind]: self._file(value, keys)}
        return _scalar(value)

    def _mapping(self, value: dict[Any, Any], keys: tuple[object, ...]) -> Any:
        if type(value) is dict and all(type(key) is str and key[:1] != "$" and _is_text(key) for key in value):
            return {key: self.value(item, (*keys, key)) for key, item in value.items()}
        pairs = [[self.value(key, ()), self.value(item, (*keys, key))] for key, item in value.items()]
        said = {"type": type(value).__name__, "pairs": pairs}
        if METADATA in getattr(value, "__dict__", ()):
            said[METADATA] = self.value(vars(value)[METADATA], (*keys, METADATA))
        return {"$map": said}

    def _tensor(self, value: object, tensor: StoredTensor, keys: tuple[object, ...]) -> Any:
        name = self._name(keys)
        plain = tensor.dtype in dtypes.SAFETENSORS or tensor.dtype in dtypes.PACKED
        said = {"$tensor": name} if plain else {"$tensor": name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
        if tensor.nbytes and id(value) in self._first:
            said["$tensor"] = self.plain.ties[name] = self._first[id(value)]
            return said
        self._first[id(value)] = name
        itemsize = dtypes.itemsize(tensor.dtype) or 1
        dtype, shape = (tensor.dtype, tensor.shape) if plain else ("U8", (tensor.nbytes,))
        self.plain.tensors.append(PlainTensor(name, dtype, shape, tensor.nbytes, tensor.blobs, itemsize))
        return said

    def _file(self, value: object, keys: tuple[object, ...]) -> str:
        name = self._name(keys)
        if "/" in name or "\0" in name or name in (".", "..") or len(name.encode()) > MAX_NAME_BYTES:
            name = self._name((len(self.plain.files),))
        self.plain.files[name] = value
        return name

    def _name(self, keys: tuple[object, ...]) -> str:
        """The keys joined by dots, which is how model files name their tensors; made different where two would meet."""
        plain = ".".join(key if type(key) is str and _is_text(key) else repr(key) for key in keys) or "value"
        name, number = plain, 2
        while name in self._names or name == "__metadata__":
            name, number = f"{plain}#{number}", number + 1
        self._names.add(name)
        return name


def _stored(array: arrays.Array) -> StoredTensor:
    name = arrays.name_of(array.dtype) or str(array.dtype)
    return StoredTensor(name, array.shape, array.nbytes, ())


def _scalar(value: Any) -> Any:
    if type(value) is complex:
        return {"$complex": [canonical.float_text(value.real), canonical.float_text(value.imag)]}
    if type(value) is bytes:
        return {"$bytes": _base64(value)}
    name = arrays.name_of(value.dtype) or str(value.dtype)
    return {"$scalar": {"dtype": name, "data": arrays.scalar_bytes(value, name).hex()}}


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
