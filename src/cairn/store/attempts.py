"""The attempts of a run: what training left behind when it went back and took another way."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cairn.errors import NotFound, UsageError
from cairn.history.commit import Commit
from cairn.history.journal import Journal
from cairn.history.run import Run

_NAME = re.compile(r"(.+)/attempt-([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt, and the commits that are only on it and whose content is kept, newest first."""

    name: str
    commits: tuple[Commit, ...]


def attempts(run: Run) -> list[Attempt]:
    """Return the attempts of a run, in the order in which they came.

    A commit on the way to several belongs to the last of them whose end is kept. Raises Damaged where the history is.
    """
    elsewhere = {commit.id for commit in run.line()}
    found = []
    for number, end in reversed(list(enumerate(run.state.attempts, 1))):
        own = []
        for commit in run.line(end):
            if commit.id in elsewhere:
                break
            own.append(commit)
        if own and not own[0].is_dropped:
            elsewhere.update(commit.id for commit in own)
        found.append(Attempt(f"{run.name}/attempt-{number}", tuple(each for each in own if not each.is_dropped)))
    return found[::-1]


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
