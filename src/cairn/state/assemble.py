"""Trees from what the encoder validated: texts joined from the leaves up, containers split where they grow too long.

The encoder leaves a *draft*: finished JSON texts, leaves whose blobs are not known yet, and containers of drafts.
Joining texts, rather than encoding the whole again at every level, keeps the work proportional to the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cairn.ids import BlobRef
from cairn.objects.cutting import cut
from cairn.state.leaf import Leaf
from cairn.state.nodes import FileRefs
from cairn.state.trees import PART_BYTES, SPLIT_BYTES, starts_part

PutTree = Callable[[bytes], BlobRef]
References = Mapping[Any, Sequence[BlobRef] | FileRefs]


@dataclass(frozen=True, slots=True)
class Fields:
    """A draft of a dict that stands for itself: names as they decide about parts, JSON texts of keys, values."""

    names: list[bytes]
    keys: list[bytes]
    values: list[Draft]


@dataclass(frozen=True, slots=True)
class Items:
    """A draft of a list, with the text around it when it is the inside of a tuple or a map."""

    before: bytes
    items: list[Draft]
    after: bytes


@dataclass(frozen=True, slots=True)
class Pair:
    """A draft of one entry of a map."""

    key: bytes
    value: Draft


@dataclass(frozen=True, slots=True)
class FileDraft:
    """A draft of a file whose slices are not known yet."""

    file: object
    mode: int


@dataclass(frozen=True, slots=True)
class Joined:
    """Drafts whose texts stand one after the other."""

    drafts: list[Draft]


Draft = bytes | Leaf | Fields | Items | Pair | FileDraft | Joined


def finish(draft: Draft, refs: References, put_tree: PutTree) -> bytes:
    """Spell a draft as JSON, writing the parts of containers that are too long to stand here."""
    if isinstance(draft, bytes):
        return draft
    if isinstance(draft, Leaf):
        return _leaf_text(draft, refs)
    if isinstance(draft, Fields):
        entries = [
            key + b":" + finish(value, refs, put_tree) for key, value in zip(draft.keys, draft.values, strict=True)
        ]
        return dict_text(entries, draft.names, put_tree)
    if isinstance(draft, Items):
        inner = list_text([finish(item, refs, put_tree) for item in draft.items], put_tree)
        return draft.before + inner + draft.after
    if isinstance(draft, Joined):
        return b"".join([finish(inner, refs, put_tree) for inner in draft.drafts])
    if isinstance(draft, FileDraft):
        return _file_text(draft, refs, put_tree)
    return b"[" + draft.key + b"," + finish(draft.value, refs, put_tree) + b"]"


def dict_text(entries: list[bytes], names: Sequence[bytes], put_tree: PutTree) -> bytes:
    """Spell a dict of finished entries."""
    if _joined_bytes(entries) <= SPLIT_BYTES:
        return b"{" + b",".join(entries) + b"}"
    parts = [put_tree(b"{" + b",".join(run) + b"}") for run in _runs(entries, names)]
    return b'{"$dict":' + list_text([ref_text(part) for part in parts], put_tree) + b"}"


def list_text(entries: list[bytes], put_tree: PutTree) -> bytes:
    """Spell a list of finished entries."""
    if _joined_bytes(entries) <= SPLIT_BYTES:
        return b"[" + b",".join(entries) + b"]"
    names = [b"%d" % place for place in range(len(entries))]
    parts = [put_tree(b"[" + b",".join(run) + b"]") for run in _runs(entries, names)]
    return b'{"$list":' + list_text([ref_text(part) for part in parts], put_tree) + b"}"


def ref_text(ref: BlobRef) -> bytes:
    """Spell a reference to a blob."""
    return b'["%s",%d]' % (ref.id.encode(), ref.size)


def _joined_bytes(entries: list[bytes]) -> int:
    return sum(map(len, entries)) + max(len(entries) - 1, 0) + 2


def _runs(entries: list[bytes], names: Sequence[bytes]) -> list[list[bytes]]:
    runs: list[list[bytes]] = [[]]
    size = 1
    for entry, name in zip(entries, names, strict=True):
        if runs[-1] and (size + 1 + len(entry) > PART_BYTES or starts_part(name)):
            runs.append([])
            size = 1
        runs[-1].append(entry)
        size += 1 + len(entry)
    return runs


def _leaf_text(leaf: Leaf, refs: References) -> bytes:
    found = refs[leaf]
    if isinstance(found, FileRefs) or [ref.size for ref in found] != [end - start for start, end in cut(leaf.nbytes)]:
        raise ValueError(f"{leaf.path}: the blobs given for {leaf.nbytes} bytes are not the pieces of cut()")
    return leaf.before + b"[" + b",".join([ref_text(ref) for ref in found]) + b"]" + leaf.after


def _file_text(draft: FileDraft, refs: References, put_tree: PutTree) -> bytes:
    filed = refs[draft.file]
    if not isinstance(filed, FileRefs):
        raise TypeError(f"a file was stored as {filed!r:.60}")
    head = f'{{"$file":{{"size":{filed.size},"mode":{draft.mode},"hash":"{filed.hash}","rest":['.encode()
    rest = b",".join([ref_text(ref) for ref in filed.rest])
    entries = [b"%d" % part.size if part.blob is None else ref_text(part.blob) for part in filed.slices]
    return head + rest + b'],"slices":' + list_text(entries, put_tree) + b"}}"
