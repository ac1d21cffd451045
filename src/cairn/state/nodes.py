"""Files, folders and links as values of a state.

A folder's entries are by name: str where the name is UTF-8, else the bytes that the file system has. Names are never
normalised. Modes are the nine permission bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cairn.ids import BlobRef

Name = str | bytes
MAX_NAME_BYTES = 255
MAX_MODE = 0o777


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of a file's bytes: one blob, or the next `size` bytes of the file's rest."""

    size: int
    blob: BlobRef | None


@dataclass(frozen=True, slots=True)
class FileRefs:
    """A file as it is stored: its slices, one after the other, are its bytes.

    `rest` holds, in order, the bytes that are in no blob of their own: headers, padding, small parts.
    """

    size: int
    hash: str
    rest: tuple[BlobRef, ...]
    slices: tuple[Slice, ...]

    @property
    def blobs(self) -> tuple[BlobRef, ...]:
        """All blobs of the file."""
        return (*self.rest, *(part.blob for part in self.slices if part.blob is not None))


@dataclass(frozen=True, slots=True, eq=False)
class NewFile:
    """A file that is being committed; two are the same only if they are one object.

    `bytes` is what reads it, which this layer hands through.
    """

    mode: int
    bytes: Any


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link: its text, whether or not anything is there."""

    target: Name


@dataclass(frozen=True, slots=True)
class Gone:
    """An entry of a folder that was dropped: its node is known, its bytes may be no more."""

    path: str
    part: str
    """The dropped part that it belongs to."""
    size: int
    """The bytes of a file; 0 for a folder or link."""
    raw: Any = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder: its entries by name, sorted by the bytes of the names."""

    mode: int
    entries: Mapping[Name, object]
    """NewFile, StoredFile, Link, Folder or Gone."""
    left_out: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The words for what was found on disk and is not in it."""


def name_bytes(name: Name) -> bytes:
    """The bytes of a name."""
    return name if isinstance(name, bytes) else name.encode()


def name_of(raw: bytes) -> Name:
    """A name as values have it: str where it is UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
