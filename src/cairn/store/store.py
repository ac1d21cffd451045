"""The facade: one store, as `cairn.init` and `cairn.open` return it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import UsageError
from cairn.history import names, revisions
from cairn.history.commit import Commit
from cairn.io.disk import Disk
from cairn.io.explain import explained
from cairn.io.layout import Layout
from cairn.io.leases import reading
from cairn.store import config, gc, indexing, publish, reach, renaming, retention
from cairn.store.contents import Contents
from cairn.store.core import assemble
from cairn.store.findings import Report
from cairn.store.gc import GcPlan
from cairn.store.handle import RunHandle
from cairn.store.retention import Retention
from cairn.store.verify import SAMPLE, Mending, Scope, Verification
from cairn.store.verify_commits import CommitsCheck

if TYPE_CHECKING:
    from cairn.store.doctor import Check


class Store(Contents):
    """A content-addressed checkpoint store in one folder.

    Any number of processes may commit, read and collect garbage at the same time. Not safe to share between
    threads, except for reading.
    """

    # Runs.

    def run(self, name: str = revisions.DEFAULT_RUN) -> RunHandle:
        """Return a run to commit to and load from; its first commit creates it."""
        return RunHandle(self._core, names.check("run", name))

    def default_run(self, name: str | None = None) -> RunHandle:
        """Return the run named, else the only one, else `main` in an empty store. Raises NotFound."""
        return self.run(name or revisions.default_run(self._core.journal))

    def create_run(self, name: str, revision: str) -> RunHandle:
        """Make a run that starts from a commit."""
        publish.create_run(self._core, name, self.commit(revision))
        return self.run(name)

    def rename_run(self, old: str, new: str) -> None:
        """Give a run another name; the old one becomes free."""
        renaming.rename_run(self._core, old, new)

    def delete_run(self, name: str) -> None:
        """End a run. Its content goes with the next gc, except what a tag or another run needs."""
        with config.reserve_freed(self._core.disk, self._core.layout):
            publish.delete_run(self._core, name)

    def rewind(self, revision: str, run: str | None = None) -> Commit:
        """Move a run's tip back to one of its commits; the way left behind stays as an attempt."""
        target = revisions.resolve(self._core.journal, revision, run)
        chosen = revisions.choose_run(self._core.journal, run or target.run)
        publish.rewind(self._core, chosen, target)
        return target

    # Names and decisions.

    def tag(self, name: str, revision: str, *, run: str | None = None) -> Commit:
        """Set a tag; a tagged commit is kept."""
        target = self.commit(revision, run)
        publish.tag(self._core, name, target)
        return target

    def delete_tag(self, name: str) -> None:
        """Delete a tag; the commit stays in the history."""
        publish.delete_tag(self._core, name)

    def drop(
        self, revisions: Iterable[str], *, run: str | None = None, only: Collection[str] | None = None
    ) -> list[Commit]:
        """Record that the content of commits, or some components of it, is no longer kept; gc frees the space."""
        commits = [self.commit(revision, run) for revision in revisions]
        with config.reserve_freed(self._core.disk, self._core.layout):
            return retention.drop(self._core, commits, only=only, reason=None)

    def undrop(self, revisions: Iterable[str], *, run: str | None = None) -> list[Commit]:
        """Keep again what was dropped, while the bytes are still there. Raises Dropped when they are not."""
        commits = [self.commit(revision, run) for revision in revisions]
        for name in {commit.run for commit in commits}:
            run_ = self._core.journal.existing(name)
            publish.undrop(self._core, run_, [commit for commit in commits if commit.run == name])
        return commits

    def plan_retention(self, *, keep_last: int, run: str | None = None) -> Retention:
        """Return what a rule would keep, with the reasons, and what it would drop."""
        journal = self._core.journal
        runs = [journal.existing(run)] if run is not None else journal.live_runs().values()
        return retention.plan(journal, runs, keep_last=keep_last)

    # The whole store.

    def gc(
        self,
        *,
        keep_last: int | None = None,
        run: str | None = None,
        dry_run: bool = False,
        patience: float = gc.PATIENCE_SECONDS,
    ) -> GcPlan:
        """Free the space of what nothing needs; with `keep_last`, first drop all but the last commits of each run.

        `dry_run` only returns the plan. `patience` is how many seconds to wait for operations that were running;
        what they hold up stays in the trash for the next gc.
        """
        if run is not None and keep_last is None:
            raise UsageError("run: expected together with keep_last")
        rules = self.plan_retention(keep_last=keep_last, run=run) if keep_last is not None else None
        if dry_run:
            with explained("planning gc", self.path), reading(self._core.disk, self._core.layout, "gc --dry-run"):
                return gc.plan(self._core, rules)
        with config.reserve_freed(self._core.disk, self._core.layout):
            if rules is not None:
                # What gc would stop at is found before anything is recorded.
                reach.check_history(self._core)
                retention.drop(self._core, rules.dropped, only=None, reason=f"keep_last {keep_last}")
            return gc.execute(self._core, rules, patience)

    def verify(
        self,
        revisions: Iterable[str] = (),
        *,
        run: str | None = None,
        level: str = "full",
        sample: float = SAMPLE,
        max_age: timedelta | None = None,
        repair: bool = False,
        sources: Iterable[Path | str] = (),
        dry_run: bool = False,
        expect: Callable[[int], None] = lambda nbytes: None,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> Report:
        """Check everything, or what some commits need; return what is wrong.

        `level` is "full", every byte; "sample", the share `sample` of all bytes, those that were read longest ago; or
        "quick", no tensor. With `max_age`, packs whose every byte was read within that time are not read again.
        `repair` mends what it finds, from the store itself and from `sources`: copies of the store, other stores,
        folders and files; with `dry_run` it only says what it would do. The findings are those that are left.
        `expect` is told how many bytes there are to read, `advance` those that were read.
        """
        scope = Scope(level, sample, max_age)
        mending = Mending(tuple(map(Path, sources)), dry_run) if repair else None
        commits = [self.commit(revision, run) for revision in revisions]
        if commits and (repair or level == "sample" or max_age is not None):
            raise UsageError('repair, level "sample" and max_age are for the whole store: leave the revisions out')
        if not repair and (dry_run or list(sources)):
            raise UsageError("sources, dry_run: expected together with repair")
        with explained("verifying", self.path), reading(self._core.disk, self._core.layout, "verify"):
            if commits:
                return CommitsCheck(self._core, quick=level == "quick", advance=advance).run(commits)
            return Verification(self._core, scope, expect, advance).run(mending)

    def doctor(self) -> tuple[Check, ...]:
        """Say what the file system lacks, who is at work, and what was left behind.

        What is tried out leaves nothing; a store that cannot be written is only looked at.
        """
        from cairn.store.doctor import Doctor

        with explained("looking at the store", self.path):
            return Doctor(self._core).examine()

    def reindex(self) -> int:
        """Build the index anew from packs and entries; return the number of packs."""
        with explained("reindexing", self.path):
            return indexing.rebuild(self._core)


def init(path: Path | str, *, disk: Disk | None = None) -> Store:
    """Make a store in a new or empty folder. Raises Conflict when something is there."""
    disk = disk or Disk()
    layout = Layout(Path(path).absolute())
    with explained("making a store", layout.root):
        return Store(assemble(disk, layout, config.create(disk, layout), None))


def open_store(path: Path | str, *, cache: Path | None = None, disk: Disk | None = None) -> Store:
    """Open a store. Raises StoreNotFound when the folder is none, Damaged when its cairn.json was changed.

    `cache` is a local folder for the index of a store on a network file system.
    """
    disk = disk or Disk()
    layout = Layout(Path(path).absolute())
    with explained("opening", layout.root):
        return Store(assemble(disk, layout, config.read(disk, layout), cache))
