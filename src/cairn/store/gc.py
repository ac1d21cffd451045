"""gc: free the space of what nothing needs, while others write and read.

Plan, then execute. A pack is dead when no entry needs any of its blobs and no live operation wrote it. The steps of
the execution and their order are what keeps a commit that is published meanwhile:

1. Packs that earlier gcs left in the trash are taken over under this gc's name, to be judged again.
2. Dead packs are renamed into the trash, under a name that holds this gc's id, so that no gc deletes what another
   judged.
3. The leases that are alive *now* are listed, and gc waits until none of those is alive. An operation that looked a
   pack up before it went to the trash has published by then; one that starts later finds the pack in the trash and
   takes it back.
4. *Only then* all entries are read again, everything needed is marked again, the entries that said so are made
   durable, and what is needed goes back.
5. What is left under this gc's name is deleted.

Old entries are folded on the way (`cairn.io.folding`): copied before the wait, and removed after it.

Marking reads entries and trees, hash-checked, never the index, and stops at anything it needs and cannot read.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from cairn.errors import Damaged
from cairn.io import folding, leases, process
from cairn.io.explain import explained
from cairn.io.layout import Trashed, writer_of_temporary
from cairn.objects.blobs import list_packs, list_trash
from cairn.objects.pack import Header
from cairn.objects.reader import read_header
from cairn.store.core import Core
from cairn.store.reach import mark
from cairn.store.retention import Retention

PATIENCE_SECONDS = 10.0
"""How long gc waits for operations that were running when it moved packs."""

NETWORK_SECONDS = 24 * 3600.0
"""How long a pack stays in the trash on a network file system, by the store's clock."""

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class DeadPack:
    """A pack that goes: what it weighs."""

    id: str
    bytes: int
    blobs: int


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What gc found, and what came of it once it was executed."""

    kept_packs: int
    kept_bytes: int
    dead: tuple[DeadPack, ...]
    partly_dead_bytes: int
    """Bytes of unneeded blobs in packs that stay because other blobs in them are needed."""
    unreadable: tuple[str, ...]
    """Packs whose header cannot be read; gc leaves them where they are."""
    in_trash: int
    """Packs that an earlier gc left to be judged again."""
    retention: Retention | None = None
    """What the rules keep, with the reasons, and what they drop."""
    foldable: int = 0
    """Old entries that can be folded: they share a file with others, then."""
    folded: int = 0
    """Entries that had a file of their own and are folded now."""
    executed: bool = False
    deleted: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    waiting_for: tuple[str, ...] = ()
    """Operations that did not end in time; the packs wait in the trash for the next gc."""
    freed_bytes: int = 0

    @property
    def dead_bytes(self) -> int:
        """Bytes of the packs that go."""
        return sum(pack.bytes for pack in self.dead)


def plan(core: Core, rules: Retention | None = None) -> GcPlan:
    """Find what is dead once the rules are applied. Raises Damaged when something needed cannot be read."""
    headers, unreadable = _headers(core)
    live = mark(core, without=rules.without if rules else {})
    holders = leases.alive(core.disk, core.layout)
    dead, partly = [], 0
    kept_bytes = 0
    for header in headers:
        needed = [blob for blob in header.places if blob in live]
        if needed or header.write_id in holders:
            kept_bytes += header.size
            unneeded = sum(place.size for blob, place in header.places.items() if blob not in live)
            partly += unneeded if needed else 0
        else:
            dead.append(DeadPack(header.pack_id, header.size, len(header.places)))
    trash = len(list_trash(core.disk, core.layout))
    foldable = sum(
        last - first + 1
        for folder in folding.folders(core.disk, core.layout)
        for first, last in folding.foldable(core.disk, folder)
    )
    return GcPlan(len(headers) - len(dead), kept_bytes, tuple(dead), partly, tuple(unreadable), trash, rules, foldable)


def execute(core: Core, rules: Retention | None = None, patience: float = PATIENCE_SECONDS) -> GcPlan:
    """Plan and carry it out; what the rules drop has been recorded before. One gc at a time, else raises Busy."""
    with explained("gc", core.layout.root), leases.sole_gc(core.disk, core.layout):
        return replace(Collection(core).run(patience), retention=rules)


@dataclass
class Collection:
    """One execution of gc."""

    core: Core
    gc_id: str = field(init=False)
    is_shared: bool = field(init=False)
    judged: dict[str, Trashed] = field(default_factory=dict)
    young: set[str] = field(default_factory=set)
    """What is judged and may go back, but has not been in the trash for long enough to be deleted."""
    sizes: dict[str, int] = field(default_factory=dict)
    has_folded: bool = False
    """Whether entries stand in two files, one of which goes."""

    def __post_init__(self) -> None:
        self.gc_id = self.core.disk.new_id()
        self.is_shared = process.is_network_mount(self.core.layout.root)

    def run(self, patience: float) -> GcPlan:
        """Carry out the steps in their order."""
        found = plan(self.core)
        self.take_over()
        self.trash(found.dead)
        self.fold()
        waiting = self.wait(patience)
        folded = 0
        restored: tuple[str, ...] = ()
        deleted: tuple[str, ...] = ()
        if not waiting:
            restored = self.restore()
            deleted = self.delete()
            folded = self.clear_folded()
        self.sweep()
        return replace(
            found,
            executed=True,
            folded=folded,
            deleted=deleted,
            restored=restored,
            waiting_for=waiting,
            freed_bytes=sum(self.sizes[pack_id] for pack_id in deleted),
        )

    def take_over(self) -> None:
        """Put what earlier gcs left under this gc's name, once it may be deleted: the time since a move is counted.

        A power cut during a move can leave both names, and moving a file onto itself does nothing.
        """
        disk, layout = self.core.disk, self.core.layout
        for item in list_trash(disk, layout):
            source = layout.trashed(item)
            in_place = disk.size(layout.pack(item.pack_id))
            if in_place is not None and in_place == disk.size(source):
                disk.unlink(source)
            elif not self._has_waited(item):
                self.judged[item.pack_id] = item
                self.young.add(item.pack_id)
            elif self._move_to_trash(source, item.pack_id) and disk.size(source) is not None:
                disk.unlink(source)

    def trash(self, dead: Iterable[DeadPack]) -> None:
        """Rename dead packs into the trash."""
        self.core.disk.make_folder(self.core.layout.trash)
        folders = set()
        for pack in dead:
            source = self.core.layout.pack(pack.id)
            if self._move_to_trash(source, pack.id):
                folders.add(source.parent)
                if self.is_shared:
                    self.young.add(pack.id)
        # The new names first: a pack must have one of its names after a power cut.
        if self.judged:
            self.core.disk.sync_folder(self.core.layout.trash)
        for folder in sorted(folders):
            self.core.disk.sync_folder(folder)

    def fold(self) -> None:
        """Copy old entries into folded files, as far as there is room; what is there already waits to be cleared."""
        disk, layout = self.core.disk, self.core.layout
        if self.is_shared:
            return  # A lease may be invisible from here, so nothing could be cleared.
        for folder in folding.folders(disk, layout):
            for block in folding.foldable(disk, folder):
                with suppress(OSError):
                    folding.fold(disk, layout, self.gc_id, folder, block)
            self.has_folded = self.has_folded or folding.is_doubled(disk, folder)

    def clear_folded(self) -> int:
        """Remove the files of entries that are folded."""
        disk, layout = self.core.disk, self.core.layout
        if not self.has_folded:
            return 0
        return sum(folding.clear(disk, folder) for folder in folding.folders(disk, layout))

    def wait(self, patience: float) -> tuple[str, ...]:
        """Wait for the operations that are alive now; return those that did not end in time."""
        if not (self.judged or self.has_folded):
            return ()
        listed = leases.alive(self.core.disk, self.core.layout)
        waited = 0.0
        while listed:
            if waited >= patience:
                return tuple(str(holder) for holder in listed.values())
            self.core.disk.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS
            now = leases.alive(self.core.disk, self.core.layout)
            listed = {write_id: holder for write_id, holder in listed.items() if write_id in now}
        return ()

    def restore(self) -> tuple[str, ...]:
        """Mark again, and put back what is needed now."""
        if not self.judged:
            return ()
        live = mark(self.core)
        self._settle_entries()
        restored = []
        for pack_id, item in list(self.judged.items()):
            header = self._header_in_trash(item)
            if header is None:
                del self.judged[pack_id]  # Somebody took it back, or it is not a pack that can be judged.
            elif not live.isdisjoint(header.places):
                self._put_back(item)
                restored.append(pack_id)
        return tuple(restored)

    def delete(self) -> tuple[str, ...]:
        """Delete what is left of what this gc judged."""
        deleted = []
        for pack_id, item in self.judged.items():
            path = self.core.layout.trashed(item)
            size = self.core.disk.size(path) or 0
            if pack_id not in self.young and self.core.disk.unlink(path):
                self.sizes[pack_id] = size
                deleted.append(pack_id)
                self.core.blobs.forget(pack_id)
        if deleted:
            self.core.disk.sync_folder(self.core.layout.trash)
            self.core.index.forget_packs(deleted)
        return tuple(deleted)

    def sweep(self) -> None:
        """Remove what dead operations left behind.

        tmp is listed before the leases: a file that was there had its lease before it.
        """
        disk, layout = self.core.disk, self.core.layout
        leftovers = [(name, writer_of_temporary(name)) for name in disk.names(layout.tmp)]
        alive = leases.alive(disk, layout)
        for name, writer in leftovers:
            if writer is not None and writer not in alive and disk.is_locked(layout.tmp / name) is not True:
                disk.unlink(layout.tmp / name)
        leases.sweep(disk, layout)

    def _settle_entries(self) -> None:
        """Make what was read durable: a drop that a power cut undoes must not have cost a pack."""
        journal = self.core.journal
        for log in (*(run.log for run in journal.runs().values()), *journal.tag_logs().values()):
            self.core.disk.sync_folder(log.folder)

    def _move_to_trash(self, source: Path, pack_id: str) -> bool:
        item = Trashed(self.gc_id, pack_id)
        target = self.core.layout.trashed(item)
        try:
            self.core.disk.rename(source, target)
        except FileNotFoundError:
            return False
        self.judged[pack_id] = item
        return True

    def _header_in_trash(self, item: Trashed) -> Header | None:
        try:
            return read_header(self.core.disk, self.core.layout.trashed(item), item.pack_id)
        except (FileNotFoundError, Damaged):
            return None

    def _put_back(self, item: Trashed) -> None:
        target = self.core.layout.pack(item.pack_id)
        self.core.disk.make_folder(target.parent)
        try:
            self.core.disk.rename(self.core.layout.trashed(item), target)
        except FileNotFoundError:
            return  # A writer took it back first.
        finally:
            self.judged.pop(item.pack_id, None)
        self.core.disk.sync_folder(target.parent)
        self.core.disk.sync_folder(self.core.layout.trash)

    def _has_waited(self, item: Trashed) -> bool:
        """On a network file system a lease may be invisible from here, so the trash waits for a day."""
        if not self.is_shared:
            return True
        return leases.store_age(self.core.disk, self.core.layout, self.core.layout.trashed(item)) > NETWORK_SECONDS


def _headers(core: Core) -> tuple[list[Header], list[str]]:
    headers, unreadable = [], []
    for pack_id, header in core.blobs.headers():
        if isinstance(header, Damaged):
            unreadable.append(pack_id)
        else:
            headers.append(header)
    return headers, unreadable


def pack_bytes(core: Core) -> int:
    """Return the bytes of all packs in the store."""
    return sum(core.disk.size(core.layout.pack(pack_id)) or 0 for pack_id in list_packs(core.disk, core.layout))
