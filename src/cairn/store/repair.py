"""Repair: good bytes for what is damaged or missing, and damaged packs out of the way. Nothing is guessed.

A blob is mended by bytes that hash to its id, wherever they are found: in another pack or the trash, in what can be
proven of a pack with a wrong header, in another store, in files that a caller names. The order of the steps is what
makes a death at any of them harmless, beside writers and readers at work:

1. What was found is written into new packs, like those of a commit, together with *every* good blob of the packs that
   are to go and that no other pack is proven to have. Not only with those that are needed: what a writer is about to
   need cannot be known.
2. The new packs are read again, and their names made durable.
3. Only then are damaged packs renamed to where nothing reads them. A writer that counted on one finds it gone when it
   checks, and its blobs in the new packs; what it has itself it writes anew.

A pack stays where it is as long as something needed in it is not mended. gc is kept out meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from cairn.errors import Damaged
from cairn.ids import BlobRef, blob_id
from cairn.objects.hashing import check_packs
from cairn.objects.pack import MAX_BLOBS
from cairn.objects.presence import secure
from cairn.objects.reader import read_header
from cairn.objects.writer import NewBlob, PackWriter
from cairn.store.core import Core
from cairn.store.indexing import enter_packs
from cairn.store.mending import EntryMender, MendedEntry
from cairn.store.needs import Hit
from cairn.store.reach import is_certain
from cairn.store.sources import BrokenPack, Good, OtherStore, Source, open_source
from cairn.store.stock import Stock


@dataclass(frozen=True, slots=True)
class Mend:
    """A needed blob whose bytes were found: where, and what it hits while it is not mended."""

    blob: str
    bytes: int
    source: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair found and, once executed, did."""

    mended: tuple[Mend, ...]
    entries: tuple[MendedEntry, ...]
    saved_blobs: int
    """Good blobs of damaged packs that are written anew, so that these can go."""
    saved_bytes: int
    set_aside: tuple[str, ...]
    """Damaged packs that are moved to `damaged/`."""
    left: tuple[str, ...]
    """Damaged packs that stay, since something needed in them is not mended."""
    packs: tuple[str, ...] = ()
    """The packs that were written."""
    executed: bool = False


@dataclass
class _Work:
    """What there is to do."""

    goods: dict[str, Good] = field(default_factory=dict)
    mends: list[Mend] = field(default_factory=list)
    must: dict[str, set[str]] = field(default_factory=dict)
    """Packs that can go, to the blobs that must be written before."""
    left: list[str] = field(default_factory=list)


FindHits = Callable[[Mapping[str, Good]], Mapping[BlobRef, Hit]]
"""Returns what is needed and not to be had, were these blobs in place."""


class Repairer:
    """One repair. Its sources are opened when it is made, before anything is read for long."""

    def __init__(self, core: Core, stock: Stock, sources: Iterable[Path], find_hits: FindHits) -> None:
        self._core, self._stock, self._find_hits = core, stock, find_hits
        self._sources = [open_source(core.disk, path) for path in sources]

    def mend_entries(self, write_id: str, *, dry_run: bool) -> list[MendedEntry]:
        """Put back entries that a copy of the store proves: only then is it known what is needed."""
        copies = [source.core for source in self._sources if isinstance(source, OtherStore)]
        done = EntryMender(self._core, copies, write_id).run(dry_run=dry_run)
        if done and not dry_run:
            self._core.journal.forget()
        return done

    def plan(self) -> Repair:
        """Find what can be mended, and change nothing."""
        return self._result(self._work_out(), self.mend_entries("", dry_run=True))

    def execute(self, write_id: str, renew: Callable[[], None]) -> Repair:
        """Mend what can be mended; the caller holds a lease of this write id, and keeps gc out."""
        entries = self.mend_entries(write_id, dry_run=False)
        work = self._work_out()
        packs = self._write(work, write_id, renew)
        written = {blob for pack_id in packs for blob in self._blobs_of(pack_id)}
        for pack_id in [pack_id for pack_id, must in work.must.items() if not must <= written]:
            del work.must[pack_id]
            work.left.append(pack_id)
        work.mends = [mend for mend in work.mends if mend.blob in written]
        self._set_aside(work.must, write_id)
        return self._result(work, entries, packs, executed=True)

    def _result(
        self, work: _Work, entries: list[MendedEntry], packs: list[str] | None = None, *, executed: bool = False
    ) -> Repair:
        mended = {mend.blob for mend in work.mends}
        saved = [good for blob, good in work.goods.items() if blob not in mended]
        weight = sum(good.ref.size for good in saved)
        aside, left = tuple(work.must), tuple(work.left)
        return Repair(tuple(work.mends), tuple(entries), len(saved), weight, aside, left, tuple(packs or ()), executed)

    # Finding.

    def _work_out(self) -> _Work:
        work = _Work()
        broken = {pack_id for pack_id in self._stock.unreadable if pack_id not in self._stock.in_trash}
        salvaged: list[Source] = [self._broken(pack_id) for pack_id in sorted(broken)]
        damaged = self._damaged()
        hits = self._search(work, salvaged, damaged)
        certain = is_certain(self._core, self._core.entries())
        lost = {ref.id for ref in hits}
        work.left = [pack_id for pack_id in damaged if self._is_loss(pack_id, work, lost, certain=certain)]
        going = [pack_id for pack_id in damaged if pack_id not in work.left]
        for pack_id in going:
            work.must[pack_id] = self._save(work, pack_id, going)
        if lost or not certain:
            work.left += sorted(broken)
        else:
            work.must.update((pack_id, set(work.goods)) for pack_id in broken)
        return work

    def _is_loss(self, pack_id: str, work: _Work, lost: set[str], *, certain: bool) -> bool:
        """Whether something wrong in a pack is needed, or may be, and was found nowhere else."""
        stock = self._stock
        wrong = [blob for blob, packs in stock.bad.items() if pack_id in packs and blob not in work.goods]
        return any(
            blob in lost or not (certain or any(copy.pack not in stock.bad[blob] for copy in stock.copies(blob)))
            for blob in wrong
        )

    def _broken(self, pack_id: str) -> BrokenPack:
        return BrokenPack(self._core.disk, self._stock.path(pack_id), f"what can be proven of pack {pack_id}")

    def _search(self, work: _Work, broken: list[Source], damaged: list[str]) -> Mapping[BlobRef, Hit]:
        """Look for what is needed, below each tree that is found again, too; return what is not found.

        Of packs with a wrong header everything that can be proven is taken, needed or not.
        """
        tried: set[str] = set()
        hits = self._find_hits({})
        self._take(work, broken, hits, {ref.id: ref for ref in hits}, damaged)
        while True:
            hits = self._find_hits(work.goods)
            wanted = {ref.id: ref for ref in hits if ref.id not in tried}
            if not wanted:
                return hits
            tried |= wanted.keys()
            self._take(work, [*broken, *self._sources], hits, wanted, damaged)

    def _take(
        self,
        work: _Work,
        sources: list[Source],
        hits: Mapping[BlobRef, Hit],
        wanted: dict[str, BlobRef],
        damaged: list[str],
    ) -> None:
        """Note what sources have of what is wanted, and what of the rest no other pack has."""
        for source in sources:
            for good in source.find(dict(wanted)):
                hit = hits.get(good.ref)
                wanted.pop(good.ref.id, None)
                if good.ref.id in work.goods or (hit is None and self._is_safe(good.ref, damaged)):
                    continue
                is_tree = good.is_tree or (hit is not None and hit.is_tree)
                work.goods[good.ref.id] = replace(good, is_tree=is_tree)
                if hit is not None:
                    work.mends.append(Mend(good.ref.id, good.ref.size, good.source, tuple(hit.steps)))

    def _is_safe(self, ref: BlobRef, going: list[str]) -> bool:
        """Whether a pack that stays in place has the blob, as its hash proves now."""
        copies = (copy for copy in self._stock.good(ref) if copy.pack not in going)
        return self._stock.prove(ref, (copy for copy in copies if copy.pack not in self._stock.in_trash)) is not None

    def _damaged(self) -> list[str]:
        """Packs with wrong blobs, each read in full by now: what else is in them must be known."""
        stock = self._stock
        self._find_hits({})  # Trees are read on the way, at every level.
        found = {pack_id for packs in stock.bad.values() for pack_id in packs if pack_id not in stock.in_trash}
        stock.read(sorted(found - stock.done), lambda nbytes: None, lambda nbytes: None)
        return sorted(found & stock.sizes.keys())

    def _save(self, work: _Work, pack_id: str, going: list[str]) -> set[str]:
        """Note the blobs of a damaged pack that must be written before it goes; return their ids."""
        must = set()
        header = self._stock.header(pack_id)
        for blob, place in header.places.items():
            ref = BlobRef(blob, place.size)
            copies = list(self._stock.good(ref))
            if blob in work.goods or not copies:
                must.update({blob} & work.goods.keys())
            elif not self._is_safe(ref, going):
                fetch = partial(self._stock.prove, ref, copies)
                work.goods[blob] = Good(ref, place.is_tree, f"pack {pack_id}", fetch)
                must.add(blob)
        return must

    # Doing.

    def _write(self, work: _Work, write_id: str, renew: Callable[[], None]) -> list[str]:
        """Write what was found into packs and read these again; what changed since it was found is left out."""
        disk, layout = self._core.disk, self._core.layout
        packs: list[str] = []
        writer: PackWriter | None = None
        left = len(work.goods)
        try:
            for good, data in _fetched(work.goods.values()):
                renew()
                if writer is not None and not writer.has_room(good.ref.size):
                    packs.append(writer.finish().pack_id)
                    writer = None
                if writer is None:
                    room = min(left, MAX_BLOBS)
                    writer = PackWriter.for_up_to(disk, layout, write_id, len(packs) + 1, blobs=room)
                writer.add(NewBlob(good.ref, data), is_tree=good.is_tree)
                left -= 1
            if writer is not None:
                packs.append(writer.finish().pack_id)
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise
        self._prove_written(packs)
        return packs

    def _prove_written(self, packs: list[str]) -> None:
        core = self._core
        headers = [read_header(core.disk, core.layout.pack(pack_id), pack_id) for pack_id in packs]
        sizes = {header.pack_id: header.size for header in headers}
        read = check_packs(
            core.disk,
            ((header.pack_id, header, core.layout.pack(header.pack_id)) for header in headers),
            sum(sizes.values()),
            lambda nbytes: None,
        )
        bad = [pack_id for pack_id, wrong in read if wrong or wrong is None]
        lost = secure(core.disk, core.layout, core.blobs, sizes)
        if bad or lost:
            raise Damaged(
                f"packs {', '.join(sorted({*bad, *lost}))} came back changed right after they were written; nothing "
                f"else was touched; look after the disk, then repair again"
            )
        enter_packs(core, packs)

    def _blobs_of(self, pack_id: str) -> Iterable[str]:
        return read_header(self._core.disk, self._core.layout.pack(pack_id), pack_id).places

    def _set_aside(self, packs: Collection[str], write_id: str) -> None:
        """Rename damaged packs to where nothing reads them."""
        disk, layout = self._core.disk, self._core.layout
        moved = []
        for pack_id in packs:
            disk.make_folder(layout.damaged)
            path = layout.pack(pack_id)
            with contextlib.suppress(FileNotFoundError):
                disk.rename(path, layout.set_aside(write_id, path))
                moved.append(path)
        if moved:
            disk.sync_folder(layout.damaged)
        for folder in sorted({path.parent for path in moved}):
            disk.sync_folder(folder)
        self._core.index.forget_packs(packs)
        for pack_id in packs:
            self._core.blobs.forget(pack_id)
            self._stock.forget(pack_id)


def _fetched(goods: Iterable[Good]) -> Iterator[tuple[Good, memoryview]]:
    """Read blobs in the order of a pack, each at a multiple of its elements' size, and trees last."""
    for good in sorted(goods, key=lambda good: (good.is_tree, -(good.ref.size & -good.ref.size))):
        try:
            data = good.fetch()
        except OSError:
            continue
        if data is not None and blob_id(data) == good.ref.id:
            yield good, memoryview(bytes(data))
