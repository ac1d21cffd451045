"""The example in `store/FORMAT.md`: its blocks, as the bytes of the golden store give them.

A block is fenced and stands under a comment that says what it shows. Nothing here is read with cairn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blake3 import blake3
from tests.cairn import folders

_BLOCK = re.compile(r"(<!-- example: (?P<words>[^>]*) -->\n)```\w*\n.*?```\n", re.DOTALL)


def render(page: str, root: Path) -> str:
    """Return a page with all its blocks as a store gives them."""
    return _BLOCK.sub(lambda match: match[1] + _block(match["words"].split(), root), page)


def words(page: str) -> list[str]:
    """Return what the blocks of a page show."""
    return [match["words"] for match in _BLOCK.finditer(page)]


def _block(words: list[str], root: Path) -> str:
    kind, name, *rest = words
    if kind == "file":
        return f"```json\n{(root / name).read_text()}```\n"
    if kind == "tree":
        return f"```json\n{_tree(root, name, rest[0])}\n```\n"
    return f"```console\n{_KINDS[kind](root, name, *map(int, rest))}\n```\n"


def _seal(root: Path, name: str) -> str:
    body = (root / name).read_bytes()[:-78]
    return f"$ head -c -78 {name} | b3sum --no-names\n{blake3(body).hexdigest()}"


def _commit(root: Path, name: str) -> str:
    data = (root / name).read_bytes()
    text = data[data.index(b'"commit":') + 9 : data.index(b',"packs"')]
    return blake3(text).hexdigest()


def _xxd(root: Path, name: str, start: int, stop: int) -> str:
    pack = _pack_of(root, _manifest(root, name))
    return f"$ xxd -l {stop} {pack.relative_to(root)}\n{_hex(pack.read_bytes()[:stop], start)}"


def _data(root: Path, name: str) -> str:
    pack = _pack_of(root, _manifest(root, name))
    start = folders.head(pack)[2] - 32
    return f"$ xxd -s {start} -l 144 {pack.relative_to(root)}\n{_hex(pack.read_bytes()[start : start + 144], start)}"


def _pack(root: Path, name: str) -> str:
    pack = _pack_of(root, _manifest(root, name))
    length = folders.head(pack)[2]
    lines = [f"$ od -An -t u8 -N 8 {pack.relative_to(root)}", f"{length - 8:21d}"]
    lines += [f"$ head -c {length} {pack.relative_to(root)} | b3sum --no-names"]
    return "\n".join([*lines, blake3(pack.read_bytes()[:length]).hexdigest()])


def _tree(root: Path, name: str, component: str) -> str:
    manifest = _manifest(root, name)
    text = _blob(root, manifest)
    if component != "manifest":
        text = _blob(root, json.loads(text)["components"][component][0])
    return text.decode()


def _manifest(root: Path, name: str) -> str:
    document: dict[str, Any] = json.loads((root / name).read_bytes().split(b"\n")[0])
    return str(document["commit"]["manifest"][0])


def _pack_of(root: Path, blob: str) -> Path:
    (found,) = [pack for pack in folders.packs(root) if blob in folders.head(pack)[1]]
    return found


def _blob(root: Path, blob: str) -> bytes:
    pack = _pack_of(root, blob)
    offset, size = folders.head(pack)[1][blob]
    return pack.read_bytes()[offset : offset + size]


def _hex(data: bytes, start: int) -> str:
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        pairs = " ".join(row[pair : pair + 2].hex() for pair in range(0, len(row), 2))
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start + at:08x}: {pairs:<39}  {text}")
    return "\n".join(lines)


_KINDS: dict[str, Callable[..., str]] = {"seal": _seal, "commit": _commit, "xxd": _xxd, "data": _data, "pack": _pack}
