"""The nodes of files, folders and links, read from JSON.

`{"$file":{"size":n,"mode":m,"hash":"<id>","rest":[…],"slices":[…]}}`: the bytes of the slices, one after the other,
are the file, and `hash` is its BLAKE3. A slice is a blob, or the number of bytes that come next from `rest`, the blobs
of which hold everything that is in no blob of its own. `{"$dir":{"mode":m,"entries":…}}` has the entries of a folder by
name as a dict, with bytes for names that are no UTF-8, sorted by the bytes of the names. `{"$link":…}` has a link's
text, or `{"bytes":"<hex>"}` where that is no UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cairn.ids import BlobRef, is_id
from cairn.objects.cutting import cut
from cairn.state.basics import Body, Malformed, members, parse_ref, parse_refs
from cairn.state.nodes import MAX_MODE, MAX_NAME_BYTES, FileRefs, Link, Name, Slice, name_bytes, name_of
from cairn.state.trees import MAX_DATA_BYTES


@dataclass(frozen=True, slots=True)
class FileNode:
    """A file, its slices not yet gathered."""

    size: int
    mode: int
    hash: str
    rest: tuple[BlobRef, ...]
    slices: Body


def parse_file(raw: Any) -> FileNode:
    """Read a file. Raises Malformed."""
    size, mode, file_hash, rest, slices = members(raw, "size", "mode", "hash", "rest", "slices")
    if type(size) is not int or not 0 <= size <= MAX_DATA_BYTES:
        raise Malformed(f"expected the size of a file, found {size!r:.60}")
    if not is_id(file_hash):
        raise Malformed(f"expected the BLAKE3 of a file, found {file_hash!r:.80}")
    refs = parse_refs(rest)
    if [ref.size for ref in refs] != [end - start for start, end in cut(sum(ref.size for ref in refs))]:
        raise Malformed("expected the rest of a file in the pieces that its length asks for, found others")
    if type(slices) is list:
        body = Body("list", "items", slices, False)
    else:
        body = Body("list", "items", members(slices, "$list")[0], True)
    return FileNode(size, _mode(mode), file_hash, refs, body)


def gather(node: FileNode, entries: list[Any]) -> FileRefs:
    """Put a file together from the entries of its slices. Raises Malformed when they do not make up the file."""
    slices: list[Slice] = []
    rest = 0
    for entry in entries:
        if type(entry) is int:
            if entry < 1 or (slices and slices[-1].blob is None):
                raise Malformed(f"expected runs of rest between blobs, found {entry!r:.60}")
            rest += entry
            slices.append(Slice(entry, None))
        else:
            ref = parse_ref(entry)
            slices.append(Slice(ref.size, ref))
    if rest != sum(ref.size for ref in node.rest):
        raise Malformed(f"expected {sum(ref.size for ref in node.rest)} bytes of rest in the slices, found {rest}")
    if sum(part.size for part in slices) != node.size:
        raise Malformed(f"expected slices of {node.size} bytes, found {sum(part.size for part in slices)}")
    return FileRefs(node.size, node.hash, node.rest, tuple(slices))


def parse_folder(raw: Any, parse: Callable[[Any], object]) -> Body:
    """Read a folder. Raises Malformed."""
    mode, entries = members(raw, "mode", "entries")
    inner = parse(entries)
    if not isinstance(inner, Body) or inner.kind != "dict":
        raise Malformed(f"expected the entries of a folder as a dict, found {entries!r:.60}")
    return Body("folder", inner.shape, inner.raw, inner.parts, _mode(mode))


def check_names(keys: Sequence[object]) -> None:
    """Raise Malformed for names that no file system has, or that do not come in the order of their bytes."""
    before = b""
    for key in keys:
        if not isinstance(key, str | bytes) or (isinstance(key, bytes) and isinstance(name_of(key), str)):
            raise Malformed(f"expected names as text, or as bytes where they are none, found {key!r:.60}")
        raw = name_bytes(key)
        if not 0 < len(raw) <= MAX_NAME_BYTES or b"/" in raw or b"\0" in raw or raw in (b".", b".."):
            raise Malformed(f"expected the name of a file, found {key!r:.60}")
        if raw <= before:
            raise Malformed(f"expected names in the order of their bytes, found {key!r:.60} after another")
        before = raw


def parse_link(raw: Any) -> Link:
    """Read a link. Raises Malformed."""
    target: Name = raw
    if type(raw) is not str:
        try:
            target = bytes.fromhex(members(raw, "bytes")[0])
        except (ValueError, TypeError):
            raise Malformed(f"expected the text of a link, found {raw!r:.60}") from None
        if isinstance(name_of(target), str) or raw != {"bytes": target.hex()}:
            raise Malformed(f"expected the text of a link as text, found {raw!r:.60}")
    raw_target = name_bytes(target)
    if not 0 < len(raw_target) <= 4096 or b"\0" in raw_target:
        raise Malformed(f"expected the text of a link, found {raw!r:.60}")
    return Link(target)


def _mode(raw: Any) -> int:
    if type(raw) is not int or not 0 <= raw <= MAX_MODE:
        raise Malformed(f"expected permission bits up to {MAX_MODE:#o}, found {raw!r:.60}")
    return raw
