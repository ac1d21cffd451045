"""What is worth sharing inside a zip archive: torch's storages, numpy's arrays, and any large member.

torch's `PyTorchStreamWriter` keeps everything under one folder: `data.pkl` (and, for TorchScript, `constants.pkl`) and
the storages, one stored member each, in `data/`, `constants/` or `tensors/`. numpy's `savez` keeps one `.npy` file a
member. Stored members are the bytes that were saved; compressed ones are taken as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.files.formats import npy, zips
from cairn.files.formats.model import MEMBER_BYTES, Slice, Source, TensorInfo, alignment

_TORCH = re.compile(rb"([^/]+)/(?:data|constants)\.pkl")
_STORAGE = re.compile(rb"(?:data|constants|tensors)/[^/]+")
_SUFFIX = b".npy"


@dataclass(frozen=True, slots=True)
class Archive:
    """The members of an archive, and whose archive it is; `prefix` is torch's folder, with its slash."""

    format: str
    members: Sequence[zips.Member]
    prefix: bytes = b""


def read(source: Source) -> Archive:
    """List the members and recognise the writer by their names. Raises Refused."""
    members = zips.members(source)
    prefixes = {match[1] + b"/" for member in members if (match := _TORCH.fullmatch(member.name))}
    if len(prefixes) == 1:
        prefix = prefixes.pop()
        if all(member.name.startswith(prefix) for member in members):
            return Archive("torch", members, prefix)
    if members and all(member.name.endswith(_SUFFIX) for member in members):
        return Archive("npz", members)
    return Archive("zip", members)


def cut(source: Source) -> tuple[str, tuple[Slice, ...]]:
    """Name the format and find what is worth sharing. Raises Refused."""
    archive = read(source)
    pieces = (_piece(source, archive, member) for member in archive.members)
    return archive.format, tuple(piece for piece in pieces if piece is not None)


def is_storage(archive: Archive, member: zips.Member) -> bool:
    """Whether a member of torch's archive is the bytes of a storage."""
    return member.stored and _STORAGE.fullmatch(member.name, len(archive.prefix)) is not None


def arrays(source: Source, archive: Archive) -> list[TensorInfo]:
    """Name the arrays of numpy's archive, those that are not compressed. Raises Refused."""
    found = []
    for member in archive.members:
        array = _array(source, member)
        if array is not None:
            found.append(npy.info(member.name.removesuffix(_SUFFIX).decode("utf-8", "backslashreplace"), array))
    return found


def _piece(source: Source, archive: Archive, member: zips.Member) -> Slice | None:
    size = member.stop - member.start
    if archive.format == "torch" and size and is_storage(archive, member):
        return Slice(member.start, member.stop, alignment(size))
    array = _array(source, member) if archive.format == "npz" else None
    if array is not None:
        return npy.piece(array) if array.stop > array.start else None
    return Slice(member.start, member.stop, 1) if size > MEMBER_BYTES else None


def _array(source: Source, member: zips.Member) -> npy.Array | None:
    """Read a member's array. Raises Refused for a broken one; an array of objects is a member like any other."""
    try:
        return npy.read(source, member.start, member.stop) if member.stored else None
    except npy.NoTensor:
        return None
