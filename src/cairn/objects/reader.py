"""One open pack: its header, checked, and its blobs, checked when they are read."""

from __future__ import annotations

import errno
from pathlib import Path

from cairn.errors import Damaged
from cairn.ids import BlobRef, blob_id
from cairn.io.disk import Disk
from cairn.objects.pack import Header, decode_header, head_size


def read_header(disk: Disk, path: Path, pack_id: str | None) -> Header:
    """Read a pack's header. Raises Damaged when it is not what the pack's name says, FileNotFoundError when gone."""
    try:
        size = disk.size(path)
        if size is None:
            raise FileNotFoundError(path)
        head = disk.read_at(path, 0, min(size, 1 << 16))
        length = head_size(head[:8], size, f"pack {path}")
        if length > len(head):
            head += disk.read_at(path, len(head), length - len(head))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    return decode_header(head[:length], size, f"pack {path}", pack_id)


SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that say nothing about the file."""


class PackReader:
    """Reads blobs of one pack through a mapping that outlives the file's name.

    On a network file system a mapping would raise a bus error where a read raises an exception, so there bytes
    are read, not mapped. Raises FileNotFoundError when gc took the file away before its first read.
    """

    def __init__(
        self, disk: Disk, path: Path, pack_id: str, *, mapped: bool = True, header: Header | None = None
    ) -> None:
        """Open a pack; `header` is what is known to stand in it."""
        self.path = path
        self.header = header or read_header(disk, path, pack_id)
        self._disk = disk
        self._map: memoryview | None = None
        self._mapped = mapped

    def bytes_at(self, offset: int, size: int, *, mapped: bool | None = None) -> memoryview:
        """Return bytes of the file, unchecked. Raises Damaged when the file is shorter.

        Trees are read: a walk over thousands of packs must not keep a mapping of each. Where there is one, it is used:
        the file may have lost its name since.
        """
        try:
            if self._map is not None or (self._mapped if mapped is None else mapped):
                if self._map is None:
                    self._map = self._disk.map(self.path)
                view = self._map[offset : offset + size]
            else:
                view = memoryview(self._disk.read_at(self.path, offset, size))
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in SCARCE:
                raise
            raise _unreadable(self.path, error) from error
        if view.nbytes != size:
            raise Damaged(f"pack {self.path}: expected {size} bytes at {offset}, found {view.nbytes}")
        return view

    def read(self, ref: BlobRef) -> memoryview:
        """Return a blob's bytes after checking their hash. Raises Damaged."""
        place = self.header.places[ref.id]
        if place.size != ref.size:
            raise Damaged(f"blob {ref.id} in {self.path}: expected {ref.size} bytes, found {place.size}")
        view = self.bytes_at(place.offset, place.size, mapped=self._mapped and not place.is_tree)
        found = blob_id(view)
        if found != ref.id:
            raise Damaged(
                f"blob {ref.id} in {self.path}: expected bytes that hash to it, found {found}; "
                f"run `cairn verify` to see which steps it hits"
            )
        return view


def _unreadable(path: Path, error: OSError) -> Damaged:
    return Damaged(f"pack {path}: expected a file that can be read, found {error.strerror or error}")
