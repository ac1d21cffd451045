"""What rules keep and drop, and why; and the recording of what they drop.

The rules of a run are those that are stored for all runs or for it, and those that are given with the call. A commit
goes only if none of them keeps it. The newest commit of a run, tagged commits and those that a run started from stay
whole in any case; attempts stay until they are dropped on purpose.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from cairn.errors import Conflict, Damaged
from cairn.history.commit import Commit
from cairn.history.replay import ALL
from cairn.history.run import Run
from cairn.history.selection import Brief, Selection
from cairn.history.settings import StoredRule
from cairn.store import keeping
from cairn.store.attempts import Attempt, attempts
from cairn.store.core import Core
from cairn.store.dropping import Decision, check_free, has_part, protected, record
from cairn.store.keeping import run_of
from cairn.store.reach import check_history
from cairn.store.rules import OnlyLast, Rule, parse
from cairn.store.verdict import judge

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """Which rules to apply: those given, to one run or to all, and the stored ones unless they are left out."""

    given: tuple[str, ...] = ()
    run: str | None = None
    stored: bool = True
    drop_attempts: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """A commit that stays, and every reason why."""

    commit: Commit
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """A commit that stays and loses parts, and why."""

    commit: Commit
    parts: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retention:
    """What rules keep and drop."""

    stored: tuple[StoredRule, ...]
    given: tuple[StoredRule, ...]
    kept: tuple[Kept, ...]
    dropped: Selection
    """Commits that go: no rule keeps them, or they belong to an attempt that is given up."""
    reduced: tuple[Reduced, ...]
    attempts: tuple[Attempt, ...]
    """Attempts that stay."""
    given_up: tuple[Attempt, ...]
    """Attempts that go, but for commits in them that are always kept."""

    @property
    def drops_nothing(self) -> bool:
        """Whether all is dropped already that is to be."""
        return not self.dropped and not self.reduced

    @property
    def without(self) -> dict[str, tuple[str, ...]]:
        """What is no longer kept, by commit."""
        whole = {brief.id: (ALL,) for brief in self.dropped.briefs}
        return whole | {each.commit.id: each.parts for each in self.reduced}


def plan(core: Core, asked: Asked, only: str | None = None) -> Retention:
    """Say what the rules would do to each run that has any, or only to one. Raises Damaged, UsageError, NotFound."""
    stored = keeping.stored(core) if asked.stored else ()
    given = tuple(StoredRule(str(parse(text)), asked.run) for text in asked.given)
    if asked.run is not None:
        core.journal.existing(asked.run)
    runs = [core.journal.existing(only)] if only is not None else core.journal.live_runs().values()
    ruled = [(run, _rules_of(core, run, (*stored, *given))) for run in runs]
    always = protected(core.journal) if stored or given or asked.drop_attempts else {}
    plans = []
    for run, rules in ruled:
        drop_attempts = asked.drop_attempts and asked.run in (None, run.name)
        if rules or drop_attempts:
            plans.append(_plan_run(core, run, rules, always, drop_attempts=drop_attempts))
    return Retention(
        stored=stored,
        given=given,
        kept=tuple(kept for each in plans for kept in each.kept),
        dropped=Selection(brief for each in plans for brief in each.dropped.briefs),
        reduced=tuple(reduced for each in plans for reduced in each.reduced),
        attempts=tuple(attempt for each in plans for attempt in each.attempts),
        given_up=tuple(attempt for each in plans for attempt in each.given_up),
    )


def apply(core: Core, asked: Asked, found: Retention, only: str | None = None) -> Retention:
    """Record what a plan drops; nothing is written when that was done before.

    What came while the rules were judged (a tag, a rewind, another rule) lets them be judged again.
    """
    for tries_left in reversed(range(_TRIES)):
        if found.drops_nothing:
            break
        # What gc would stop at is found before anything is recorded.
        check_history(core, core.journal)
        _check_readable(found.dropped)
        try:
            _record(core, asked, found)
            break
        except Conflict:
            if not tries_left:
                raise
        found = plan(core, asked, only)
    return found


def _check_readable(commits: Iterable[Commit]) -> None:
    """Raise Damaged when the entry of one of the commits cannot be read any more."""
    for _ in commits:
        pass


def _rules_of(core: Core, run: Run, stated: Iterable[StoredRule]) -> list[Rule]:
    return [parse(each.rule) for each in stated if each.run is None or run_of(core.journal, each) == run.name]


def _plan_run(
    core: Core, run: Run, rules: list[Rule], always: Mapping[str, list[str]], *, drop_attempts: bool
) -> Retention:
    run.check_tip()
    verdict = judge(run.kept_line(), rules, always)
    commits = {commit.id: commit for commit in Selection(brief for brief, _ in verdict.kept)}
    left = [each for each in attempts(run) if each.commits or each.shared]
    aside = {commit.id: commit for each in left for commit in (*each.commits, *each.shared)}.values()
    stay = [Kept(commit, tuple(always[commit.id])) for commit in aside if commit.id in always]
    rows = [run.state.commits.row_of(commit.id) for commit in aside if commit.id not in always]
    gone = [Brief(run.name, run.state.commits, row) for row in rows if row is not None]
    kept = [Kept(commits[brief.id], reasons) for brief, reasons in verdict.kept]
    reduced = [_reduced(core, commits[brief.id], limits) for brief, limits in verdict.reduced]
    return Retention(
        stored=(),
        given=(),
        kept=(*kept, *stay) if drop_attempts else tuple(kept),
        dropped=Selection((*verdict.dropped, *gone) if drop_attempts else verdict.dropped),
        reduced=tuple(each for each in reduced if each.parts),
        attempts=() if drop_attempts else tuple(left),
        given_up=tuple(left) if drop_attempts else (),
    )


def _reduced(core: Core, commit: Commit, limits: Iterable[OnlyLast]) -> Reduced:
    """What a commit loses: the parts that it has."""
    found = [limit for limit in limits if _has(core, commit, limit)]
    return Reduced(commit, tuple(limit.subject for limit in found), tuple(limit.reason for limit in found))


def _has(core: Core, commit: Commit, limit: OnlyLast) -> bool:
    try:
        return has_part(core, commit, limit.part)
    except Damaged:
        return False  # What cannot be read is given up by a person, not by a rule; verify and gc name it.


def _record(core: Core, asked: Asked, found: Retention) -> None:
    tips: dict[str, Commit] = {}
    for kept in found.kept:
        tips.setdefault(kept.commit.run, kept.commit)  # The newest comes first, and is always kept.

    def check(core: Core, run: Run, commits: Collection[Commit | Brief]) -> None:
        check_free(core.journal, commits)
        if asked.stored and keeping.stored(core) != found.stored:
            raise Conflict("the rules were changed by somebody else meanwhile; nothing was dropped; try again")
        # On a line that only went on, what was judged stands where it stood.
        if not run.is_on_line(tips[run.name], None):
            raise Conflict(f"the run moved: {run.name!r} went back while rules were applied to it; try again")

    names = [*(brief.run for brief in found.dropped.briefs), *(each.commit.run for each in found.reduced)]
    for name in dict.fromkeys(names):
        record(core, core.journal.existing(name), list(_decisions(found, name)), check)


def _decisions(found: Retention, run: str) -> Iterator[Decision]:
    """One decision for whole commits, one for those of attempts, and one for each set of parts."""
    whole = [brief for brief in found.dropped.briefs if brief.run == run]
    left = {commit.id for attempt in found.given_up for commit in (*attempt.commits, *attempt.shared)}
    ruled = [brief for brief in whole if brief.id not in left]
    if ruled:
        yield ruled, None, f"no rule keeps {'it' if len(ruled) == 1 else 'them'}"
    if len(ruled) < len(whole):
        yield [brief for brief in whole if brief.id in left], None, "attempts are given up"
    groups: dict[tuple[str, ...], list[Reduced]] = {}
    for each in found.reduced:
        if each.commit.run == run:
            groups.setdefault(each.parts, []).append(each)
    for parts, group in groups.items():
        yield [each.commit for each in group], list(parts), "; ".join(group[0].reasons)
