"""The attempts of a run: what training left behind when it went back and took another way."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from cairn.errors import NotFound, UsageError
from cairn.history.commit import Commit
from cairn.history.journal import Journal
from cairn.history.replay import ALL
from cairn.history.run import Run

_NAME = re.compile(r"(.+)/attempt-([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt, and its commits whose content is kept, newest first."""

    name: str
    commits: tuple[Commit, ...]
    """Those that are only on it."""
    shared: tuple[Commit, ...] = ()
    """Those on the way to another attempt as well; they go with the last of these."""


def attempts(run: Run) -> list[Attempt]:
    """Return the attempts of a run, in the order in which they came. Raises Damaged where the history is."""
    commits = run.state.commits
    ways = run.attempts()
    kept = {name: [row for row in rows if ALL not in commits.dropped(row)] for name, rows in ways.items()}
    users = Counter(row for rows in ways.values() if ALL not in commits.dropped(rows[0]) for row in rows)
    found = []
    for name, rows in kept.items():
        is_user = ALL not in commits.dropped(ways[name][0])
        own = [row for row in rows if users[row] == is_user]
        shared = [row for row in rows if users[row] != is_user]
        found.append(Attempt(name, tuple(commits.values_at(own)), tuple(commits.values_at(shared))))
    return found


def named(journal: Journal, name: str) -> Attempt:
    """Find an attempt by its name. Raises UsageError, NotFound."""
    run = _run_of(journal, name)
    return next(attempt for attempt in attempts(run) if attempt.name == name)


def dropped(journal: Journal, name: str) -> tuple[Run, list[Commit]]:
    """Return the run of an attempt, and what was dropped of it, newest first. Raises UsageError, NotFound."""
    run = _run_of(journal, name)
    commits = run.state.commits
    return run, list(commits.values_at(row for row in run.attempts()[name] if commits.dropped(row)))


def _run_of(journal: Journal, name: str) -> Run:
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"attempt {name!r:.120}: expected RUN/attempt-N, as in main/attempt-1")
    run = journal.existing(match[1])
    known = run.attempts()
    if name not in known:
        words = ", ".join(known) or "no attempts: training never went back"
        raise NotFound(f"attempt {name!r}: expected one of {words}")
    return run
