"""The attempts of a run: what training left behind when it went back and took another way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from cairn.errors import NotFound, UsageError
from cairn.history.commit import Commit
from cairn.history.journal import Journal
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
    line = {commit.id for commit in run.line()}
    ways = [list(takewhile(lambda commit: commit.id not in line, run.line(end))) for end in run.state.attempts]
    found = []
    for number, way in enumerate(ways, 1):
        others = {each.id for other in ways if other is not way and other and not other[0].is_dropped for each in other}
        kept = [commit for commit in way if not commit.is_dropped]
        own = tuple(commit for commit in kept if commit.id not in others)
        shared = tuple(commit for commit in kept if commit.id in others)
        found.append(Attempt(f"{run.name}/attempt-{number}", own, shared))
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
