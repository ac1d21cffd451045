"""The new blobs of one component: few are shared with the rest of the commit, many get packs of their own.

Blobs are held until 16 MiB of them are known. From then on they stream into packs of this component alone, which a
later drop can remove whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cairn.ids import BlobRef
from cairn.objects.pack import Header
from cairn.objects.writer import NewBlob, PackWriter, private

OWN_PACK_BYTES = 16 << 20
"""From this many new bytes on a component gets packs of its own."""


class Packs(Protocol):
    """Where packs are started, and told of when they are done."""

    def start_pack(self, blobs: int) -> PackWriter:
        """Start a pack of about this many blobs."""

    def wrote(self, header: Header) -> None:
        """Take note of a pack that is in place."""


class Gather:
    """Collects the new blobs of a component of about so many pieces."""

    def __init__(self, packs: Packs, pieces: int) -> None:
        self._packs = packs
        self._pieces = pieces
        self._seen = 0
        self._new = 0
        self._bytes = 0
        self._writer: PackWriter | None = None
        self._copied: list[NewBlob] = []
        self.expects_new = False
        """Whether the last piece was new: then the next one will be, more often than not."""
        self.pending: list[tuple[int, NewBlob]] = []
        """Blobs that no pack has yet, with the size of their elements."""

    def expect(self, pieces: int) -> None:
        """Learn of more pieces to come."""
        self._pieces += pieces

    def passed(self, *, known: bool) -> None:
        """Count a piece."""
        self._seen += 1
        self.expects_new = not known

    def add(self, itemsize: int, blob: NewBlob) -> None:
        """Take a new blob, whose bytes nobody changes."""
        if self._writer is None:
            self._hold(itemsize, blob)
        else:
            self._room(blob.ref.size).add(blob)
            self._new += 1

    def copy(self, parts: Sequence[memoryview], threads: int | None) -> list[BlobRef]:
        """Copy bytes that somebody may be changing, and hash the copies; `keep` or `discard` them all next."""
        size = sum(part.nbytes for part in parts)
        if self._writer is None and self._bytes + size < OWN_PACK_BYTES:
            self._copied = [private(part, threads) for part in parts]
            return [blob.ref for blob in self._copied]
        self._begin()
        return self._room(size, len(parts)).copy(parts, threads)

    def keep(self, itemsizes: Sequence[int]) -> None:
        """Take what was copied as new blobs."""
        if self._writer is None:
            for itemsize, blob in zip(itemsizes, self._copied, strict=True):
                self._hold(itemsize, blob)
        else:
            self._writer.keep()
            self._new += len(itemsizes)
        self._copied = []

    def discard(self) -> None:
        """Forget what was copied."""
        self._copied = []
        if self._writer is not None:
            self._writer.discard()

    def finish(self) -> list[tuple[int, NewBlob]]:
        """Finish the component's own packs; return the blobs that are to share a pack with others."""
        if self._writer is not None:
            self._close()
        return self.pending

    def abandon(self) -> None:
        """Remove what was written and has no name yet."""
        if self._writer is not None:
            self._writer.abandon()

    def _hold(self, itemsize: int, blob: NewBlob) -> None:
        self._new += 1
        self._bytes += blob.ref.size
        self.pending.append((itemsize, blob))
        if self._bytes >= OWN_PACK_BYTES:
            self._begin()

    def _begin(self) -> None:
        """Let what is pending go into a pack of this component alone."""
        for _, held in self.pending:
            self._room(held.ref.size).add(held)
        self.pending = []

    def _room(self, size: int, blobs: int = 1) -> PackWriter:
        """A pack that has room for so many blobs, of this size together."""
        if self._writer is not None and not self._writer.has_room(size, blobs):
            self._close()
        if self._writer is None:
            self._writer = self._packs.start_pack(self._expected() + blobs)
        return self._writer

    def _expected(self) -> int:
        """How many blobs the next pack's header should have room for; a pack that is full is followed by another."""
        share = min(1.0, 1.25 * self._new / max(self._seen, 1))
        left = int(max(0, self._pieces - self._seen) * share)
        # Where more comes than anybody foresaw, each pack is larger than the one before.
        return len(self.pending) + 64 + max(left, self._new // 4)

    def _close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            if writer.is_empty:
                writer.abandon()
                return
            try:
                header = writer.finish()
            except BaseException:
                writer.abandon()
                raise
            self._packs.wrote(header)
