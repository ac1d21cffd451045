"""Blobs by id: which pack holds one, and its bytes, checked.

A pack's own header decides where a blob is. The look-up goes from cheap to dear: packs that are open, the packs a
commit's entry names, the index, and at last a listing of all packs and the trash.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from cairn.errors import Damaged
from cairn.ids import BlobRef
from cairn.io.disk import Disk
from cairn.io.layout import Layout, Trashed, pack_id_of, trashed_of
from cairn.objects.index import Index
from cairn.objects.pack import Header
from cairn.objects.reader import PackReader, read_header

_LOOKS = 8


class Blobs:
    """The blobs of one store."""

    def __init__(self, disk: Disk, layout: Layout, index: Index, *, mapped: bool = True) -> None:
        self._disk, self._layout, self._index = disk, layout, index
        self.mapped = mapped
        """Whether packs are mapped; on a network file system they are read."""
        self.durable: set[str] = set()
        """Packs whose names survive a power cut: made so by this process, or by whoever published an entry that lists
        them. In the trash and back they stay so, since a move never leaves a file without a name."""
        self._readers: dict[str, PackReader] = {}
        self._gone: WeakValueDictionary[str, PackReader] = WeakValueDictionary()
        self._where: dict[str, str] = {}
        self._written: dict[str, Header] = {}
        self._bad: dict[str, set[str]] | None = None
        self._guard = threading.RLock()

    def read(self, ref: BlobRef) -> memoryview:
        """Return a blob's bytes after checking their hash. Raises Damaged when it is missing or wrong.

        With two copies in the store a wrong one is passed over.
        """
        return self._read(ref)[1]

    def peek(self, ref: BlobRef) -> memoryview:
        """Return a blob's bytes for one who copies them and checks the copy; if that is wrong, `read` may do better.

        Raises Damaged when it is missing.
        """
        reader = self.find(ref.id, everywhere=True)
        place = reader.header.places[ref.id] if reader is not None else None
        if reader is not None and place is not None and place.size == ref.size:
            with contextlib.suppress(Damaged, FileNotFoundError):
                return reader.bytes_at(place.offset, place.size)
        return self.read(ref)

    def ask_for(self, ref: BlobRef) -> None:
        """Have the system read a blob ahead, if it can."""
        reader = self.find(ref.id, everywhere=False)
        if reader is not None and ref.id in reader.header.places:
            with contextlib.suppress(OSError):
                self._disk.read_ahead(reader.path, reader.header.places[ref.id].offset, ref.size)

    def _read(self, ref: BlobRef) -> tuple[PackReader, memoryview]:
        """Return the bytes and the pack they were read from."""
        while (reader := self.find(ref.id, everywhere=True)) is not None:
            try:
                return reader, reader.read(ref)
            except FileNotFoundError:
                # Gone since its header was read: to the trash, or for good.
                self.forget(reader.header.pack_id)
            except Damaged:
                self.note_damage([(ref.id, reader.header.pack_id)])
                for other in self._others(ref.id, reader.header.pack_id):
                    with contextlib.suppress(Damaged, FileNotFoundError):
                        return other, other.read(ref)
                raise
        for gone in list(self._gone.values()):
            if ref.id in gone.header.places:
                with contextlib.suppress(FileNotFoundError):
                    return gone, gone.read(ref)
        raise Damaged(
            f"blob {ref.id}: expected {ref.size} bytes in some pack, found it in none{self._unreadable()}; "
            f"run `cairn verify` to see which steps it hits"
        )

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        """Return the concatenation of blobs, checked; no copy where they lie side by side in one pack."""
        found = [self._read(ref) for ref in refs]
        if len(found) == 1:
            return found[0][1]
        return self._joined(refs, [reader for reader, _ in found]) or memoryview(b"".join(view for _, view in found))

    def find(self, blob: str, *, everywhere: bool) -> PackReader | None:
        """Return an open pack whose header has the blob.

        `everywhere` also lists all packs and the trash. Without it, copies that were found to be wrong do not count,
        so that a commit of the right bytes writes them anew.
        """
        reader = self._readers.get(self._where.get(blob, "")) if everywhere else None
        if reader is not None:
            return reader
        with self._guard:
            bad = set() if everywhere else self._damage().get(blob, set())
            pack_id = self._where.get(blob)
            if pack_id is not None and pack_id not in bad:
                return self._readers[pack_id]
            self.fill_index()
            for pack_id in self._index.packs_with(blob):
                if pack_id not in bad and self._has(pack_id, blob):
                    return self._readers[pack_id]
            return self._look_everywhere(blob) if everywhere else None

    def absent(self, blobs: Sequence[str]) -> set[str]:
        """Return those of many blobs that `find` finds in no pack; the index is asked once for all."""
        with self._guard:
            unknown = [blob for blob in blobs if blob not in self._where]
            if not unknown:
                return set()
            self.fill_index()
            return set(unknown) - self._index.known(unknown)

    def note_damage(self, copies: Iterable[tuple[str, str]], *, all_there_is: bool = False) -> None:
        """Remember wrong copies, blob and pack: these beside those known, or instead of them."""
        found = list(copies)
        with self._guard:
            if all_there_is:
                self._bad = {}
                self._index.clear("damage")
            for blob, pack_id in found:
                self._damage().setdefault(blob, set()).add(pack_id)
            self._index.insert("damage", [{"blob": blob, "pack": pack_id} for blob, pack_id in found])

    def _damage(self) -> dict[str, set[str]]:
        if self._bad is None:
            self._bad = {}
            for blob, pack_id in self._index.damage():
                self._bad.setdefault(blob, set()).add(pack_id)
        return self._bad

    def fill_index(self) -> None:
        """Enter every pack in an index that knows nothing yet."""
        if not self._index.is_filled():
            self._index.fill(header for _, header in self.headers() if isinstance(header, Header))

    def prefer(self, pack_ids: Iterable[str]) -> None:
        """Open packs that are likely to be needed; those that are gone or unreadable are passed over."""
        with self._guard:
            for pack_id in pack_ids:
                self._open(pack_id)

    def hold(self, pack_ids: Iterable[str]) -> list[PackReader]:
        """Map packs, in the trash too; while they are held, `read` has their blobs, whatever becomes of their names."""
        held = []
        with self._guard:
            for pack_id in pack_ids:
                for _ in range(_LOOKS):
                    try:
                        reader = self._open(pack_id, trash=True)
                        if reader is not None:
                            reader.bytes_at(0, 0)
                            held.append(reader)
                        break
                    except FileNotFoundError:
                        self.forget(pack_id)
        return held

    def remember(self, header: Header) -> None:
        """Learn of a pack that this process just wrote, whose header need not be read."""
        self._written[header.pack_id] = header

    def header(self, pack_id: str) -> Header:
        """Return a pack's header. Raises Damaged, and FileNotFoundError when it is gone."""
        return self._written.get(pack_id) or read_header(self._disk, self._layout.pack(pack_id), pack_id)

    def forget(self, pack_id: str) -> None:
        """Close a pack that is no longer in the store, unless it is held. Views of it stay readable."""
        with self._guard:
            self._written.pop(pack_id, None)
            reader = self._readers.pop(pack_id, None)
            if reader is not None:
                self._gone[pack_id] = reader
                for blob in reader.header.places:
                    if self._where.get(blob) == pack_id:
                        del self._where[blob]

    def headers(self) -> Iterator[tuple[str, Header | Damaged]]:
        """Read the header of every pack that is in the store now: id, and header or what is wrong with it."""
        for pack_id in list_packs(self._disk, self._layout):
            try:
                yield pack_id, read_header(self._disk, self._layout.pack(pack_id), pack_id)
            except FileNotFoundError:
                continue
            except Damaged as error:
                yield pack_id, error

    def _unreadable(self) -> str:
        """The words for packs in which a blob may lie that is found in none."""
        bad = [str(self._layout.pack(pack_id)) for pack_id, header in self.headers() if isinstance(header, Damaged)]
        return f" that can be read, and these cannot: {', '.join(bad[:5])}" if bad else ""

    def _has(self, pack_id: str, blob: str) -> bool:
        reader = self._open(pack_id)
        return reader is not None and blob in reader.header.places

    def _open(self, pack_id: str, *, trash: bool = False) -> PackReader | None:
        reader = self._readers.get(pack_id)
        if reader is None:
            reader = self._try(self._layout.pack(pack_id), pack_id)
            if reader is None and trash:
                reader = self._from_trash(pack_id)
            if reader is not None:
                self._readers[pack_id] = reader
                for blob in reader.header.places:
                    self._where.setdefault(blob, pack_id)
        return reader

    def _try(self, path: Path, pack_id: str) -> PackReader | None:
        try:
            return PackReader(self._disk, path, pack_id, mapped=self.mapped, header=self._written.pop(pack_id, None))
        except (Damaged, OSError):
            return None

    def _from_trash(self, pack_id: str) -> PackReader | None:
        for item in list_trash(self._disk, self._layout):
            if item.pack_id == pack_id:
                return self._try(self._layout.trashed(item), pack_id)
        return None

    def _look_everywhere(self, blob: str) -> PackReader | None:
        """Open packs that the index did not name, then those in the trash, until one has the blob.

        A pack that goes to the trash or back meanwhile is in neither list, so both must come out the same twice.
        """
        before: object = None
        for _ in range(_LOOKS):
            packs = list_packs(self._disk, self._layout)
            for pack_id in packs:
                if self._has(pack_id, blob):
                    return self._readers[pack_id]
            trash = list_trash(self._disk, self._layout)
            for item in trash:
                reader = self._open(item.pack_id, trash=True)
                if reader is not None and blob in reader.header.places:
                    return reader
            if before == (packs, trash):
                break
            before = (packs, trash)
        return None

    def _others(self, blob: str, but: str) -> Iterator[PackReader]:
        """Other packs that have a blob, those in the trash last."""
        for pack_id in list_packs(self._disk, self._layout):
            if pack_id != but and self._has(pack_id, blob):
                yield self._readers[pack_id]
        for item in list_trash(self._disk, self._layout):
            reader = self._open(item.pack_id, trash=True) if item.pack_id != but else None
            if reader is not None and blob in reader.header.places:
                yield reader

    def _joined(self, refs: Sequence[BlobRef], readers: Sequence[PackReader]) -> memoryview | None:
        """One view over blobs, when they were checked side by side in one pack."""
        if not self.mapped or not refs or any(reader is not readers[0] for reader in readers):
            return None
        reader = readers[0]
        start = end = reader.header.places[refs[0].id].offset
        for ref in refs:
            place = reader.header.places.get(ref.id)
            if place is None or place.offset != end:
                return None
            end += place.size
        return reader.bytes_at(start, end - start)


def list_packs(disk: Disk, layout: Layout) -> list[str]:
    """Return the ids of all packs in the store, by name."""
    found = []
    for folder in disk.names(layout.packs):
        for name in disk.names(layout.packs / folder):
            pack_id = pack_id_of(name)
            if pack_id is not None and pack_id.startswith(folder):
                found.append(pack_id)
    return found


def list_trash(disk: Disk, layout: Layout) -> list[Trashed]:
    """Return what lies in the trash."""
    return [item for name in disk.names(layout.trash) if (item := trashed_of(name)) is not None]
