"""verify: read everything, check every hash, and say what is wrong, where, which steps it hits and what to do.

Findings are collected, never raised, so one bad block does not hide another. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from cairn.errors import CairnError, Damaged
from cairn.history.commit import Commit
from cairn.history.journal import tag_of
from cairn.history.settings import Settings, rules_of
from cairn.ids import BlobRef, blob_id
from cairn.io.layout import Trashed, pack_id_of
from cairn.io.log import Log
from cairn.objects.blobs import list_packs, list_trash
from cairn.objects.reader import PackReader
from cairn.state.walk import walk
from cairn.store import config
from cairn.store.core import Core
from cairn.store.reach import Root, roots
from cairn.store.rules import parse

_RESTORE = "restore the file from a copy of the store"
_GIVE_UP = f"{_RESTORE}; or commit the same state again, which writes it anew; or give the steps up with `cairn drop`"
_MOST_STEPS = 1000
_LOOKS = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `level` is "error", or "warning" when no content is at risk."""

    level: str
    code: str
    object: str
    file: str
    expected: str
    found: str
    hint: str
    steps: tuple[str, ...] = ()
    """The commits and paths that the damage hits."""

    def __str__(self) -> str:
        hit = f"; hits {', '.join(self.steps[:5])}{' …' if len(self.steps) > 5 else ''}" if self.steps else ""
        return f"{self.object} ({self.file}): expected {self.expected}, found {self.found}{hit}; {self.hint}"


@dataclass(frozen=True, slots=True)
class Report:
    """What was read, and what is wrong."""

    findings: tuple[Finding, ...]
    entries: int
    commits: int
    packs: int
    blobs: int
    bytes: int

    @property
    def ok(self) -> bool:
        """Whether nothing that was committed is damaged."""
        return not any(finding.level == "error" for finding in self.findings)


class _Unread(Damaged):
    """A tree that was found bad or missing before."""


@dataclass
class _Check:
    """One verification: what was good, what was bad, what was read."""

    core: Core
    findings: list[Finding] = field(default_factory=list)
    good: dict[str, int] = field(default_factory=dict)
    bad: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Blob to the places of wrong copies: file and what was found there."""
    copies: list[tuple[str, str]] = field(default_factory=list)
    """Wrong copies: blob and pack."""
    entries: int = 0
    commits: int = 0
    packs: int = 0
    bytes: int = 0

    def report(self) -> Report:
        return Report(
            tuple(self.findings), self.entries, self.commits, self.packs, len(self.good) + len(self.bad), self.bytes
        )

    def error(
        self, code: str, what: str, file: Path | str, expected: str, found: str, steps: Iterable[str] = ()
    ) -> None:
        """Add a finding that concerns content."""
        name = file if isinstance(file, str) else self.name(file)
        hit = tuple(islice(steps, _MOST_STEPS))
        hint = _RESTORE if code in ("config", "entry") else _GIVE_UP
        self.findings.append(Finding("error", code, what, name, expected, found, hint, hit))

    def warn(self, file: Path) -> None:
        """Add a finding of a file that is nobody's."""
        expected, found = "only files that the format names", "another file"
        hint = "look at it, and remove it if nobody needs it"
        self.findings.append(Finding("warning", "stranger", "a file", self.name(file), expected, found, hint))

    def name(self, path: Path) -> str:
        """A path as findings show it: within the store."""
        return str(path.relative_to(self.core.layout.root))


def verify(core: Core, commits: Iterable[Commit] | None) -> Report:
    """Check the whole store, or only what some commits need."""
    check = _Check(core)
    if commits is not None:
        _check_commits(check, [Root(commit, commit.dropped, "asked for") for commit in commits])
        return check.report()
    _check_config(check)
    _check_logs(check)
    _check_settings(check)
    # Before the packs, which are in place before the entry that needs them.
    kept = list(roots(core.entries()))
    _check_packs(check)
    _check_strangers(check)
    _check_reach(check, kept)
    core.blobs.note_damage(check.copies, all_there_is=True)
    return check.report()


def _check_config(check: _Check) -> None:
    path = check.core.layout.config
    try:
        found = config.read(check.core.disk, check.core.layout)
    except CairnError as error:
        check.error("config", "cairn.json", path, "the store's own file", str(error))
        return
    if found != check.core.config:
        check.error("config", "cairn.json", path, f"store {check.core.config.store_id}", f"store {found.store_id}")


def _check_logs(check: _Check) -> None:
    journal = check.core.entries()
    for name, run in journal.runs().items():
        before = len(check.findings)
        _check_log(check, f"run {name}", run.log)
        check.commits += len(run.state.commits)
        for entry, error in run.bad:
            what = f"entry {entry.seq} of run {name}"
            check.error("entry", what, entry.file, "an entry that makes sense", str(error))
        if run.damage(after=run.deleted_at) is None:
            # The run was deleted after its damage: nothing depends on what cannot be read.
            check.findings[before:] = [replace(finding, level="warning") for finding in check.findings[before:]]
    for name, log in journal.tag_logs().items():
        _check_log(check, f"tag {name}", log)
        for entry in log.entries(range(1, log.last + 1), damaged=lambda error: None):
            try:
                tag_of(name, entry)
            except Damaged as error:
                what = f"entry {entry.seq} of tag {name}"
                check.error("entry", what, entry.file, "an entry that makes sense", str(error))


def _check_settings(check: _Check) -> None:
    log = Settings(check.core.disk, check.core.layout).log
    log.refresh()
    _check_log(check, "the settings", log)
    for entry in log.entries(range(1, log.last + 1), damaged=lambda error: None):
        try:
            for each in rules_of(entry):
                parse(each.rule)
        except CairnError as error:
            what = f"entry {entry.seq} of the settings"
            check.error("entry", what, entry.file, "rules that this version knows", str(error))


def _check_log(check: _Check, whose: str, log: Log) -> None:
    check.entries += log.count
    for wound in log.wounds:
        check.error("entry", f"entry {wound.seq} of {whose}", wound.file, wound.expected, wound.found)
    for stranger in log.strangers:
        check.warn(stranger)


def _check_packs(check: _Check) -> None:
    """Read every pack, in the trash too.

    One that goes to the trash or back meanwhile may be missed in both, so the search ends when nothing new turns up.
    """
    disk, layout = check.core.disk, check.core.layout
    seen: set[str] = set()
    for _ in range(_LOOKS):
        packs = [pack_id for pack_id in list_packs(disk, layout) if pack_id not in seen]
        seen.update(pack_id for pack_id in packs if _check_pack(check, layout.pack(pack_id), pack_id))
        trash = [item for item in list_trash(disk, layout) if item.pack_id not in seen]
        seen.update(item.pack_id for item in trash if _check_trashed(check, item))
        if not packs and not trash:
            return


def _check_pack(check: _Check, path: Path, pack_id: str) -> bool:
    """Read a pack; False when it is not there any more."""
    try:
        reader = PackReader(check.core.disk, path, pack_id, mapped=check.core.blobs.mapped)
        _check_blobs(check, reader, path)
    except FileNotFoundError:
        return False
    except Damaged as error:
        check.error("pack", f"pack {pack_id}", path, "a header that hashes to the pack's name", str(error))
    check.packs += 1
    return True


def _check_blobs(check: _Check, reader: PackReader, path: Path) -> None:
    check.bytes += reader.header.size
    for blob, place in reader.header.places.items():
        try:
            found = blob_id(reader.bytes_at(place.offset, place.size))
        except Damaged as error:
            check.bad.setdefault(blob, []).append((check.name(path), str(error)))
            continue
        if found == blob:
            check.good[blob] = place.size
        else:
            check.bad.setdefault(blob, []).append((check.name(path), f"bytes that hash to {found}"))
            check.copies.append((blob, reader.header.pack_id))


def _check_trashed(check: _Check, item: Trashed) -> bool:
    """A pack on its way out still counts for what needs it; its own damage matters only then."""
    before = len(check.findings)
    is_there = _check_pack(check, check.core.layout.trashed(item), item.pack_id)
    del check.findings[before:]
    return is_there


def _check_strangers(check: _Check) -> None:
    disk, layout = check.core.disk, check.core.layout
    for folder in disk.names(layout.packs):
        for name in disk.names(layout.packs / folder):
            pack_id = pack_id_of(name)
            if pack_id is None or not pack_id.startswith(folder):
                check.warn(layout.packs / folder / name)


def _check_reach(check: _Check, kept: list[Root]) -> None:
    """Report bad and missing blobs with the commits and paths they hit."""
    hits: dict[BlobRef, list[str]] = {}
    for root in kept:
        for ref, where in _needs(check, root):
            if check.good.get(ref.id) != ref.size:
                hits.setdefault(ref, []).append(where)
    by_id = {ref.id: steps for ref, steps in hits.items()}
    for blob, places in check.bad.items():
        copy = "; another copy is good" if blob in check.good else ""
        for file, found in places:
            steps = by_id.get(blob, ())
            check.error("blob", f"blob {blob}", file, "bytes that hash to the blob's id", found + copy, steps)
    for ref, steps in hits.items():
        if ref.id not in check.bad:
            found = f"{check.good[ref.id]} bytes" if ref.id in check.good else "no pack that has it"
            check.error("missing", f"blob {ref.id}", "packs", f"{ref.size} bytes", found, steps)


def _needs(check: _Check, root: Root) -> Iterator[tuple[BlobRef, str]]:
    """What a commit needs, as far as its trees can be read, with the words for it."""

    def read_tree(ref: BlobRef) -> bytes:
        if check.good.get(ref.id) != ref.size:
            raise _Unread(f"tree {ref.id}")
        return check.core.tree(ref)

    def damaged(path: str, error: Damaged) -> None:
        # A tree that could not be read comes from the walk and is reported as a blob. One whose hash is right and
        # whose text is none was never written by cairn.
        if not isinstance(error, _Unread):
            check.error("tree", f"{root.commit} {path}", "packs", "trees as the format spells them", str(error))

    try:
        for node in walk(root.commit.root, read_tree, root.skip, damaged=damaged):
            yield node.ref, f"{root.commit.run} {_step(root.commit)} {node.path}"
    except Damaged as error:
        damaged("manifest", error)


def _check_commits(check: _Check, kept: list[Root]) -> None:
    for root in kept:
        check.commits += 1
        before = len(check.findings)
        unread: list[tuple[str, Damaged]] = []
        try:
            nodes = walk(root.commit.root, check.core.tree, root.skip, damaged=partial(_note, unread))
            for node in nodes:
                if node.ref.id not in check.good and node.ref.id not in check.bad:
                    _check_one(check, node.ref, f"{root.commit.run} {_step(root.commit)} {node.path}")
        except Damaged as error:
            unread.append(("manifest", error))
        # A tree whose bytes are wrong was reported as a blob; one whose bytes are right may still be no tree.
        if len(check.findings) == before and root.commit.manifest not in check.bad:
            for path, found in unread:
                check.error("tree", f"{root.commit} {path}", "packs", "trees as the format spells them", str(found))


def _note(unread: list[tuple[str, Damaged]], path: str, error: Damaged) -> None:
    unread.append((path, error))


def _check_one(check: _Check, ref: BlobRef, where: str) -> None:
    try:
        check.core.blobs.read(ref)
    except Damaged as error:
        check.bad[ref.id] = []
        reader = check.core.blobs.find(ref.id, everywhere=True)
        code, file = ("blob", reader.path) if reader else ("missing", "packs")
        check.error(code, f"blob {ref.id}", file, f"{ref.size} bytes that hash to it", str(error), (where,))
    else:
        check.good[ref.id] = ref.size
        check.bytes += ref.size


def _step(commit: Commit) -> str:
    return f"commit {commit.id[:12]}" if commit.step is None else f"step {commit.step}"
