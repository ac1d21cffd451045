"""What a commit hands to the store: each value is hashed, and only what no pack has yet is written.

New blobs are copied before they are hashed for good and written from the copy, so an id is always of the bytes on
disk, whatever another thread does to the array. They are held until 16 MiB of one component are known to be new:
then that component streams into packs of its own, which a later drop can remove whole. Everything smaller, and all
trees, share one pack, so a commit costs a few files whatever the number of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cairn.errors import CairnError, Damaged
from cairn.ids import BlobRef, blob_id
from cairn.io.disk import Disk
from cairn.io.layout import Layout
from cairn.objects.blobs import Blobs
from cairn.objects.cutting import cut
from cairn.objects.pack import MAX_BLOBS, MAX_BYTES, head_bound
from cairn.objects.presence import secure
from cairn.objects.reader import read_header
from cairn.objects.writer import NewBlob, PackWriter, private, write_pack

OWN_PACK_BYTES = 16 << 20
"""From this many new bytes on a component gets packs of its own."""

_ATTEMPTS = 8

V = TypeVar("V", bound="Value")


class Value(Protocol):
    """A value of the state whose bytes become blobs."""

    @property
    def path(self) -> str:
        """The words for it in messages."""

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""

    @property
    def nbytes(self) -> int:
        """The size of all in bytes; never 0."""

    def data(self) -> memoryview:
        """Return the bytes, flat."""


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a blob's bytes can be had again."""

    value: Value | None
    start: int
    stop: int
    tree: bytes = b""

    def again(self, ref: BlobRef) -> NewBlob:
        blob = private(self.value.data()[self.start : self.stop] if self.value else memoryview(self.tree))
        if blob.ref != ref:
            raise CairnError(
                f"{self.value.path if self.value else 'a tree'} changed while it was being committed: expected bytes "
                f"that hash to {ref.id}, found {blob.ref.id}; nothing was published, commit again"
            )
        return blob


class Intake:
    """Takes in one commit's values and trees and puts what is new into packs."""

    def __init__(self, disk: Disk, layout: Layout, blobs: Blobs, write_id: str) -> None:
        self._disk, self._layout, self._blobs, self._write_id = disk, layout, blobs, write_id
        self._origins: dict[BlobRef, _Origin] = {}
        self._in_pack: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._shared: list[tuple[int, NewBlob]] = []
        self._trees: list[NewBlob] = []
        self._held: set[str] = set()
        self._serial = 0
        self.new_bytes = 0
        """Bytes of blobs that no pack had."""
        self.new_packs: list[str] = []

    def component(self, values: Sequence[V]) -> dict[V, tuple[BlobRef, ...]]:
        """Store the values of one component; return the blobs of each."""
        component = _Component(self, sum(len(cut(value.nbytes)) for value in values))
        refs: dict[V, tuple[BlobRef, ...]] = {}
        try:
            for value in sorted(values, key=lambda value: -value.itemsize):
                refs[value] = self._value(value, component)
            component.finish()
        except BaseException:
            component.abandon()
            raise
        return refs

    def tree(self, data: bytes) -> BlobRef:
        """Store a tree."""
        ref = BlobRef(blob_id(data), len(data))
        self._origins.setdefault(ref, _Origin(None, 0, 0, data))
        if not self._is_known(ref):
            blob = NewBlob(ref, memoryview(data))
            self._hold(blob)
            self._trees.append(blob)
        return ref

    def finish(self) -> list[str]:
        """Write what is left, then make sure that every needed pack is in place; return their ids.

        Raises CairnError when that cannot be reached.
        """
        self._write_shared(self._shared, self._trees)
        for _ in range(_ATTEMPTS):
            lost = secure(self._disk, self._layout, self._sizes)
            if not lost:
                return sorted(self._sizes)
            self._replace(lost)
        raise CairnError(
            f"packs of {self._layout.root} vanish while they are being written ({', '.join(sorted(lost))}); "
            f"nothing was published; find out what removes them, then commit again"
        )

    def _value(self, value: Value, component: _Component) -> tuple[BlobRef, ...]:
        view = value.data()
        refs = []
        for start, stop in cut(value.nbytes):
            component.passed()
            ref = BlobRef(blob_id(view[start:stop]), stop - start)
            if not self._is_known(ref):
                blob = private(view[start:stop])
                ref = blob.ref
                if not self._is_known(ref):
                    self._hold(blob)
                    component.add(value.itemsize, blob)
            self._origins.setdefault(ref, _Origin(value, start, stop))
            refs.append(ref)
        return tuple(refs)

    def _is_known(self, ref: BlobRef) -> bool:
        """Whether the blob needs no writing: held by this commit, or in a pack, which the commit then needs."""
        if ref.id in self._held or ref.id in self._in_pack:
            return True
        reader = self._blobs.find(ref.id, everywhere=False)
        if reader is None:
            return False
        if reader.header.places[ref.id].size != ref.size:
            raise Damaged(f"blob {ref.id} in {reader.path}: expected {ref.size} bytes, found another size")
        self._need(ref.id, reader.header.pack_id, reader.header.size)
        return True

    def _hold(self, blob: NewBlob) -> None:
        self._held.add(blob.ref.id)
        self.new_bytes += blob.ref.size

    def _need(self, blob: str, pack_id: str, size: int) -> None:
        self._in_pack[blob] = pack_id
        self._sizes[pack_id] = size

    def _write_shared(self, blobs: list[tuple[int, NewBlob]], trees: list[NewBlob]) -> None:
        ordered = [(blob, False) for _, blob in sorted(blobs, key=lambda item: -item[0])]
        ordered += [(tree, True) for tree in trees]
        for part in _packfuls(ordered):
            pack_id = write_pack(
                self._disk,
                self._layout,
                self._write_id,
                self._next_serial(),
                [blob for blob, is_tree in part if not is_tree],
                [blob for blob, is_tree in part if is_tree],
            )
            self._wrote(pack_id)

    def _wrote(self, pack_id: str) -> None:
        header = read_header(self._disk, self._layout.pack(pack_id), pack_id)
        self.new_packs.append(pack_id)
        for blob in header.places:
            self._need(blob, pack_id, header.size)

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _replace(self, lost: set[str]) -> None:
        """Find the blobs of lost packs elsewhere, or write them anew."""
        for pack_id in lost:
            self._blobs.forget(pack_id)
            del self._sizes[pack_id]
        gone = {blob for blob, pack_id in self._in_pack.items() if pack_id in lost}
        for blob in gone:
            del self._in_pack[blob]
        self._held -= gone
        wanted = [ref for ref in self._origins if ref.id in gone and not self._is_known(ref)]
        blobs = [
            (_itemsize(self._origins[ref]), self._origins[ref].again(ref)) for ref in wanted if self._has_value(ref)
        ]
        trees = [self._origins[ref].again(ref) for ref in wanted if not self._has_value(ref)]
        self._write_shared(blobs, trees)

    def _has_value(self, ref: BlobRef) -> bool:
        return self._origins[ref].value is not None


class _Component:
    """The new blobs of one component: few are shared with the rest, many get packs of their own."""

    def __init__(self, intake: Intake, pieces: int) -> None:
        self._intake = intake
        self._pieces = pieces
        self._seen = 0
        self._new = 0
        self._pending: list[tuple[int, NewBlob]] = []
        self._bytes = 0
        self._writer: PackWriter | None = None

    def passed(self) -> None:
        """Count a piece, new or known."""
        self._seen += 1

    def add(self, itemsize: int, blob: NewBlob) -> None:
        self._new += 1
        self._bytes += blob.ref.size
        self._pending.append((itemsize, blob))
        if self._writer is not None or self._bytes >= OWN_PACK_BYTES:
            self._stream()

    def finish(self) -> None:
        if self._writer is not None:
            self._close()
        else:
            self._intake._shared.extend(self._pending)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def _stream(self) -> None:
        for _, blob in self._pending:
            if self._writer is not None and not self._writer.has_room(blob.ref.size):
                self._close()
            if self._writer is None:
                intake = self._intake
                self._writer = PackWriter.for_up_to(
                    intake._disk, intake._layout, intake._write_id, intake._next_serial(), blobs=self._expected()
                )
            self._writer.add(blob)
        self._pending.clear()

    def _expected(self) -> int:
        """How many blobs the next pack's header should have room for; a pack that is full is followed by another."""
        share = min(1.0, 1.25 * self._new / max(self._seen, 1))
        return len(self._pending) + 64 + int((self._pieces - self._seen) * share)

    def _close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            self._intake._wrote(writer.finish())


def _packfuls(blobs: list[tuple[NewBlob, bool]]) -> Iterator[list[tuple[NewBlob, bool]]]:
    """Part blobs where one pack would grow beyond its caps."""
    part: list[tuple[NewBlob, bool]] = []
    size = 0
    for blob, is_tree in blobs:
        full = len(part) == MAX_BLOBS or size + blob.ref.size + head_bound(len(part) + 1) > MAX_BYTES
        if part and full:
            yield part
            part, size = [], 0
        part.append((blob, is_tree))
        size += blob.ref.size
    if part:
        yield part


def _itemsize(origin: _Origin) -> int:
    return origin.value.itemsize if origin.value else 0
