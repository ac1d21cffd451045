"""verify: find what is wrong, and say where, which steps it hits and what to do.

Findings are collected, never raised, so one bad block does not hide another. Nothing is changed, unless repair is asked
for. What is read depends on the level:

- "quick": entries, and the headers of packs against their names and sizes; everything needed must stand in some header
  with its size, and the trees that lead there are hash-checked. No tensor is read.
- "sample": as quick, and a share of all bytes, those that were read longest ago.
- "full": as quick, and every byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from cairn.errors import UsageError
from cairn.ids import BlobRef
from cairn.io.leases import leased, sole_gc
from cairn.store.core import Core
from cairn.store.defaults import SAMPLE
from cairn.store.findings import Finding, Report, finding
from cairn.store.logs_check import LogsCheck
from cairn.store.needs import Hit, Needs, way_out
from cairn.store.reach import is_certain, roots
from cairn.store.repair import Repairer
from cairn.store.sources import Good
from cairn.store.stock import Stock

LEVELS = ("full", "sample", "quick")
_LOOKS = 8
_MOST_PACKS = 3


@dataclass(frozen=True, slots=True)
class Scope:
    """How much of a store is read."""

    level: str = "full"
    sample: float = SAMPLE
    """The share of all bytes that level "sample" reads."""
    max_age: timedelta | None = None
    """Packs whose every byte was read within this time are not read again."""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise UsageError(f"level {self.level!r}: expected one of {', '.join(LEVELS)}")
        if not 0 < self.sample <= 1:
            raise UsageError(f"sample {self.sample!r}: expected a share of all bytes, above 0 and up to 1")
        if self.max_age is not None and self.max_age < timedelta(0):
            raise UsageError(f"max_age {self.max_age}: expected a time that is not negative")

    @property
    def share(self) -> float:
        """The share of all bytes to read."""
        return {"quick": 0.0, "sample": self.sample, "full": 1.0}[self.level]


@dataclass(frozen=True, slots=True)
class Mending:
    """What a repair may do."""

    sources: tuple[Path, ...] = ()
    """Copies of the store, other stores, folders and files in which good bytes may be."""
    dry_run: bool = False


@dataclass
class Verification:
    """One verification of a whole store."""

    core: Core
    scope: Scope = field(default_factory=Scope)
    expect: Callable[[int], None] = lambda nbytes: None
    advance: Callable[[int], None] = lambda nbytes: None

    def __post_init__(self) -> None:
        self._stock = Stock(self.core)
        self._entries = self.core.entries()

    def run(self, mending: Mending | None = None) -> Report:
        """Look at everything, then mend if that is asked for, and say what is wrong after it."""
        conclude = self._report if mending is None else self._mender(mending)
        self._stock.take()
        due = self._stock.due(self.scope.share, self.scope.max_age)
        skipped = len(self._stock.sizes) - len(due)
        self._stock.read(due, self.expect, self.advance)
        self._note_damage(all_read=not skipped)
        report = conclude()
        self._note_damage(all_read=not skipped)
        return replace(report, packs_skipped=skipped)

    def _note_damage(self, *, all_read: bool) -> None:
        """Let no commit count on copies that are wrong; before a repair, too, beside which others commit."""
        found = [(blob, pack_id) for blob, packs in self._stock.bad.items() for pack_id in packs]
        found = [(blob, pack_id) for blob, pack_id in found if pack_id not in self._stock.in_trash]
        self.core.blobs.note_damage(found, all_there_is=all_read)

    def _mender(self, mending: Mending) -> Callable[[], Report]:
        """Prepare a repair. Its sources are opened now, before anything is read for long."""
        repairer = Repairer(self.core, self._stock, mending.sources, self._hits)
        return partial(self._mend, repairer, dry_run=mending.dry_run)

    def _mend(self, repairer: Repairer, *, dry_run: bool) -> Report:
        """Repair alone: no gc moves packs meanwhile, and what is looked up under the lease stays."""
        core = self.core
        if dry_run:
            plan = repairer.plan()
            return replace(self._report(), repair=plan)
        with sole_gc(core.disk, core.layout), leased(core.disk, core.layout, "repair") as lease:
            done = repairer.execute(lease.write_id, lease.renew)
            self._stock.take()
            self._entries = self.core.entries()
            return replace(self._report(), repair=done)

    def _hits(self, found: Mapping[str, Good]) -> Mapping[BlobRef, Hit]:
        """What is needed and not to be had, as entries tell now that some may have been put back."""
        self._entries = self.core.entries()
        return self._needs(found).hits

    def _needs(self, found: Mapping[str, Good] | None = None) -> Needs:
        """Walk over all that is kept; again when packs moved or came meanwhile, until the answer stays."""
        needs = Needs(self._stock, found or {}).walk(roots(self._entries))
        for _ in range(_LOOKS):
            before = needs.hits.keys()
            if before:
                self._stock.take()
                needs = Needs(self._stock, found or {}).walk(roots(self._entries))
            if needs.hits.keys() == before:
                break
        return needs

    def _report(self) -> Report:
        logs = LogsCheck(self.core, self._entries).run()
        needs = self._needs()
        findings = [*logs.findings, *self._pack_findings(needs), *needs.findings]
        stock = self._stock
        packs = len(stock.sizes) + len(stock.unreadable)
        if packs and not logs.commits:
            expected, found = "commits that need them", "no commit of any run"
            findings.append(finding("history", f"{packs} packs", self.core.layout.runs.name, expected, found))
        return Report(
            tuple(findings),
            logs.entries,
            logs.commits,
            packs,
            stock.inventory.blobs,
            sum(stock.sizes.values()),
            self.scope.level,
            stock.bytes_read,
        )

    def _pack_findings(self, needs: Needs) -> Iterator[Finding]:
        certain = is_certain(self.core, self._entries)
        tips = {run.state.tip for run in self._entries.live_runs().values() if run.state.tip}
        stock = self._stock
        for pack_id, found in stock.unreadable.items():
            if pack_id not in stock.in_trash:
                code = "spoilt" if certain and not needs.hits else "pack"
                expected = "a header that hashes to the pack's name"
                yield finding(code, f"pack {pack_id}", self._file(pack_id), expected, found)
        by_id = {ref.id: hit for ref, hit in needs.hits.items()}
        for blob, packs in stock.bad.items():
            yield from self._bad_copies(blob, packs, by_id.get(blob), tips, certain=certain)
        for ref, hit in needs.hits.items():
            if ref.id not in stock.bad:
                found = self._instead(hit)
                file = ", ".join(self._gone(hit)) or "packs"
                out = way_out(hit.commit, tips)
                yield finding("missing", f"blob {ref.id}", file, f"{ref.size} bytes", found, hit.steps, out)

    def _bad_copies(
        self, blob: str, packs: dict[str, str], hit: Hit | None, tips: set[str], *, certain: bool
    ) -> Iterator[Finding]:
        others = [copy for copy in self._stock.copies(blob) if copy.pack not in packs]
        for pack_id, found in packs.items():
            code, words, steps, out = "unneeded", "", [], ""
            if hit is not None:
                code, steps, out = "blob", hit.steps, way_out(hit.commit, tips)
            elif pack_id in self._stock.in_trash:
                continue  # On its way out; its damage matters only to what needs it.
            elif others:
                code, words = "copy", "; another copy is good"
            elif not certain:
                code, words = "blob", "; what entries that cannot be read need is not known"
            expected = "bytes that hash to the blob's id"
            yield finding(code, f"blob {blob}", self._file(pack_id), expected, found + words, steps, out)

    def _instead(self, hit: Hit) -> str:
        """What there is of a blob that is missing."""
        sizes = {copy.size for copy in self._stock.copies(hit.ref.id)}
        return f"{', '.join(map(str, sorted(sizes)))} bytes" if sizes else "no pack that has it"

    def _gone(self, hit: Hit) -> list[str]:
        """The packs that the entry of a commit names and that cannot be read or are not there."""
        gone = [pack_id for pack_id in hit.commit.packs if pack_id not in self._stock.sizes]
        return [self._file(pack_id) for pack_id in gone[:_MOST_PACKS]]

    def _file(self, pack_id: str) -> str:
        return str(self._stock.path(pack_id).relative_to(self.core.layout.root))
