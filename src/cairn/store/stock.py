"""The packs of a store as verification finds them: which can be read, which blobs they have, and which are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from cairn.errors import Damaged
from cairn.ids import BlobRef, blob_id
from cairn.io.layout import Trashed
from cairn.objects.blobs import list_packs, list_trash
from cairn.objects.hashing import Advance, check_packs
from cairn.objects.inventory import Copy, Inventory
from cairn.objects.pack import Header
from cairn.objects.reader import read_header
from cairn.store.core import Core

_LOOKS = 8
_NOTED_AT_ONCE = 64
"""After so many packs it is recorded that they were read, so that a verification that is cut short counts."""


@dataclass
class Stock:
    """What is known of the packs, those in the trash included: needed content may lie there for now.

    A pack is called by its id, one in the trash by its name there, since both may be there after a power cut.
    """

    core: Core
    inventory: Inventory = field(default_factory=Inventory)
    sizes: dict[str, int] = field(default_factory=dict)
    """Packs whose header is right, to their bytes."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Packs whose header is wrong, to what was found."""
    in_trash: dict[str, Trashed] = field(default_factory=dict)
    bad: dict[str, dict[str, str]] = field(default_factory=dict)
    """Blobs to the packs in which they are wrong, and what was found there."""
    done: set[str] = field(default_factory=set)
    """Packs of which every byte was read."""
    bytes_read: int = 0

    def take(self) -> None:
        """Read the headers of packs that are new.

        A pack that goes to the trash or back meanwhile may be missed in both, so the search ends when nothing new
        turns up.
        """
        for _ in range(_LOOKS):
            known = self.sizes.keys() | self.unreadable.keys()
            packs = [pack for pack in list_packs(self.core.disk, self.core.layout) if pack not in known]
            for pack in packs:
                self._enter(pack)
            trash = [item for item in list_trash(self.core.disk, self.core.layout) if item.name not in known]
            for item in trash:
                self.in_trash[item.name] = item
                self._enter(item.name)
            if not packs and not trash:
                return

    def _enter(self, pack: str) -> None:
        try:
            header = self.header(pack)
        except FileNotFoundError:
            return
        except Damaged as error:
            self.unreadable[pack] = str(error)
            return
        self.inventory.enter(pack, header)
        self.sizes[pack] = header.size

    def header(self, pack: str) -> Header:
        """Read the header of a pack. Raises Damaged, and FileNotFoundError when it is gone."""
        item = self.in_trash.get(pack)
        return read_header(self.core.disk, self.path(pack), item.pack_id if item else pack)

    def forget(self, pack: str) -> None:
        """Leave a pack out that is no longer in the store."""
        self.inventory.forget(pack)
        self.sizes.pop(pack, None)
        self.unreadable.pop(pack, None)
        self.in_trash.pop(pack, None)
        for blob in [blob for blob, packs in self.bad.items() if packs.pop(pack, None) and not packs]:
            del self.bad[blob]

    def path(self, pack: str) -> Path:
        """Where a pack stood when it was found."""
        item = self.in_trash.get(pack)
        return self.core.layout.trashed(item) if item else self.core.layout.pack(pack)

    def due(self, share: float, max_age: timedelta | None) -> list[str]:
        """Return the packs whose bytes are to be read: a share of all bytes, and none that was read lately.

        Those read longest ago come first, so that shares add up to everything; of those that were never read, the
        one with the lowest id, which is a hash and so as good as drawn by chance.
        """
        now = self.core.disk.now().timestamp()
        # A time to come is of a clock that was put back since.
        read = {pack: time for pack, time in self.core.index.checked().items() if time <= now}
        # What was wrong before is read each time, and counts for no share.
        due = sorted({pack for _, pack in self.core.index.damage()} & self.sizes.keys())
        others = self.sizes.keys() - set(due)
        left = share * sum(self.sizes[pack] for pack in others)
        for pack in sorted(others, key=lambda pack: (read.get(pack, 0.0), pack)):
            young = max_age is not None and pack in read and now - read[pack] < max_age.total_seconds()
            if left > 0 and not young:
                due.append(pack)
                left -= self.sizes[pack]
        return due if share else []

    def read(self, packs: list[str], expect: Callable[[int], None], advance: Advance) -> None:
        """Check the hash of every blob in some packs, and record which of them are right."""
        expected = sum(self.sizes[pack] for pack in packs)
        expect(expected)
        right: list[str] = []
        for pack, wrong in check_packs(self.core.disk, self._headers(packs), expected, advance):
            if wrong is None:
                self.forget(pack)  # Should it be needed, it turns up elsewhere, or is missing.
                continue
            self.done.add(pack)
            self.bytes_read += self.sizes[pack]
            for each in wrong:
                self.note(each.blob, pack, each.found)
            if not wrong and pack not in self.in_trash:
                right.append(pack)
            if len(right) == _NOTED_AT_ONCE:
                self._record(right)
                right = []
        self._record(right)

    def _headers(self, packs: Iterable[str]) -> Iterator[tuple[str, Header, Path]]:
        for pack in packs:
            try:
                yield pack, self.header(pack), self.path(pack)
            except FileNotFoundError:
                self.forget(pack)
            except Damaged as error:
                self.forget(pack)
                self.unreadable[pack] = str(error)

    def _record(self, right: list[str]) -> None:
        now = self.core.disk.now().timestamp()
        self.core.index.insert("checked", [{"pack": pack, "time": now} for pack in right])

    def note(self, blob: str, pack: str, found: str) -> None:
        """Remember a wrong copy."""
        self.bad.setdefault(blob, {})[pack] = found

    def copies(self, blob: str) -> Iterator[Copy]:
        """Return where a blob should be, right or wrong."""
        return self.inventory.copies(blob)

    def good(self, ref: BlobRef) -> Iterator[Copy]:
        """Return the copies of a blob that have its size and are not known to be wrong."""
        wrong = self.bad.get(ref.id, {})
        return (copy for copy in self.inventory.copies(ref.id) if copy.size == ref.size and copy.pack not in wrong)

    def prove(self, ref: BlobRef, copies: Iterable[Copy]) -> bytes | None:
        """Return the bytes of the first copy whose hash is right, and note those that are wrong."""
        for copy in copies:
            try:
                data = self.core.disk.read_at(self.path(copy.pack), copy.offset, copy.size)
            except FileNotFoundError:
                self.forget(copy.pack)  # It may turn up elsewhere, at the next look.
                continue
            except OSError as error:
                self.note(ref.id, copy.pack, f"bytes that cannot be read ({error.strerror or error})")
                continue
            found = blob_id(data)
            if found == ref.id:
                return data
            self.note(ref.id, copy.pack, f"bytes that hash to {found}")
        return None
