"""What keeps a store in order: rules, gc, verification and repair.

Operations are imported where they are used, as in `cairn.store.store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import UsageError
from cairn.io.explain import explained
from cairn.io.leases import reading
from cairn.store import config
from cairn.store.contents import Contents
from cairn.store.defaults import PATIENCE_SECONDS, SAMPLE, THRESHOLD

if TYPE_CHECKING:
    from cairn.history.settings import StoredRule
    from cairn.store.doctor import Check
    from cairn.store.findings import Report
    from cairn.store.gc import GcPlan
    from cairn.store.retention import Asked, Retention


class Upkeep(Contents):
    """A store that is looked after."""

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
