"""Looking at a store around cairn: which files there are, what is in them, and changing them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from blake3 import blake3

DERIVED = ("index.sqlite", "leases", "reserve", "tmp")
"""What may change or go without any loss."""


def files(root: Path) -> dict[str, bytes]:
    """Return the files of a store by their path within it, without what is derived."""
    found = [path for path in sorted(root.rglob("*")) if path.is_file()]
    names = {str(path.relative_to(root)): path for path in found}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(DERIVED)}


def listing(root: Path) -> dict[str, tuple[int, int, int, int]]:
    """Return mode, size, time and inode of everything in a folder, to see whether anything was touched."""
    found = {}
    for path in (root, *sorted(root.rglob("*"))):
        stat = path.lstat()
        found[str(path.relative_to(root))] = (stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return found


def write(path: Path, data: bytes) -> None:
    """Put other bytes into a file, which cairn leaves read-only."""
    path.chmod(0o644)
    path.write_bytes(data)


def packs(root: Path) -> list[Path]:
    """Return the packs of a store."""
    return sorted(root.glob("packs/*/*.safetensors"))


def head(pack: Path) -> tuple[dict[str, str], dict[str, tuple[int, int]], int]:
    """Read a pack as the format says: metadata, offset in the file and size of each blob, and where the data begins."""
    data = pack.read_bytes()
    length = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:length])
    metadata = header.pop("__metadata__")
    places = {}
    for blob, entry in header.items():
        start, end = entry["data_offsets"]
        places[blob] = (length + start, end - start)
    return metadata, places, length


def entry(root: Path, log: str, seq: int) -> dict[str, Any]:
    """Return what an entry says; `log` is like `runs/main`."""
    document: dict[str, Any] = json.loads((root / log / f"{seq:08d}.json").read_bytes())
    return document


def seal(document: dict[str, Any]) -> bytes:
    """Spell an entry with a new seal, as somebody would who forges one."""
    body = {name: value for name, value in document.items() if name != "blake3"}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()[:-1]
    return text + b',"blake3":"' + blake3(text).hexdigest().encode() + b'"}\n'
