"""A commit of live state as files: `<component>.safetensors` and `<component>.json`, which plain tools read.

Every file is written beside its place, made durable and renamed, so a file that is there is whole. A component without
tensors has no safetensors file. A tie stands in the metadata: name of the tied tensor to `ALIAS(<name>)`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cairn.errors import Conflict
from cairn.files.plain import Plain, PlainTensor, take_apart
from cairn.io.disk import Disk, NewFile
from cairn.state import arrays


def write(disk: Disk, state: Mapping[str, object], target: Path, *, force: bool) -> list[Path]:
    """Write components into a folder; return the files in order. Raises Conflict for a folder in use unless `force`.

    With `force` files of the same names are replaced and others are left alone.
    """
    if target.exists() and not target.is_dir():
        raise Conflict(f"{target}: expected a folder to write to, found a file; choose another place")
    if disk.names(target) and not force:
        raise Conflict(f"{target}: expected a new or empty folder, found files; choose another place or use --force")
    for folder in reversed((target, *target.parents)):
        disk.make_folder(folder)
    written = []
    for name, component in state.items():
        plain = take_apart(component)
        tensors, values = target / f"{name}.safetensors", target / f"{name}.json"
        if plain.tensors:
            written.append(_write_file(disk, tensors, partial(_tensors, plain)))
        elif disk.size(tensors) is not None:
            disk.unlink(tensors)
        written.append(_write_file(disk, values, partial(_values, plain)))
    disk.sync_folder(target)
    return written


def _write_file(disk: Disk, path: Path, fill: Callable[[NewFile], None]) -> Path:
    tmp = path.with_name(f".{path.name}.{disk.new_id()}.tmp")
    file = disk.create(tmp, 0o644)
    try:
        fill(file)
        file.sync()
        file.close()
        disk.rename(tmp, path)
    except BaseException:
        file.close()
        disk.unlink(tmp)
        raise
    return path


def _values(plain: Plain, file: NewFile) -> None:
    text = json.dumps(plain.value, ensure_ascii=False, indent=1, allow_nan=False)
    file.write(text.encode() + b"\n")


def _tensors(plain: Plain, file: NewFile) -> None:
    """Write a safetensors file: header, then the tensors, wide elements first so that each is aligned."""
    ordered = sorted(plain.tensors, key=lambda tensor: -tensor.array.dtype.itemsize)
    header: dict[str, object] = {}
    if plain.ties:
        header["__metadata__"] = {name: f"ALIAS({first})" for name, first in plain.ties.items()}
    offset = 0
    for tensor in ordered:
        end = offset + tensor.array.nbytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for tensor in ordered:
        if tensor.array.nbytes:
            file.write(_bytes(tensor))


def _bytes(tensor: PlainTensor) -> memoryview:
    return arrays.array_bytes(tensor.array, arrays.name_of(tensor.array.dtype) or tensor.dtype)
