"""The facade: one store, as `cairn.init` and `cairn.open` return it.

Operations are imported where they are used: `log` and `show` must not wait for what they do not need.
"""

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
from cairn.store import config
from cairn.store.contents import Contents
from cairn.store.core import assemble
from cairn.store.defaults import PATIENCE_SECONDS, SAMPLE, THRESHOLD
from cairn.store.handle import RunHandle

if TYPE_CHECKING:
    from cairn.history.settings import StoredRule
    from cairn.store.attempts import Attempt
    from cairn.store.doctor import Check
    from cairn.store.findings import Report
    from cairn.store.gc import GcPlan
    from cairn.store.retention import Asked, Retention


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
        from cairn.store import publish

        publish.create_run(self._core, name, self.commit(revision))
        return self.run(name)

    def rename_run(self, old: str, new: str) -> None:
        """Give a run another name; the old one becomes free."""
        from cairn.store import renaming

        renaming.rename_run(self._core, old, new)

    def undelete_run(self, name: str, *, new: str | None = None) -> RunHandle:
        """Bring a deleted run back, under a new name where its own is in use again.

        Raises Dropped when some of its content is gone.
        """
        from cairn.store import undeleting

        undeleting.undelete_run(self._core, name, new)
        return self.run(new or name)

    def delete_run(self, name: str) -> None:
        """End a run. Its content goes with the next gc, except what a tag or another run needs."""
        from cairn.store import publish

        with config.reserve_freed(self._core.disk, self._core.layout):
            publish.delete_run(self._core, name)

    def rewind(self, revision: str, run: str | None = None) -> Commit:
        """Move a run's tip back to one of its commits; the way left behind stays as an attempt."""
        from cairn.store import publish

        target = revisions.resolve(self._core.journal, revision, run)
        chosen = revisions.choose_run(self._core.journal, run or target.run)
        with config.reserve_freed(self._core.disk, self._core.layout):
            publish.rewind(self._core, chosen, target)
        return target

    # Names and decisions.

    def tag(self, name: str, revision: str, *, run: str | None = None) -> Commit:
        """Set a tag; a tagged commit is kept."""
        from cairn.store import publish

        target = self.commit(revision, run)
        publish.tag(self._core, name, target)
        return target

    def delete_tag(self, name: str) -> None:
        """Delete a tag; the commit stays in the history."""
        from cairn.store import publish

        with config.reserve_freed(self._core.disk, self._core.layout):
            publish.delete_tag(self._core, name)

    def drop(
        self, revisions: Iterable[str], *, run: str | None = None, only: Collection[str] | None = None
    ) -> list[Commit]:
        """Record that the content of commits, or some parts of it, is no longer kept; gc frees the space.

        A part is a component, `optimizer`, or files of a folder, `files:optimizer.pt` or `files:*.pt`. What is left
        loads with `only=`. Raises Conflict, and drops nothing, for a whole commit that is always kept.
        """
        from cairn.store import dropping

        commits = [self.commit(revision, run) for revision in revisions]
        with config.reserve_freed(self._core.disk, self._core.layout):
            return dropping.drop(self._core, commits, only=only)

    def attempts(self, run: str | None = None) -> list[Attempt]:
        """Return the attempts of a run, with the commits of each whose content is kept."""
        from cairn.store import attempts

        return attempts.attempts(revisions.choose_run(self._core.journal, run))

    def drop_attempt(self, name: str) -> list[Commit]:
        """Drop all commits that are only on an attempt, such as `main/attempt-1`.

        Those that a tag or another run keeps stay. Raises NotFound.
        """
        from cairn.store import attempts, dropping

        attempt = attempts.named(self._core.journal, name)
        always = dropping.protected(self._core.journal)
        with config.reserve_freed(self._core.disk, self._core.layout):
            commits = [commit for commit in attempt.commits if commit.id not in always]
            return dropping.drop(self._core, commits, only=None)

    def undrop_attempt(self, name: str) -> list[Commit]:
        """Keep again all commits of an attempt that were dropped. Raises Dropped when some of their bytes are gone."""
        from cairn.store import attempts, publish

        return publish.undrop(self._core, *attempts.dropped(self._core.journal, name))

    def undrop(self, revisions: Iterable[str], *, run: str | None = None) -> list[Commit]:
        """Keep again what was dropped, while the bytes are still there; return the commits of which something was.

        Raises Dropped when the bytes are gone.
        """
        from cairn.store import publish

        commits = [self.commit(revision, run) for revision in revisions]
        kept = []
        for name in dict.fromkeys(commit.run for commit in commits):
            run_ = self._core.journal.existing(name)
            kept += publish.undrop(self._core, run_, [commit for commit in commits if commit.run == name])
        return kept

    # Rules.

    def rules(self) -> tuple[StoredRule, ...]:
        """Return the rules that every gc and `run.apply_rules` apply. Raises Damaged when they cannot be known."""
        from cairn.store import keeping

        return keeping.stored(self._core)

    def keep(self, rules: Iterable[str], *, run: str | None = None) -> tuple[StoredRule, ...]:
        """Store rules for all runs or for one: `last:3`, `every:1000`, `best:acc:max:2`, `within:7d`, `optimizer:2`.

        They drop nothing by themselves; `gc` and `run.apply_rules` do. A rule takes the place of another that says
        something of the same; returns all rules that hold then. Raises UsageError.
        """
        from cairn.store import keeping

        return keeping.keep(self._core, rules, run)

    def remove_rules(self, rules: Iterable[str] | None = None, *, run: str | None = None) -> tuple[StoredRule, ...]:
        """Take stored rules back, or all: without a run, those of all runs, too. Raises NotFound."""
        from cairn.store import keeping

        return keeping.remove(self._core, rules, run)

    def plan_retention(
        self,
        *,
        keep: Iterable[str] = (),
        keep_last: int | None = None,
        run: str | None = None,
        stored_rules: bool = True,
        drop_attempts: bool = False,
    ) -> Retention:
        """Return what rules would keep, with the reasons, and what they would drop; see `gc`."""
        from cairn.store import retention

        return retention.plan(self._core, _asked(keep, keep_last, run, stored_rules, drop_attempts))

    # The whole store.

    def gc(
        self,
        *,
        keep: Iterable[str] = (),
        keep_last: int | None = None,
        run: str | None = None,
        stored_rules: bool = True,
        drop_attempts: bool = False,
        compact: bool = False,
        threshold: float = THRESHOLD,
        dry_run: bool = False,
        patience: float = PATIENCE_SECONDS,
        expect: Callable[[int], None] = lambda nbytes: None,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> GcPlan:
        """Free the space of what nothing needs, after dropping what the rules drop.

        These are the stored ones (see `keep`), unless `stored_rules` is False, and those in `keep`, which may be for
        one run; `keep_last=3` is the rule `last:3`. A commit goes only if none of them all keeps it. `drop_attempts`
        also gives up what training left behind.

        `compact` also rewrites packs of which at least the share `threshold` is not needed, merges small ones, and
        removes second copies. `dry_run` only returns the plan. `patience` is how many seconds to wait for operations
        that were running; what they hold up stays in the trash for the next gc. `expect` is told how many bytes are to
        be rewritten, `advance` those that were.
        """
        from cairn.store import gc, retention
        from cairn.store.compaction import Wish

        asked = _asked(keep, keep_last, run, stored_rules, drop_attempts)
        if run is not None and not asked.given and not drop_attempts:
            raise UsageError("run: expected together with keep, keep_last or drop_attempts, which it limits to one run")
        applies = asked.given or drop_attempts or (stored_rules and self.rules())
        rules = retention.plan(self._core, asked) if applies else None
        wish = Wish(threshold, expect, advance) if compact else None
        if dry_run:
            with explained("planning gc", self.path), reading(self._core.disk, self._core.layout, "gc --dry-run"):
                return gc.plan(self._core, rules, wish.threshold if wish else None)
        with config.reserve_freed(self._core.disk, self._core.layout):
            rules = retention.apply(self._core, asked, rules) if rules else None
            return gc.execute(self._core, rules, patience, wish)

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
        from cairn.store.verify import Mending, Scope, Verification
        from cairn.store.verify_commits import CommitsCheck

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
        from cairn.store import indexing

        with explained("reindexing", self.path):
            return indexing.rebuild(self._core)


def _asked(
    keep: Iterable[str], keep_last: int | None, run: str | None, stored_rules: bool, drop_attempts: bool
) -> Asked:
    from cairn.store.retention import Asked
    from cairn.store.rules import parse_all

    if keep_last is not None and (type(keep_last) is not int or keep_last < 1):
        raise UsageError(f"keep_last: expected at least 1, found {keep_last!r}")
    given = [*map(str, parse_all(keep)), *([] if keep_last is None else [f"last:{keep_last}"])]
    return Asked(tuple(given), run, stored_rules, drop_attempts)


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
