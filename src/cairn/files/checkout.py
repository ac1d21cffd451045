"""A commit as files.

A folder comes back as it was. Other components become `<component>.safetensors` and `<component>.json`, for plain
tools to read; one without tensors has no safetensors file, and a tie stands in the metadata: name of the tied tensor
to `ALIAS(<name>)`. A commit of one folder is that folder; beside other components a folder stands under its own name.

Everything is written into a new folder beside the target, made durable, and put in the target's place by one rename. So
nothing is written through a link that stood there, the target holds exactly the committed files, and a checkout that
is cut short leaves the target as it was.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cairn.errors import Conflict
from cairn.files.plain import Plain, take_apart
from cairn.files.restore import check_case, fill
from cairn.io.disk import Disk
from cairn.io.handles import NewFile
from cairn.state.nodes import Folder


def write(
    disk: Disk, state: Mapping[str, object], target: Path, *, force: bool, advance: Callable[[int], None]
) -> list[Path]:
    """Write components; return the files and folders at the top. Raises Conflict for a folder in use unless `force`.

    With `force` what stood in the target is gone afterwards. Raises Damaged for bytes that are wrong.
    """
    _check_target(disk, target, force=force)
    parent = target.absolute().parent
    for folder in reversed((parent, *parent.parents)):
        disk.make_folder(folder)
    beside = parent / f".{target.name}.{disk.new_id()}.checkout"
    disk.make_folder(beside)
    try:
        _fill(disk, state, beside, advance)
        disk.replace_folder(beside, target)
    except BaseException:
        if beside.exists():
            disk.remove_tree(beside)
        raise
    disk.sync_folder(parent)
    return [target / name for name in disk.names(target)]


def _check_target(disk: Disk, target: Path, *, force: bool) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise Conflict(f"{target}: expected a folder to write to, found something else; choose another place")
    if disk.names(target) and not force:
        raise Conflict(f"{target}: expected a new or empty folder, found files; choose another place or use --force")


def _fill(disk: Disk, state: Mapping[str, object], folder: Path, advance: Callable[[int], None]) -> None:
    only = next(iter(state.values())) if len(state) == 1 else None
    if isinstance(only, Folder):
        check_case(disk, only, folder)
        fill(disk, only, os.fsencode(folder), advance)
        return
    for name, component in state.items():
        if isinstance(component, Folder):
            inner = folder / name
            disk.make_folder(inner, sync=False)
            check_case(disk, component, inner)
            fill(disk, component, os.fsencode(inner), advance)
            continue
        plain = take_apart(component)
        if plain.tensors:
            _write_file(disk, folder / f"{name}.safetensors", partial(_tensors, plain, advance))
        _write_file(disk, folder / f"{name}.json", partial(_values, plain))
    disk.sync_folder(folder)


def _write_file(disk: Disk, path: Path, fill: Callable[[NewFile], None]) -> None:
    file = disk.create(path, 0o644)
    try:
        fill(file)
        file.sync()
    finally:
        file.close()


def _values(plain: Plain, file: NewFile) -> None:
    text = json.dumps(plain.value, ensure_ascii=False, indent=1, allow_nan=False)
    file.write(text.encode() + b"\n")


def _tensors(plain: Plain, advance: Callable[[int], None], file: NewFile) -> None:
    """Write a safetensors file: header, then the tensors, wide elements first so that each is aligned."""
    ordered = sorted(plain.tensors, key=lambda tensor: -tensor.itemsize)
    header: dict[str, object] = {}
    if plain.ties:
        header["__metadata__"] = {name: f"ALIAS({first})" for name, first in plain.ties.items()}
    offset = 0
    for tensor in ordered:
        end = offset + tensor.data.nbytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for tensor in ordered:
        if tensor.data.nbytes:
            file.write(tensor.data)
            advance(tensor.data.nbytes)
