"""One round of gc: packs go while others write and read.

A pack may go when no entry needs any of its blobs and no live operation wrote it or, with compaction, when what is
needed of it also stands in other packs. The steps and their order are what keeps a commit that is published meanwhile:

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
from cairn.io.layout import Trashed, writer_of_temporary
from cairn.io.leases import Lease
from cairn.objects.blobs import list_trash
from cairn.objects.pack import Header
from cairn.objects.presence import settle
from cairn.objects.reader import read_header
from cairn.store import compaction
from cairn.store.compaction import Copies, Wish
from cairn.store.core import Core
from cairn.store.judging import GcPlan, Judgement
from cairn.store.reach import mark, take_stock

NETWORK_SECONDS = 24 * 3600.0
"""How long a pack stays in the trash on a network file system, by the store's clock."""

_POLL_SECONDS = 0.02


def planned(core: Core, judgement: Judgement, threshold: float | None) -> GcPlan:
    """Say what would go, and with a threshold what would be rewritten."""
    table = judgement.catalogue
    dead = tuple(judgement.weight(pack) for pack in range(len(table.packs)) if judgement.is_dead(pack))
    redundant, rewrites = compaction.plan(judgement, threshold) if threshold is not None else ((), ())
    going = {pack.id for pack in (*dead, *redundant)} | {pack for rewrite in rewrites for pack in rewrite.packs}
    stays = [pack for pack, pack_id in enumerate(table.packs) if pack_id not in going]
    return GcPlan(
        kept_packs=len(stays),
        kept_bytes=sum(table.sizes[pack] for pack in stays),
        dead=dead,
        partly_dead_bytes=sum(
            judgement.data_bytes(pack) - judgement.useful[pack] for pack in stays if judgement.needed[pack]
        ),
        unreadable=tuple(table.unreadable),
        in_trash=len(list_trash(core.disk, core.layout)),
        threshold=threshold,
        redundant=redundant,
        rewrites=rewrites,
        foldable=sum(
            last - first + 1
            for folder in folding.folders(core.disk, core.layout)
            for first, last in folding.foldable(core.disk, folder)
        ),
    )


@dataclass
class Collection:
    """One execution of gc."""

    core: Core
    lease: Lease | None = None
    """That of the compaction, for the packs that it writes."""
    wish: Wish | None = None
    """What is to be compacted, if anything."""
    gc_id: str = field(init=False)
    is_shared: bool = field(init=False)
    judged: dict[str, Trashed] = field(default_factory=dict)
    young: set[str] = field(default_factory=set)
    """What is judged and may go back, but has not been in the trash for long enough to be deleted."""
    relied_on: set[str] = field(default_factory=set)
    """Packs that have copies of what is needed of those that go."""
    sizes: dict[str, int] = field(default_factory=dict)
    has_folded: bool = False
    """Whether entries stand in two files, one of which goes."""

    def __post_init__(self) -> None:
        self.gc_id = self.core.disk.new_id()
        self.is_shared = process.is_network_mount(self.core.layout.root)

    def run(self, patience: float) -> GcPlan:
        """Carry out the steps in their order."""
        found, going, written = self.prepare()
        self.take_over()
        self.trash(going)
        self.fold()
        waiting = self.wait(patience)
        folded = 0
        restored: tuple[str, ...] = ()
        deleted: tuple[str, ...] = ()
        if not waiting:
            restored = self.restore()
            self.settle()
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
            freed_bytes=sum(self.sizes[pack_id] for pack_id in deleted) - written,
        )

    def prepare(self) -> tuple[GcPlan, list[str], int]:
        """Plan, and write the new packs; return the plan, the packs that go, and the bytes that were written."""
        judgement = Judgement(self.core)
        found = planned(self.core, judgement, self.wish.threshold if self.wish else None)
        going = [pack.id for pack in (*found.dead, *found.redundant)]
        if self.lease is None or self.wish is None:
            return found, going, 0
        self.wish.expect(found.rewritten_bytes)
        compactor = compaction.Compactor(self.core, judgement, self.lease, self.wish.advance)
        compactor.write(found.rewrites)
        replaced = set(compactor.replaced)
        found = replace(
            found,
            rewrites=tuple(rewrite for rewrite in found.rewrites if not replaced.isdisjoint(rewrite.packs)),
            written=tuple(compactor.written),
            damaged=tuple(compactor.damaged),
            short_of_space=compactor.is_short,
        )
        return found, going + compactor.replaced, sum(compactor.written.values())

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

    def trash(self, going: Iterable[str]) -> None:
        """Rename packs into the trash."""
        self.core.disk.make_folder(self.core.layout.trash)
        folders = set()
        for pack_id in going:
            source = self.core.layout.pack(pack_id)
            if self._move_to_trash(source, pack_id):
                folders.add(source.parent)
                if self.is_shared:
                    self.young.add(pack_id)
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
        own = self.lease.write_id if self.lease else None
        listed = leases.alive(self.core.disk, self.core.layout, but=own)
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
        """Mark again, and put back what is needed now and has no other copy in place."""
        if not self.judged:
            return ()
        copies = Copies(self.core, take_stock(self.core))
        mark(self.core, copies.catalogue)
        self._settle_entries()
        restored = []
        for pack_id, item in list(self.judged.items()):
            header = self._header_in_trash(item)
            if header is None:
                del self.judged[pack_id]  # Somebody took it back, or it is not a pack that can be judged.
            elif not copies.cover(header):
                self._put_back(item)
                restored.append(pack_id)
                # In place again, it may stand in for others.
                copies.catalogue.add(header)
        self.relied_on = copies.relied_on
        return tuple(restored)

    def settle(self) -> None:
        """Make the names of the packs durable that stand in for others: their writers may not have come to that."""
        settle(self.core.disk, self.core.layout, self.core.blobs, self.relied_on)

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
