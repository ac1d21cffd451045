"""What is needed: from the entries to the blobs, through trees that are hash-checked as they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cairn.errors import Damaged, Dropped
from cairn.history import names
from cairn.history.commit import Commit
from cairn.ids import BlobRef
from cairn.objects.blobs import list_packs
from cairn.state.walk import Seen, walk
from cairn.store.core import Core


@dataclass(frozen=True, slots=True)
class Root:
    """A commit that is kept, without the components that were dropped, and what keeps it."""

    commit: Commit
    skip: tuple[str, ...]
    why: str


def mark(core: Core, without: Collection[str] = ()) -> set[str]:
    """Return the ids of all blobs that some entry needs, commits in `without` left out.

    Raises Damaged, naming what to repair or drop.
    """
    check_history(core)
    live: set[str] = set()
    seen: Seen = {}
    for root in roots(core):
        if root.commit.id in without:
            continue
        try:
            for node in walk(root.commit.root, core.tree, root.skip, seen=seen):
                live.add(node.ref.id)
        except Damaged as error:
            raise Damaged(
                f"gc stops, nothing was removed: {root.commit} is kept ({root.why}) and cannot be read: {error}; "
                f"restore the file from a copy, or give the commit up with `cairn drop {root.commit.id[:12]}`; "
                f"a tip is rewound and a tag deleted before that"
            ) from error
    return live


def roots(core: Core) -> Iterator[Root]:
    """Yield what is kept: undropped commits of runs that exist, tagged commits, commits that a run started from."""
    for name, run in core.journal.live_runs().items():
        for commit in run.state.commits.values():
            if not commit.is_dropped:
                yield Root(commit, commit.dropped, f"run {name}")
        start = run.state.commits.get(run.state.started_from or "")
        if start is not None and start.is_dropped:
            yield Root(start, (), f"run {name} started from it")
    for name, tag in core.journal.tags().items():
        yield Root(tag.commit, tag.commit.dropped, f"tag {name}")


@contextmanager
def kept(core: Core, commit: Commit) -> Iterator[None]:
    """Raise Dropped instead of Damaged when nothing keeps the commit any more: what is missing is then no damage."""
    try:
        yield
    except Damaged as error:
        parts = set(commit.dropped)
        if any(root.commit.id == commit.id and parts.issuperset(root.skip) for root in roots(core)):
            raise
        raise Dropped(f"{commit} was dropped: its content is no longer kept, and some of it is gone") from error


def check_history(core: Core) -> None:
    """Raise Damaged when some entry cannot be read: what it needs cannot be known.

    What came before the deletion of a run is needed by nothing in that run. A name that is no run, tag or entry may be
    one that was renamed, or a copy that is not complete.
    """
    _check_names(core)
    for run in core.journal.runs().values():
        error = run.damage(after=run.deleted_at)
        if error is not None:
            _stop(str(error))
    for name in core.journal.tag_logs():
        try:
            core.journal.tag(name)
        except Damaged as error:
            _stop(str(error))


def is_certain(core: Core) -> bool:
    """Whether every entry can be read, so that what is not reached is really not needed."""
    try:
        check_history(core)
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


def _check_names(core: Core) -> None:
    layout = core.layout
    for folder in (layout.runs, layout.tags):
        for name in core.disk.names(folder, strict=True):
            if not names.is_name(name):
                _stop(f"{folder / name} is no name that cairn gives; rename it, or move it out of the store")
    logs = [run.log for run in core.journal.runs().values()] + list(core.journal.tag_logs().values())
    for log in logs:
        for stranger in log.strangers_now():
            _stop(f"{stranger} is no entry; rename it, or move it out of the store")
    if not core.disk.exists(layout.runs) and list_packs(core.disk, layout):
        _stop(f"{layout.runs} is missing and there are packs; make that folder if the store really has no runs")


def _stop(reason: str) -> None:
    raise Damaged(f"gc stops, nothing was removed: what an entry needs cannot be known: {reason}")
