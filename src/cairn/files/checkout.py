"""A commit as files.

A folder comes back as it was. Other components become `<component>.safetensors` and `<component>.json`, for plain
tools to read; one without tensors has no safetensors file, and a tie stands in the metadata: name of the tied tensor
to `ALIAS(<name>)`; folders and files inside it stand in `<component>.files`. A commit of one folder is that folder;
beside other components a folder stands under its own name.

Everything is written into a new folder beside the target, made durable, and put in the target's place by one rename. So
nothing is written through a link that stood there, the target holds exactly the committed files, and a checkout that
is cut short leaves the target as it was.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from cairn.files.place import put_in_place
from cairn.files.plain import Plain, take_apart
from cairn.files.pour import Pour, Tap, write_file
from cairn.files.restore import fill
from cairn.files.scan import files_of
from cairn.io.disk import Disk
from cairn.state.nodes import Folder


def write(disk: Disk, state: Mapping[str, object], target: Path, *, force: bool, store: Path, tap: Tap) -> list[Path]:
    """Write components; return the files and folders at the top. Raises Conflict for a folder in use unless `force`.

    With `force` what stood in the target is gone afterwards. Raises Damaged for bytes that are wrong.
    """
    put_in_place(disk, target, lambda folder: _fill(disk, state, folder, tap), force=force, store=store)
    return [target / name for name in disk.names(target)]


def weigh(state: Mapping[str, object]) -> int:
    """Count the bytes of the files and tensors that `write` writes."""
    total = 0
    for component in state.values():
        plain = Plain(files={"": component}) if isinstance(component, Folder) else take_apart(component)
        total += sum(tensor.nbytes for tensor in plain.tensors)
        total += sum(file.size for entry in plain.files.values() for file in files_of(entry))
    return total


def _fill(disk: Disk, state: Mapping[str, object], folder: Path, tap: Tap) -> None:
    only = next(iter(state.values())) if len(state) == 1 else None
    if isinstance(only, Folder):
        fill(disk, only, folder, tap)
        return
    for name, component in state.items():
        if isinstance(component, Folder):
            disk.make_folder(folder / name, sync=False)
            fill(disk, component, folder / name, tap)
        else:
            _write_plain(disk, take_apart(component), folder, name, tap)
    disk.sync_folder(folder)


def _write_plain(disk: Disk, plain: Plain, folder: Path, name: str, tap: Tap) -> None:
    if plain.tensors:
        write_file(disk, folder / f"{name}.safetensors", 0o644, tap, partial(_tensors, plain, tap), sync=True)
    write_file(disk, folder / f"{name}.json", 0o644, tap, partial(_values, plain), sync=True)
    if plain.files:
        files = folder / f"{name}.files"
        disk.make_folder(files, sync=False)
        fill(disk, Folder(0o755, plain.files), files, tap)


def _values(plain: Plain, pour: Pour) -> bool:
    text = json.dumps(plain.value, ensure_ascii=False, indent=1, allow_nan=False)
    pour.put(memoryview(text.encode() + b"\n"))
    return True


def _tensors(plain: Plain, tap: Tap, pour: Pour) -> bool:
    """Write a safetensors file: header, then the tensors, wide elements first so that each is aligned."""
    ordered = sorted(plain.tensors, key=lambda tensor: -tensor.itemsize)
    header: dict[str, object] = {}
    if plain.ties:
        header["__metadata__"] = {name: f"ALIAS({first})" for name, first in plain.ties.items()}
    offset = 0
    for tensor in ordered:
        end = offset + tensor.nbytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    pour.put(memoryview(struct.pack("<Q", len(text)) + text))
    return all(map(pour.put_blob, tap.ahead([ref for tensor in ordered for ref in tensor.blobs])))
