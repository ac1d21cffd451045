"""Named arrays to the bytes of a safetensors file, and back.

The format is three parts: the length of the header in 8 bytes, a JSON header that gives each tensor's type, shape and
place, and the data. It is written here rather than by the library for two reasons. The same state must give the same
bytes, and the library does not promise an order for its metadata; and an array that is not laid out in C order must
be written by its values, whatever its memory looks like. Reading is the library's work, which makes it
the judge of what is written here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from minitrain.errors import CheckpointError

TYPE_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}
ALIGNMENT = 8


def encode_tensors(tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Returns the file's bytes; they depend on names, values and metadata, not on order or memory layout."""
    # The widest types first keep every tensor aligned to its own size.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    parts: list[bytes] = []
    end = 0
    for name in order:
        array = tensors[name]
        if array.dtype.name not in TYPE_NAMES:
            raise CheckpointError(f"tensor {name} has type {array.dtype}, which a checkpoint cannot hold.")
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(order="C")
        start, end = end, end + len(data)
        header[name] = {
            "dtype": TYPE_NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def decode_tensors(data: bytes) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Returns the tensors and the metadata of a file's bytes."""
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise CheckpointError(f"the bytes are not a safetensors file: {error}.") from None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return tensors, header.get("__metadata__", {})
