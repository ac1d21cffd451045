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
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"attempt {name!r:.120}: expected RUN/attempt-N, as in main/attempt-1")
    known = attempts(journal.existing(match[1]))
    for attempt in known:
        if attempt.name == name:
            return attempt
    names = ", ".join(each.name for each in known)
    raise NotFound(f"attempt {name!r}: expected one of {names or 'no attempts: training never went back'}")
