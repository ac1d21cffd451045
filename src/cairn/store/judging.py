"""What gc would do: which packs are dead, and, with compaction, which are rewritten or only hold second copies."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from cairn.io import leases
from cairn.store.core import Core
from cairn.store.reach import NOTHING, mark, take_stock
from cairn.store.retention import Retention


@dataclass(frozen=True, slots=True)
class DeadPack:
    """A pack that goes: what it weighs."""

    id: str
    bytes: int
    blobs: int


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Packs that give way to one with nothing but what is needed of them."""

    packs: tuple[str, ...]
    bytes: int
    """What they weigh."""
    needed_bytes: int
    """The blobs of them that are read and written again."""
    needed_blobs: int

    @property
    def freed_bytes(self) -> int:
        """What goes, but for the header of the new pack."""
        return self.bytes - self.needed_bytes


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What gc found, and what came of it once it was executed."""

    kept_packs: int
    kept_bytes: int
    dead: tuple[DeadPack, ...]
    partly_dead_bytes: int
    """Bytes that only compaction frees: of unneeded blobs and of second copies, in packs that stay as they are."""
    unreadable: tuple[str, ...]
    """Packs whose header cannot be read; gc leaves them where they are."""
    in_trash: int
    """Packs that an earlier gc left to be judged again."""
    retention: Retention | None = None
    """What the rules keep, with the reasons, and what they drop."""
    threshold: float | None = None
    """Compaction: the share of a pack that is not needed, from which it is rewritten; None without compaction."""
    redundant: tuple[DeadPack, ...] = ()
    """Compaction: packs that go because other packs have all that is needed of them."""
    rewrites: tuple[Rewrite, ...] = ()
    """Compaction: packs that are rewritten, least bytes to write first."""
    foldable: int = 0
    """Old entries that can be folded: they share a file with others, then."""
    folded: int = 0
    """Entries that had a file of their own and are folded now."""
    deleted_runs: tuple[str, ...] = ()
    """Runs that were deleted: what only they need goes."""
    executed: bool = False
    deleted: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    waiting_for: tuple[str, ...] = ()
    """Operations that did not end in time; the packs wait in the trash for the next gc."""
    written: tuple[str, ...] = ()
    """Compaction: the new packs."""
    damaged: tuple[str, ...] = ()
    """Compaction: why packs were left as they are that were to be rewritten."""
    short_of_space: bool = False
    """Compaction: whether it ended before its end because the disk has no room for another new pack."""
    freed_bytes: int = 0
    """What was deleted less what was written."""

    @property
    def dead_bytes(self) -> int:
        """Bytes of the packs that go and that nothing needs."""
        return sum(pack.bytes for pack in self.dead)

    @property
    def redundant_bytes(self) -> int:
        """Bytes of the packs that hold second copies only."""
        return sum(pack.bytes for pack in self.redundant)

    @property
    def rewritten_bytes(self) -> int:
        """Bytes that compaction reads and writes again."""
        return sum(rewrite.needed_bytes for rewrite in self.rewrites)

    @property
    def compacted_bytes(self) -> int:
        """Bytes that go by compaction, headers of the new packs not counted."""
        return self.redundant_bytes + sum(rewrite.freed_bytes for rewrite in self.rewrites)


class Judgement:
    """What can be said of every pack once everything needed was marked."""

    def __init__(self, core: Core, without: Mapping[str, tuple[str, ...]] = NOTHING) -> None:
        self.catalogue = take_stock(core)
        mark(core, self.catalogue, without)
        self.holders = leases.alive(core.disk, core.layout)
        packs = range(len(self.catalogue.packs))
        self.needed = [
            any(self.catalogue.turns[self.catalogue.blob_of[copy]] for copy in self._copies(pack)) for pack in packs
        ]
        """Of each pack, whether anything in it is needed."""
        self.chosen = bytearray(len(self.catalogue.blob_of))
        """Of each copy, whether it is the one that stays of a needed blob."""
        self.useful = array("Q", bytes(8 * len(packs)))
        """Of each pack, the bytes of chosen copies."""
        self._choose()

    def is_held(self, pack: int) -> bool:
        """Whether the operation that wrote a pack is alive: what needs it may not be published yet."""
        return self.catalogue.writers[pack] in self.holders

    def is_dead(self, pack: int) -> bool:
        """Whether nothing needs a pack."""
        return not self.needed[pack] and not self.is_held(pack)

    def data_bytes(self, pack: int) -> int:
        """The bytes of all blobs in a pack."""
        return sum(self.catalogue.lengths[self.catalogue.blob_of[copy]] for copy in self._copies(pack))

    def weight(self, pack: int) -> DeadPack:
        """What goes with a pack."""
        return DeadPack(self.catalogue.packs[pack], self.catalogue.sizes[pack], len(self._copies(pack)))

    def _copies(self, pack: int) -> range:
        return self.catalogue.copies_in(pack)

    def _choose(self) -> None:
        """Choose one copy of each needed blob: where it cannot go anyway, else in the largest pack."""
        table = self.catalogue
        taken = bytearray(len(table.lengths))
        order = sorted(range(len(table.packs)), key=lambda pack: (not self.is_held(pack), -table.sizes[pack], pack))
        for pack in order:
            for copy in table.copies_in(pack):
                blob = table.blob_of[copy]
                if table.turns[blob] and not taken[blob]:
                    taken[blob] = self.chosen[copy] = 1
                    self.useful[pack] += table.lengths[blob]
