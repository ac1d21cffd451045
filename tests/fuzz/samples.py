"""Files of other tools, made by hand: the tests and the fuzzers start from these."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import save

from cairn.files.formats import Cut, ReadAt, Slice, TensorInfo, cut_file, tensors


def reader(data: bytes) -> ReadAt:
    """Reads as a file does: fewer bytes at the end, none behind it."""

    def read_at(offset: int, size: int) -> bytes:
        assert offset >= 0
        assert size >= 0
        return data[offset : offset + size]

    return read_at


def cut(data: bytes) -> Cut:
    """Cuts and checks what every cut promises."""
    found = cut_file(reader(data), len(data))
    assert found.format in ("safetensors", "torch", "npz", "zip", "npy", "gguf", "opaque")
    assert found.reason is None or (found.format == "opaque" and len(found.reason) < 1000)
    assert found.format != "opaque" or not found.slices
    at = 0
    for piece in found.slices:
        assert at <= piece.start < piece.stop <= len(data)
        assert piece.itemsize >= 1
        assert (piece.stop - piece.start) % piece.itemsize == 0
        at = piece.stop
    return found


def names(data: bytes) -> list[TensorInfo]:
    """Names the tensors and checks what every answer promises."""
    found = tensors(reader(data), len(data))
    for tensor in found:
        assert 0 <= tensor.start <= tensor.stop <= len(data)
        assert tensor.strides is None or len(tensor.strides) == len(tensor.shape)
    return found


def pieces(data: bytes) -> list[bytes]:
    """The bytes of the slices."""
    return [data[piece.start : piece.stop] for piece in cut(data).slices]


def safetensors_file(header: str | bytes | dict[str, Any], data: bytes = b"") -> bytes:
    """Writes the length, the header as it is given, and the data."""
    if isinstance(header, dict):
        header = json.dumps(header)
    raw = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype: str, shape: Sequence[int], begin: int, end: int) -> dict[str, Any]:
    """One entry of a safetensors header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@dataclass
class Item:
    """A zip member to be written, and how it departs from a plain one."""

    name: str
    data: bytes = b""
    deflated: bool = False
    descriptor: str = ""
    """Empty, or the struct format of a data descriptor: `<4sIII` and its relatives."""
    wide: bool = False
    flags: int = 0
    extra: bytes = b""
    local_name: str | None = None
    local_method: int | None = None
    local_crc: int | None = None
    size: int | None = None
    """The size that the directory claims."""


def zip_file(items: Iterable[Item], *, comment: bytes = b"", wide: bool = False, gap: bytes = b"") -> bytes:
    """Writes an archive, member by member, then the directory and the end records."""
    out = io.BytesIO()
    entries = []
    for item in items:
        out.write(gap)
        entries.append(_write_member(out, item))
    directory, count = b"".join(entries), len(entries)
    start, size = out.tell(), len(directory)
    out.write(directory)
    if wide:
        at = out.tell()
        out.write(struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start))
        out.write(struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1))
        count, size, start = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF
    out.write(struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, size, start, len(comment)) + comment)
    return out.getvalue()


def _write_member(out: io.BytesIO, item: Item) -> bytes:
    """Writes one member and returns its entry of the directory."""
    packed = zlib.compress(item.data, 1)[2:-4] if item.deflated else item.data
    crc, method, at = zlib.crc32(item.data), 8 if item.deflated else 0, out.tell()
    flags = item.flags | (8 if item.descriptor else 0)
    size = len(item.data) if item.size is None else item.size
    packed_size = len(packed) if item.size is None else item.size
    local = (0, 0, 0) if item.descriptor else (crc if item.local_crc is None else item.local_crc, packed_size, size)
    extra = item.extra
    if item.wide:
        extra = struct.pack("<HHQQ", 1, 16, local[2], local[1]) + extra
        local = (local[0], 0xFFFFFFFF, 0xFFFFFFFF)
    name = (item.name if item.local_name is None else item.local_name).encode()
    local_method = method if item.local_method is None else item.local_method
    out.write(struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 20, flags, local_method, 0, 0, *local, len(name), len(extra)))
    out.write(name + extra + packed)
    if item.descriptor:
        values = (b"PK\x07\x08", crc, packed_size, size) if "s" in item.descriptor else (crc, packed_size, size)
        out.write(struct.pack(item.descriptor, *values))
    name = item.name.encode()
    fields = (20, 20, flags, method, 0, 0, crc, packed_size, size, len(name), len(item.extra), 0, 0, 0, 0, at)
    return struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", *fields) + name + item.extra


@dataclass
class Stored:
    """A tensor in a torch file: the storage's type, key and elements, and the view of it."""

    storage: str
    key: str
    numel: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    metadata: dict[str, bool] | None = None
    dtype: str | None = None
    """For `_rebuild_tensor_v3`: the name of torch's type."""


@dataclass
class Parameter:
    """A tensor wrapped as torch wraps parameters."""

    tensor: Stored


def opcodes(value: Any) -> bytes:
    """Spells a value in the opcodes that torch writes, without memo: protocol 2."""
    return b"\x80\x02" + _spell(value) + b"."


def _spell(value: Any) -> bytes:
    spelled: dict[type, Callable[[Any], bytes]] = {
        type(None): lambda v: b"N",
        bool: lambda v: b"\x88" if v else b"\x89",
        int: lambda v: b"\x8a\x09" + v.to_bytes(9, "little", signed=True),
        float: lambda v: b"G" + struct.pack(">d", v),
        str: lambda v: b"X" + struct.pack("<I", len(v.encode())) + v.encode(),
        tuple: lambda v: b"(" + b"".join(map(_spell, v)) + b"t",
        list: lambda v: b"](" + b"".join(map(_spell, v)) + b"e",
        dict: lambda v: b"}(" + b"".join(_spell(k) + _spell(x) for k, x in v.items()) + b"u",
        Stored: _spell_tensor,
        Parameter: lambda v: (
            b"ctorch._utils\n_rebuild_parameter\n(" + _spell(v.tensor) + b"\x89" + _ordered_dict() + b"tR"
        ),
        bytes: lambda v: v,
    }
    return spelled[type(value)](value)


def _spell_tensor(tensor: Stored) -> bytes:
    module = "torch.storage" if tensor.storage == "UntypedStorage" else "torch"
    storage = f"c{module}\n{tensor.storage}\n".encode()
    key = b"(" + _spell("storage") + storage + _spell(tensor.key) + _spell("cpu") + _spell(tensor.numel) + b"tQ"
    view = _spell(tensor.offset) + _spell(tensor.shape) + _spell(tensor.strides) + b"\x89" + _ordered_dict()
    metadata = b"" if tensor.metadata is None else _spell(tensor.metadata)
    if tensor.dtype is not None:
        return b"ctorch._utils\n_rebuild_tensor_v3\n(" + key + view + f"ctorch\n{tensor.dtype}\n".encode() + b"tR"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + key + view + metadata + b"tR"


def _ordered_dict() -> bytes:
    return b"ccollections\nOrderedDict\n)R"


def torch_file(value: Any, storages: dict[str, bytes], *, byteorder: str = "little", prefix: str = "model") -> bytes:
    """Writes an archive as torch does: stored members with descriptors, storages aligned to 64 bytes."""
    items = [Item(f"{prefix}/data.pkl", value if isinstance(value, bytes) else opcodes(value), descriptor="<4sIII")]
    items.append(Item(f"{prefix}/byteorder", byteorder.encode(), descriptor="<4sIII"))
    for key, data in storages.items():
        items.append(Item(f"{prefix}/data/{key}", data, descriptor="<4sIII", extra=b"FB\x08\x00" + bytes(8)))
    items.append(Item(f"{prefix}/version", b"3\n", descriptor="<4sIII"))
    return zip_file(items)


@dataclass
class Gguf:
    """A GGUF file to be written, and how it departs from a plain one."""

    tensors: Sequence[tuple[str, Sequence[int], int, int]]
    """Name, dimensions (fastest first), number of the type, offset."""
    data: bytes = b""
    values: bytes = b""
    """The spelled values of the header."""
    count: int = 0
    version: int = 3
    align: int = 32

    def file(self) -> bytes:
        """Writes the file."""
        start = b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), self.count) + self.values
        head = start + b"".join(
            gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
            for name, shape, kind, offset in self.tensors
        )
        return head + bytes(-len(head) % self.align) + self.data


def gguf_text(text: str) -> bytes:
    """Spells a text of GGUF."""
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(key: str, kind: int, value: bytes) -> bytes:
    """Spells a key, the number of a type and a value of GGUF."""
    return gguf_text(key) + struct.pack("<I", kind) + value


def npy_file(array: Any) -> bytes:
    """Writes one array as numpy does."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz_file(*, compressed: bool = False, **arrays: Any) -> bytes:
    """Writes arrays as numpy does."""
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def one_of_each() -> dict[str, bytes]:
    """A small sound file of every format that is cut."""
    arange = np.arange(12, dtype="<f4").reshape(3, 4)
    stored = Stored("FloatStorage", "0", 12, 0, (3, 4), (4, 1))
    value = {"w": stored, "nested": [(stored,), {5: Parameter(stored)}], "step": 3}
    text = gguf_value("tokens", 9, struct.pack("<IQ", 8, 2) + gguf_text("a") + gguf_text("bc"))
    return {
        "safetensors": save({"w": arange, "b": np.ones(3, "<f2")}, metadata={"format": "pt"}),
        "torch": torch_file(value, {"0": arange.tobytes()}),
        "npz": npz_file(w=arange, b=np.ones(3, "<f2")),
        "zip": zip_file([Item("a.txt", b"hello"), Item("b.bin", bytes(70_000), deflated=True), Item("c", wide=True)]),
        "npy": npy_file(arange),
        "gguf": Gguf([("w", (4, 3), 0, 0), ("q", (32,), 8, 64)], bytes(64 + 34), text, 1).file(),
    }


def whole(found: Sequence[Slice]) -> list[tuple[int, int, int]]:
    """Slices as tuples, to compare."""
    return [(piece.start, piece.stop, piece.itemsize) for piece in found]
