"""What a commit hands to the store: everything is hashed, and only what no pack has yet is written.

New blobs are copied before they are hashed for good and written from the copy, so an id is always of the bytes on
disk, whatever another thread does to the array. Everything small, and all trees, share one pack, so a commit costs a
few files whatever the number of tensors; a component with much that is new gets packs of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence

from cairn.errors import CairnError, Damaged
from cairn.ids import BlobRef, blob_id
from cairn.io.disk import Disk
from cairn.io.layout import Layout
from cairn.objects.blobs import Blobs
from cairn.objects.cutting import cut
from cairn.objects.gather import Gather
from cairn.objects.pack import MAX_BLOBS, MAX_BYTES, Header, head_bound
from cairn.objects.pieces import Fetched, Origin, Piece, V, again, together
from cairn.objects.presence import secure
from cairn.objects.writer import NewBlob, PackWriter, write_pack

_ATTEMPTS = 8
_SHARED_BYTES = 64 << 20
"""From this many new bytes on, small components do not wait for the trees, which would have them all in memory."""


class Intake:
    """Takes in one commit's values and trees and puts what is new into packs.

    Several threads may `put` blobs of one component at the same time; each hashes its own. Without a write id it only
    counts: nothing is kept or written.
    """

    def __init__(
        self, disk: Disk, layout: Layout, blobs: Blobs, write_id: str | None, threads: int | None = None
    ) -> None:
        """Hash on so many cores, or on all."""
        self._threads = threads
        self._disk, self._layout, self._blobs = disk, layout, blobs
        self._write_id = write_id or ""
        self._counts = write_id is None
        self._origins: dict[BlobRef, Origin] = {}
        self._in_pack: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._shared: list[tuple[int, NewBlob]] = []
        self._trees: list[NewBlob] = []
        self._held: set[str] = set()
        self._serial = 0
        self._guard = threading.RLock()
        self.new_bytes = 0
        """Bytes of blobs that no pack had."""
        self.new_blobs = 0
        self.shared_bytes = 0
        """Bytes that needed no writing: in a blob that some pack had, or met before in this commit."""

    def component(self, values: Sequence[V]) -> dict[V, tuple[BlobRef, ...]]:
        """Store the values of one component; return the blobs of each."""
        refs: dict[V, tuple[BlobRef, ...]] = {}
        gather = self.gather(sum(len(cut(value.nbytes)) for value in values))
        try:
            for pieces, parts in together(values):
                for piece, ref in zip(pieces, self._take(pieces, parts, gather), strict=True):
                    refs[piece.value] = (*refs.get(piece.value, ()), ref)
                # Some may be copies, which go before the next are made.
                parts.clear()
            self.gathered(gather)
        except BaseException:
            gather.abandon()
            raise
        return refs

    def gather(self, pieces: int) -> Gather:
        """Begin a component of about so many pieces. End it with `gathered`, or with its own `abandon`."""
        return Gather(self, pieces)

    def gathered(self, gather: Gather) -> None:
        """End a component."""
        self._shared += gather.finish()
        if sum(blob.ref.size for _, blob in self._shared) >= _SHARED_BYTES:
            self._write_shared(self._shared, [])
            self._shared = []

    def put(
        self, gather: Gather, data: memoryview, itemsize: int, words: str, fetch: Callable[[], memoryview]
    ) -> BlobRef:
        """Store bytes that nobody changes as one blob; `fetch` returns them again."""
        ref = BlobRef(blob_id(data, self._threads), data.nbytes)
        with self._guard:
            if self._is_new(ref, gather) and not self._counts:
                gather.add(itemsize, NewBlob(ref, data))
            self._origins.setdefault(ref, Fetched(words, fetch, itemsize))
        return ref

    def tree(self, data: bytes) -> BlobRef:
        """Store a tree."""
        ref = BlobRef(blob_id(data), len(data))
        self._origins.setdefault(ref, Fetched("a tree", lambda: memoryview(data), 0, is_tree=True))
        if self._is_known(ref):
            self.shared_bytes += ref.size
        else:
            self._hold(ref)
            if not self._counts:
                self._trees.append(NewBlob(ref, memoryview(data)))
        return ref

    def finish(self) -> list[str]:
        """Write what is left, then make sure that every needed pack is in place; return their ids.

        Raises CairnError when that cannot be reached.
        """
        self._write_shared(self._shared, self._trees)
        for _ in range(_ATTEMPTS):
            lost = secure(self._disk, self._layout, self._blobs, self._sizes)
            if not lost:
                return sorted(self._sizes)
            self._replace(lost)
        raise CairnError(
            f"packs of {self._layout.root} vanish while they are being written ({', '.join(sorted(lost))}); "
            f"nothing was published; find out what removes them, then commit again"
        )

    def start_pack(self, blobs: int) -> PackWriter:
        """Start a pack of about this many blobs."""
        return PackWriter.for_up_to(self._disk, self._layout, self._write_id, self._next_serial(), blobs=blobs)

    def wrote(self, header: Header) -> None:
        """Take note of a pack that is in place."""
        self._blobs.remember(header)
        for blob in header.places:
            self._need(blob, header.pack_id, header.size)

    def _take(self, pieces: Sequence[Piece[V]], parts: Sequence[memoryview], gather: Gather) -> list[BlobRef]:
        """Store pieces of values: what is new is hashed where it is written from.

        The guess that all of them are new, like those before, saves hashing them twice.
        """
        guess = gather.expects_new and not self._counts and not pieces[0].value.is_private
        if guess:
            refs = gather.copy(parts, self._threads)
        else:
            refs = [BlobRef(blob_id(part, self._threads), part.nbytes) for part in parts]
        absent = self._blobs.absent([ref.id for ref in refs])
        if guess and self._are_all_new(refs, absent):
            for ref in refs:
                self._is_new(ref, gather, absent)
            gather.keep([piece.value.itemsize for piece in pieces])
        else:
            if guess:
                gather.discard()
            # One after the other: what was equal to a piece that is another by now has to be written itself.
            for number, piece in enumerate(pieces):
                if self._is_new(refs[number], gather, absent):
                    refs[number] = self._add_piece(piece, parts[number], refs[number], gather)
        for piece, ref in zip(pieces, refs, strict=True):
            self._origins.setdefault(ref, piece)
        return refs

    def _add_piece(self, piece: Piece[V], data: memoryview, ref: BlobRef, gather: Gather) -> BlobRef:
        """Store a piece that was found to be new; it may have changed since."""
        if piece.value.is_private or self._counts:
            if not self._counts:
                gather.add(piece.value.itemsize, NewBlob(ref, data))
            return ref
        found = gather.copy([data], self._threads)[0]
        if found != ref:
            self._forget(ref)
            if not self._is_new(found, gather):
                gather.discard()
                return found
        gather.keep([piece.value.itemsize])
        return found

    def _is_new(self, ref: BlobRef, gather: Gather, absent: Collection[str] = ()) -> bool:
        """Whether a blob has to be written; if so, it counts as held by this commit."""
        known = self._is_known(ref, absent)
        gather.passed(known=known)
        if known:
            self.shared_bytes += ref.size
        else:
            self._hold(ref)
        return not known

    def _are_all_new(self, refs: Sequence[BlobRef], absent: Collection[str]) -> bool:
        """Whether all of these blobs have to be written, and none is another."""
        return len(set(refs)) == len(refs) and not any(self._is_known(ref, absent) for ref in refs)

    def _forget(self, ref: BlobRef) -> None:
        self._held.discard(ref.id)
        self.new_bytes -= ref.size
        self.new_blobs -= 1

    def _is_known(self, ref: BlobRef, absent: Collection[str] = ()) -> bool:
        """Whether the blob needs no writing: held by this commit, or in a pack, which the commit then needs.

        Those in `absent` were looked for in packs already.
        """
        if ref.id in self._held or ref.id in self._in_pack:
            return True
        if ref.id in absent:
            return False
        reader = self._blobs.find(ref.id, everywhere=False)
        if reader is None:
            return False
        if reader.header.places[ref.id].size != ref.size:
            raise Damaged(f"blob {ref.id} in {reader.path}: expected {ref.size} bytes, found another size")
        self._need(ref.id, reader.header.pack_id, reader.header.size)
        return True

    def _hold(self, ref: BlobRef) -> None:
        self._held.add(ref.id)
        self.new_bytes += ref.size
        self.new_blobs += 1

    def _need(self, blob: str, pack_id: str, size: int) -> None:
        self._in_pack[blob] = pack_id
        self._sizes[pack_id] = size

    def _write_shared(self, blobs: list[tuple[int, NewBlob]], trees: list[NewBlob]) -> None:
        ordered = [(blob, False) for _, blob in sorted(blobs, key=lambda item: -item[0])]
        ordered += [(tree, True) for tree in trees]
        for part in _packfuls(ordered):
            header = write_pack(
                self._disk,
                self._layout,
                self._write_id,
                self._next_serial(),
                [blob for blob, is_tree in part if not is_tree],
                [blob for blob, is_tree in part if is_tree],
            )
            self.wrote(header)

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
        own = self._held & gone
        self._held -= gone
        wanted = {ref: origin for ref, origin in self._origins.items() if ref.id in gone and not self._is_known(ref)}
        self._held |= own
        for ref in wanted:
            if ref.id not in own:
                self._hold(ref)
                self.shared_bytes -= ref.size
        # Gathered, for it may be more than memory should hold.
        gather = self.gather(len(wanted))
        try:
            for ref, origin in wanted.items():
                if not origin.is_tree:
                    gather.add(origin.itemsize, again(origin, ref))
            shared = gather.finish()
        except BaseException:
            gather.abandon()
            raise
        self._write_shared(shared, [again(origin, ref) for ref, origin in wanted.items() if origin.is_tree])


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
