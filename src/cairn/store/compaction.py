"""Compaction: what is needed of partly dead and of many small packs is written into new ones, and the old ones go.

The new packs come first, complete and named; then the old ones go the way of dead packs (see `cairn.store.collecting`).
From then on a pack may go although something needs its blobs, namely when each of these also stands in another pack.
That costs nobody a blob, because gc, when it marks again after the wait, asks of every needed blob of a pack in the
trash for another copy that

- lies in a pack that is *in place* then, which no pack in any trash is. Two gcs that each moved one of two copies
  moved it before they looked for the other: at least one of them finds the other's gone, and puts its own back;
- has the right *bytes*: they are read and hashed, also those that this gc wrote. A header that names a blob says
  nothing of a bit that flipped in it;
- is under a name that is *durable* before the first pack is deleted: whoever wrote it may have died before that.

A pack that lacks one such copy of one needed blob goes back. So every needed blob has a good copy in place at every
moment after that look, or its old pack is still there: an operation that was alive when the pack moved has published
before the look, and one that started later finds the pack in the trash and takes it back, or finds the new one.

What is not in order stops nothing else: a damaged blob keeps its pack as it is, a full disk ends the writing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from cairn.errors import Damaged, UsageError
from cairn.ids import BlobRef, blob_id
from cairn.io.leases import Lease
from cairn.objects.catalogue import Catalogue
from cairn.objects.pack import Header, encode_header, head_bound
from cairn.objects.reader import PackReader, read_header
from cairn.objects.writer import NewBlob, PackWriter
from cairn.store.config import RESERVE_BYTES
from cairn.store.core import Core
from cairn.store.defaults import THRESHOLD
from cairn.store.judging import DeadPack, Judgement, Rewrite
from cairn.store.reach import read_copy

SMALL_BYTES = 1 << 20
"""Packs with less that is needed are merged: a hundred thousand tiny commits must not stay as many files."""

MERGED_BYTES = 16 << 20
MERGED_BLOBS = 10_000
"""Whoever reads a blob reads the header of its pack: with so many blobs that takes some hundredths of a second."""

_FULL = {errno.ENOSPC, errno.EDQUOT}
_ALIGN = 16


@dataclass(frozen=True, slots=True)
class Wish:
    """From which dead share on packs are rewritten, and who is told of the bytes to come and those that are done."""

    threshold: float = THRESHOLD
    expect: Callable[[int], None] = lambda nbytes: None
    advance: Callable[[int], None] = lambda nbytes: None

    def __post_init__(self) -> None:
        """Raise UsageError for a threshold that is none."""
        if not 0 < self.threshold <= 1:
            raise UsageError(f"threshold: expected a share above 0 and up to 1, found {self.threshold!r}")


class _Small(NamedTuple):
    """A pack that is merged with others."""

    turn: int
    """When the first of its blobs was found to be needed."""
    pack: int
    needed_bytes: int
    needed_blobs: int
    is_wasteful: bool


def plan(judgement: Judgement, threshold: float) -> tuple[tuple[DeadPack, ...], tuple[Rewrite, ...]]:
    """Return the packs that go because others have all that is needed of them, and those to rewrite."""
    redundant: list[DeadPack] = []
    alone: list[Rewrite] = []
    small: list[_Small] = []
    table = judgement.catalogue
    for pack, pack_id in enumerate(table.packs):
        useful = judgement.useful[pack]
        if judgement.is_held(pack) or not judgement.needed[pack]:
            continue
        if not useful:
            redundant.append(judgement.weight(pack))
            continue
        is_wasteful = useful <= (1 - threshold) * judgement.data_bytes(pack)
        turns = [table.turns[table.blob_of[copy]] for copy in table.copies_in(pack) if judgement.chosen[copy]]
        if useful < SMALL_BYTES and (is_wasteful or table.sizes[pack] < SMALL_BYTES):
            small.append(_Small(min(turns), pack, useful, len(turns), is_wasteful))
        elif is_wasteful:
            alone.append(Rewrite((pack_id,), table.sizes[pack], useful, len(turns)))
    merged = [
        Rewrite(
            tuple(table.packs[each.pack] for each in group),
            sum(table.sizes[each.pack] for each in group),
            sum(each.needed_bytes for each in group),
            sum(each.needed_blobs for each in group),
        )
        for group in _groups(small)
    ]
    return tuple(redundant), tuple(sorted(alone + merged, key=lambda rewrite: rewrite.needed_bytes))


def _groups(small: list[_Small]) -> list[list[_Small]]:
    """Join packs that are first needed after one another: what is dropped together lies together."""
    groups: list[list[_Small]] = []
    size = blobs = 0
    for each in sorted(small):
        if not groups or size + each.needed_bytes > MERGED_BYTES or blobs + each.needed_blobs > MERGED_BLOBS:
            groups.append([])
            size = blobs = 0
        groups[-1].append(each)
        size, blobs = size + each.needed_bytes, blobs + each.needed_blobs
    return [group for group in groups if len(group) > 1 or group[0].is_wasteful]


class Compactor:
    """Writes the new packs of one gc, under its lease."""

    def __init__(self, core: Core, judgement: Judgement, lease: Lease, advance: Callable[[int], None]) -> None:
        self._core, self._judgement, self._lease, self._advance = core, judgement, lease, advance
        self._numbers = {pack_id: pack for pack, pack_id in enumerate(judgement.catalogue.packs)}
        self._serial = 0
        self.written: dict[str, int] = {}
        """The new packs, with their bytes."""
        self.replaced: list[str] = []
        """The packs that they stand in for."""
        self.damaged: list[str] = []
        """Why packs were left as they are."""
        self.is_short = False
        """Whether the disk has no room for another pack."""

    def write(self, rewrites: Iterable[Rewrite]) -> None:
        """Write new packs, those that need the least room first, until there is no room."""
        for rewrite in rewrites:
            self._lease.renew()
            try:
                self.is_short = not self._has_room(rewrite)
                if not self.is_short:
                    self._rewrite(rewrite)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self.is_short = True
            if self.is_short:
                return

    def _has_room(self, rewrite: Rewrite) -> bool:
        """Whether a new pack leaves room for what it takes to free the old ones, and for the reserve."""
        needed = rewrite.needed_bytes + head_bound(rewrite.needed_blobs) + RESERVE_BYTES
        return self._core.disk.free(self._core.layout.root) >= needed

    def _rewrite(self, rewrite: Rewrite) -> None:
        sources = [source for pack_id in rewrite.packs if (source := self._source(pack_id)) is not None]
        while sources:
            try:
                self._write(sources)
            except _Bad as bad:
                if isinstance(bad.reason, Damaged):
                    self.damaged.append(f"pack {bad.source.pack_id} was left as it is: {bad.reason}")
                sources.remove(bad.source)
            else:
                self.replaced += [source.pack_id for source in sources]
                return

    def _source(self, pack_id: str) -> _Source | None:
        """Open a pack; None when it is gone or can no longer be read."""
        try:
            reader = PackReader(self._core.disk, self._core.layout.pack(pack_id), pack_id, mapped=False)
        except (FileNotFoundError, Damaged):
            return None
        copies = self._judgement.catalogue.copies_in(self._numbers[pack_id])
        chosen = [blob for blob, copy in zip(reader.header.places, copies, strict=True) if self._judgement.chosen[copy]]
        return _Source(reader, chosen)

    def _write(self, sources: list[_Source]) -> None:
        blobs = _ordered(sources)
        refs = [ref for _, ref, _ in blobs]
        trees = sum(is_tree for _, _, is_tree in blobs)
        self._serial += 1
        write_id = self._lease.write_id
        _, head = encode_header(refs, trees=trees, write_id=write_id, serial=self._serial)
        writer = PackWriter(self._core.disk, self._core.layout, write_id, self._serial, head=len(head))
        try:
            for source, ref, is_tree in blobs:
                writer.add(NewBlob(ref, source.read(ref)), is_tree=is_tree)
                self._advance(ref.size)
            pack_id = writer.finish().pack_id
        except BaseException:
            writer.abandon()
            raise
        header = read_header(self._core.disk, self._core.layout.pack(pack_id), pack_id)
        self.written[pack_id] = header.size
        # Before the old packs go, so that a store that is open for long finds the blobs and does not write them anew.
        self._core.index.add_packs([header])


@dataclass(eq=False)
class _Source:
    """A pack that is being rewritten, and what is needed of it, in its order."""

    reader: PackReader
    chosen: list[str]

    @property
    def pack_id(self) -> str:
        return self.reader.header.pack_id

    def read(self, ref: BlobRef) -> memoryview:
        """Return a blob's bytes, hash-checked."""
        try:
            return self.reader.read(ref)
        except (Damaged, FileNotFoundError) as error:
            raise _Bad(self, error) from error


class _Bad(Exception):
    """A pack has a blob that cannot be read."""

    def __init__(self, source: _Source, reason: Damaged | FileNotFoundError) -> None:
        self.source, self.reason = source, reason


def _ordered(sources: list[_Source]) -> list[tuple[_Source, BlobRef, bool]]:
    """The order of the new pack: the old one; where packs are merged, blobs that keep the others aligned come first.

    Lengths are multiples of element sizes, so what begins at a multiple of its own alignment begins at one of its
    elements'.
    """
    found = []
    for source in sources:
        for blob in source.chosen:
            place = source.reader.header.places[blob]
            alignment = 0 if place.is_tree or len(sources) == 1 else min(place.size & -place.size, _ALIGN)
            found.append((place.is_tree, -alignment, source, BlobRef(blob, place.size)))
    found.sort(key=lambda item: item[:2])
    return [(source, ref, is_tree) for is_tree, _, source, ref in found]


@dataclass
class Copies:
    """Other copies of what a pack holds, among the packs of a catalogue."""

    core: Core
    catalogue: Catalogue
    relied_on: set[str] = field(default_factory=set)
    """Packs that must not be lost for what was said."""

    def cover(self, header: Header) -> bool:
        """Whether every needed blob of a pack that is not in place has a good copy in one that is."""
        found = set()
        for blob in header.places:
            if self.catalogue.is_needed(blob):
                good = next((copy for copy in self._good(blob)), None)
                if good is None:
                    return False
                found.add(good)
        self.relied_on |= found
        return True

    def _good(self, blob: str) -> Iterator[str]:
        for copy in self.catalogue.copies_of(blob):
            if blob_id(read_copy(self.core, copy)) == blob:
                yield copy.pack_id
