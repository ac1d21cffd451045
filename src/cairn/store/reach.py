"""What is needed: from the entries to the blobs, through trees that are hash-checked as they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from cairn.errors import Damaged, Dropped
from cairn.history import names
from cairn.history.commit import Commit
from cairn.history.commits import NONE
from cairn.history.journal import Journal
from cairn.history.replay import ALL
from cairn.ids import BlobRef, blob_id
from cairn.objects.blobs import list_packs
from cairn.objects.catalogue import Catalogue, Copy
from cairn.state.walk import Seen, walk
from cairn.store.core import Core

NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Root:
    """A commit that is kept, without the parts that were dropped, and what keeps it."""

    commit: Commit
    skip: tuple[str, ...]
    why: str


def take_stock(core: Core) -> Catalogue:
    """Read the headers of all packs that are in place."""
    catalogue = Catalogue()
    for pack_id, header in core.blobs.headers():
        if isinstance(header, Damaged):
            catalogue.unreadable.append(pack_id)
        else:
            catalogue.add(header)
    return catalogue


def mark(core: Core, catalogue: Catalogue, without: Mapping[str, tuple[str, ...]] = NOTHING) -> None:
    """Note every blob that some entry needs in the catalogue, without the parts of commits that `without` says.

    Raises Damaged, naming what to repair or drop.
    """
    journal = core.entries()
    check_history(core, journal)
    seen: Seen = {}
    read = partial(read_tree, core, catalogue)
    for root in roots(journal):
        skip = (*root.skip, *without.get(root.commit.id, ()))
        if ALL in skip:
            continue
        try:
            for node in walk(root.commit.root, read, skip, seen=seen):
                catalogue.need(node.ref.id)
        except Damaged as error:
            raise Damaged(
                f"gc stops, nothing was removed: {root.commit} is kept ({root.why}) and cannot be read: {error}; "
                f"restore the file from a copy, or give the commit up with `cairn drop {root.commit.id[:12]}`; "
                f"a tip is rewound and a tag deleted before that"
            ) from error


def read_tree(core: Core, catalogue: Catalogue, ref: BlobRef) -> bytes:
    """Return a tree's bytes, hash-checked, without keeping its pack open: a store may have many. Raises Damaged."""
    for copy in catalogue.copies_of(ref.id):
        data = read_copy(core, copy)
        if len(data) == ref.size and blob_id(data) == ref.id:
            return data
    return core.tree(ref)


def read_copy(core: Core, copy: Copy) -> bytes:
    """Return the bytes of a copy, unchecked; none when they cannot be read."""
    try:
        return core.disk.read_at(core.layout.pack(copy.pack_id), copy.offset, copy.size)
    except OSError:
        return b""


def roots(journal: Journal) -> Iterator[Root]:
    """Yield what is kept: undropped commits of runs that exist, tagged commits, commits that a run started from."""
    for name, run in journal.live_runs().items():
        commits = run.state.commits
        rows = range(commits.begin, len(commits.rows))
        for commit in commits.values_at(row for row in rows if ALL not in commits.dropped(row)):
            yield Root(commit, commit.dropped, f"run {name}")
        start = run.state.started_row
        if start != NONE and ALL in commits.dropped(start):
            yield Root(commits.at(start), (), f"run {name} started from it")
    for name, tag in journal.tags().items():
        yield Root(tag.commit, tag.commit.dropped, f"tag {name}")


@contextmanager
def kept(core: Core, commit: Commit) -> Iterator[None]:
    """Raise Dropped instead of Damaged when nothing keeps the commit any more: what is missing is then no damage."""
    try:
        yield
    except Damaged as error:
        if is_kept(core, commit):
            raise
        raise gone(commit) from error


def is_kept(core: Core, commit: Commit) -> bool:
    """Whether something keeps a commit, but for the parts that it is without."""
    parts = set(commit.dropped)
    return any(root.commit.id == commit.id and parts.issuperset(root.skip) for root in roots(core.journal))


def gone(commit: Commit) -> Dropped:
    """Return the error for a commit that nothing keeps and that cannot be read."""
    return Dropped(f"{commit} was dropped: its content is no longer kept, and some of it is gone")


def check_history(core: Core, journal: Journal) -> None:
    """Raise Damaged when some entry cannot be read: what it needs cannot be known.

    What came before the deletion of a run is needed by nothing in that run. A name that is no run, tag or entry may be
    one that was renamed, or a copy that is not complete.
    """
    _check_names(core, journal)
    for run in journal.runs().values():
        error = run.damage(after=run.deleted_at)
        if error is not None:
            _stop(str(error))
    for name in journal.tag_logs():
        try:
            journal.tag(name)
        except Damaged as error:
            _stop(str(error))


def is_certain(core: Core, journal: Journal) -> bool:
    """Whether every entry can be read, so that what is not reached is really not needed."""
    try:
        check_history(core, journal)
    except Damaged:
        return False
    return True


def blobs_of(core: Core, manifest: BlobRef, skip: Collection[str]) -> Iterator[BlobRef]:
    """Yield every blob a commit needs, once."""
    known: set[str] = set()
    for node in walk(manifest, core.tree, skip, seen={}):
        if node.ref.id not in known:
            known.add(node.ref.id)
            yield node.ref


def _check_names(core: Core, journal: Journal) -> None:
    layout = core.layout
    for folder in (layout.runs, layout.tags):
        for name in core.disk.names(folder, strict=True):
            if not names.is_name(name):
                _stop(f"{folder / name} is no name that cairn gives; rename it, or move it out of the store")
    logs = [run.log for run in journal.runs().values()] + list(journal.tag_logs().values())
    for log in logs:
        for stranger in log.strangers_now():
            _stop(f"{stranger} is no entry; rename it, or move it out of the store")
    if not core.disk.exists(layout.runs) and list_packs(core.disk, layout):
        _stop(f"{layout.runs} is missing and there are packs; make that folder if the store really has no runs")


def _stop(reason: str) -> None:
    raise Damaged(f"gc stops, nothing was removed: what an entry needs cannot be known: {reason}")
