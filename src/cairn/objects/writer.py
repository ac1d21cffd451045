"""Writing one pack: data first, header last, then durable, then named.

The file has no header until everything else is in it, so a pack that was cut short is never taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.ids import BlobRef, blob_id, blob_id_of
from cairn.io.disk import Disk
from cairn.io.layout import Layout
from cairn.io.stream import Stream
from cairn.objects.pack import MAX_BLOBS, MAX_BYTES, Header, encode_header, head_bound, places


@dataclass(frozen=True, slots=True)
class NewBlob:
    """Bytes that this process alone can change, with their id."""

    ref: BlobRef
    data: memoryview


def private(data: memoryview, threads: int | None = None) -> NewBlob:
    """Copy bytes that another thread may be changing, and hash the copy: the id is of the very bytes written."""
    copy = memoryview(bytes(data))
    return NewBlob(BlobRef(blob_id(copy, threads), copy.nbytes), copy)


class PackWriter:
    """Streams blobs into a pack whose number of blobs is known only roughly."""

    def __init__(
        self, disk: Disk, layout: Layout, write_id: str, serial: int, *, head: int, blobs: int = MAX_BLOBS
    ) -> None:
        self._disk, self._layout = disk, layout
        self._most = blobs
        self._write_id, self._serial, self._head = write_id, serial, head
        self._blobs: list[BlobRef] = []
        self._copied: list[BlobRef] = []
        self._trees = 0
        self.bytes = head
        disk.make_folder(layout.tmp)
        self._tmp = layout.temporary(write_id, f"pack-{serial}")
        self._file = disk.create(self._tmp)
        self._stream = Stream(self._file, head)

    @classmethod
    def for_up_to(cls, disk: Disk, layout: Layout, write_id: str, serial: int, *, blobs: int) -> PackWriter:
        """Start a pack of at most this many blobs."""
        most = min(blobs, MAX_BLOBS)
        return cls(disk, layout, write_id, serial, head=head_bound(most), blobs=most)

    def has_room(self, size: int, blobs: int = 1) -> bool:
        """Whether so many blobs, of this size together, still fit."""
        return len(self._blobs) + blobs <= self._most and self.bytes + size <= MAX_BYTES

    def add(self, blob: NewBlob, *, is_tree: bool = False) -> None:
        """Append a blob; trees come last. Its bytes must stay until the pack is finished."""
        self._stream.write(blob.data)
        self._note(blob.ref, is_tree)

    def copy(self, parts: Sequence[memoryview], threads: int | None) -> list[BlobRef]:
        """Copy bytes that somebody may be changing to where they are written from, and hash the copies.

        They become blobs of the pack by `keep`; `discard` takes them back.
        """
        self._copied = [BlobRef(blob_id_of(self._stream.put(part), threads), part.nbytes) for part in parts]
        return self._copied

    def keep(self) -> None:
        """Append what was copied."""
        self._stream.keep()
        for ref in self._copied:
            self._note(ref, False)

    def discard(self) -> None:
        """Take back what was copied."""
        self._stream.discard()

    @property
    def is_empty(self) -> bool:
        """Whether no blob was added."""
        return not self._blobs

    def finish(self) -> Header:
        """Write the header, make the pack durable and give it its name.

        The name is made durable by `presence.secure`, before anything needs it.
        """
        self._stream.finish()
        pack_id, head = encode_header(
            self._blobs, trees=self._trees, write_id=self._write_id, serial=self._serial, reserved=self._head
        )
        self._file.write_at(0, head)
        self._file.sync()
        self._file.close()
        target = self._layout.pack(pack_id)
        self._disk.make_folder(self._layout.packs)
        self._disk.make_folder(target.parent, sync=False)
        self._disk.rename(self._tmp, target)
        return Header(pack_id, self._write_id, self.bytes, places(self._blobs, self._head, self._trees))

    def abandon(self) -> None:
        """Remove what was written."""
        self._stream.abandon()
        self._file.close()
        self._disk.unlink(self._tmp)

    def _note(self, ref: BlobRef, is_tree: bool) -> None:
        self._blobs.append(ref)
        self._trees += is_tree
        self.bytes += ref.size


def write_pack(
    disk: Disk, layout: Layout, write_id: str, serial: int, blobs: list[NewBlob], trees: list[NewBlob]
) -> Header:
    """Write a pack whose blobs are all known, with a header of exactly its size."""
    refs = [blob.ref for blob in (*blobs, *trees)]
    _, head = encode_header(refs, trees=len(trees), write_id=write_id, serial=serial)
    writer = PackWriter(disk, layout, write_id, serial, head=len(head))
    try:
        for blob in blobs:
            writer.add(blob)
        for tree in trees:
            writer.add(tree, is_tree=True)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
