"""What rules make of a line of commits.

Rules about whole commits add up: what any of them keeps, stays. Without one, all commits stay. The best by a metric
that no commit of the line has a number for is no rule. Rules about parts then
take parts from commits that stay. What was dropped before counts for nothing: `last:3` keeps three commits that are
there. So applying rules again changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from cairn.store.rules import Best, OnlyLast, R, Rule, Whole


@dataclass(frozen=True, slots=True)
class Verdict(Generic[R]):
    """What rules make of a line of commits, the newest first; of what was dropped before nothing is said."""

    kept: tuple[tuple[R, tuple[str, ...]], ...]
    """Each that stays, with every reason."""
    dropped: tuple[R, ...]
    reduced: tuple[tuple[R, tuple[OnlyLast, ...]], ...]
    """Each of those that stay but lose parts, with the rules that take them."""


def judge(line: Sequence[R], rules: Collection[Rule], always: Mapping[str, Sequence[str]]) -> Verdict[R]:
    """Apply rules to a line; `always` says by id which commits stay whole in any case, and why."""
    present = [row for row in line if "*" not in row.dropped]
    whole = [rule for rule in rules if not isinstance(rule, OnlyLast) and _is_said(rule, present)]
    reasons: dict[str, list[str]] = {} if whole else {row.id: ["no rule drops whole commits"] for row in present}
    for rule in whole:
        for row in rule.kept(present):
            reasons.setdefault(row.id, []).append(rule.reason)
    for row in present:
        if row.id in always:
            reasons.setdefault(row.id, []).extend(always[row.id])
    kept = [row for row in present if row.id in reasons]
    dropped = [row for row in present if row.id not in reasons]
    taken: dict[str, list[OnlyLast]] = {}
    for limit in _longest(rules):
        holders = [row for row in kept if not limit.part.is_in(row.dropped)]
        for row in holders[limit.count :]:
            if row.id not in always:
                taken.setdefault(row.id, []).append(limit)
    return Verdict(
        tuple((row, tuple(dict.fromkeys(reasons[row.id]))) for row in kept),
        tuple(dropped),
        tuple((row, tuple(taken[row.id])) for row in kept if row.id in taken),
    )


def _is_said(rule: Whole, present: Sequence[R]) -> bool:
    """Whether a rule says anything: a metric that is yet to come, or misspelt, must not cost all but the newest."""
    return not isinstance(rule, Best) or bool(rule.kept(present))


def _longest(rules: Iterable[Rule]) -> list[OnlyLast]:
    """The rules about parts; of several about one part that which keeps it longest."""
    found: dict[str, OnlyLast] = {}
    for rule in rules:
        if isinstance(rule, OnlyLast):
            known = found.setdefault(rule.subject, rule)
            found[rule.subject] = max(known, rule, key=lambda each: each.count)
    return list(found.values())
