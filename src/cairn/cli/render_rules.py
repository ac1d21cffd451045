"""Rules, and what they keep and drop, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cairn.cli import text
from cairn.cli.render import optional

if TYPE_CHECKING:
    from cairn.history.commit import Commit
    from cairn.history.settings import StoredRule
    from cairn.store.attempts import Attempt
    from cairn.store.retention import Retention

SHOWN = 10
"""Rows of a kind that people are shown; JSON has all."""
_READ = SHOWN + 1
"""One more takes no more room than saying that there is one."""

Cells = tuple[str, ...]


def rules(stored: Iterable[StoredRule]) -> str:
    """One line for each stored rule."""
    rows = [(text.safe(each.rule), text.safe(each.run or "all")) for each in stored]
    return text.table(("rule", "runs"), rows) if rows else ""


def retention(found: Retention, *, rules: bool = True) -> str:
    """Say which rules there are, what they keep, each with its reasons, what they drop, and which attempts stay."""
    kept = [_row("keep", kept.commit, ", ".join(kept.reasons)) for kept in found.kept[:_READ]]
    reduced = [_row("reduce", each.commit, ", ".join(each.reasons)) for each in found.reduced[:_READ]]
    given_up = {made.id: each.name for each in found.given_up for made in (*each.shared, *each.commits)}
    dropped = [_row("drop", made, _because(given_up.get(made.id))) for made in found.dropped[:_READ]]
    attempts = [
        _row("keep", (*each.commits, *each.shared)[0], f"attempt {_attempt(each)}, until it is dropped on purpose")
        for each in found.attempts
    ]
    rows = [
        *some(kept, len(found.kept)),
        *some(attempts, len(attempts)),
        *some(reduced, len(found.reduced)),
        *some(dropped, len(found.dropped)),
    ]
    return "\n".join(
        part
        for part in (
            _in_force(found) if found.stored and rules else "",
            text.table(("rules", "commit", "run", "step", "because"), rows, (3,)) if rows else "",
        )
        if part
    )


def effect(found: Retention) -> str:
    """Say in a sentence what the next gc would drop."""
    if found.drops_nothing:
        return "The next `cairn gc` drops nothing by these rules."
    parts = [f"{_commits(found.dropped)}"] if found.dropped else []
    parts += [f"parts of {_commits([each.commit for each in found.reduced])}"] if found.reduced else []
    return f"The next `cairn gc` drops {' and '.join(parts)} by these rules."


def some(rows: Sequence[Cells], count: int) -> list[Cells]:
    """The first rows of a kind, of which there are so many, and how many more there are."""
    if count <= SHOWN + 1:
        return list(rows)
    more = f"… and {count - SHOWN} more"
    return [*rows[:SHOWN], (rows[0][0], more, *[""] * (len(rows[0]) - 2))]


def _in_force(found: Retention) -> str:
    stored = ", ".join(text.safe(str(each)) for each in found.stored)
    given = ", ".join(text.safe(str(each)) for each in found.given)
    return f"Stored rules: {stored}" + (f"; and given here: {given}" if given else "")


def _because(attempt: str | None) -> str:
    return "no rule keeps it" if attempt is None else f"{attempt} is given up"


def _attempt(each: Attempt) -> str:
    shared = f" and {len(each.shared)} shared with another" if each.shared else ""
    return f"{each.name}, {_commits(each.commits)}{shared}"


def _row(verb: str, made: Commit, reason: str) -> Cells:
    return verb, text.short(made.id), made.run, optional(made.step), text.safe(reason)


def _commits(commits: Sequence[object]) -> str:
    return text.count(len(commits), "commit")
