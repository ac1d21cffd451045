"""Revisions: the words that name a commit.

`latest`, a run, a tag, `step:N`, `epoch:N`, `best:METRIC[:min|max]`, `RUN@N`, `RUN/attempt-N`, or six and more digits
of a commit id; each may be followed by `~N`, N steps back by first parents. A name wins over an id prefix.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from cairn.errors import NotFound, UsageError
from cairn.history import names
from cairn.history.commit import Commit
from cairn.history.journal import Journal
from cairn.history.run import Run

_BACK = re.compile(r"(.+)~([0-9]{1,9})", re.ASCII)
_NUMBERED = re.compile(r"(step|epoch):([0-9]{1,16})", re.ASCII)
_BEST = re.compile(r"best:(.+?)(?::(min|max))?")
_AT = re.compile(r"([^@]+)@([0-9]{1,16})", re.ASCII)
_ATTEMPT = re.compile(r"(.+)/attempt-([0-9]{1,9})", re.ASCII)
_PREFIX = re.compile(r"[0-9a-f]{6,64}", re.ASCII)

DEFAULT_RUN = "main"


def resolve(journal: Journal, revision: str, run: str | None = None) -> Commit:
    """Find the commit that a revision names. Raises NotFound with the candidates, UsageError for nonsense.

    `run` is where to look for words that do not name a run; without it, the only run there is.
    """
    if match := _BACK.fullmatch(revision):
        commit = resolve(journal, match[1], run)
        return _back(journal, commit, int(match[2]))
    if revision == "latest":
        return tip_of(choose_run(journal, run))
    if match := _NUMBERED.fullmatch(revision):
        return _numbered(choose_run(journal, run), match[1], int(match[2]))
    if match := _BEST.fullmatch(revision):
        return best(choose_run(journal, run), match[1], match[2])
    if match := _AT.fullmatch(revision):
        return _numbered(journal.existing(match[1]), "step", int(match[2]))
    if match := _ATTEMPT.fullmatch(revision):
        return _attempt(journal.existing(match[1]), int(match[2]))
    return _named(journal, revision)


def choose_run(journal: Journal, name: str | None) -> Run:
    """Return the run to work on: the one named, or the only one. Raises NotFound with the names."""
    if name is not None:
        return journal.existing(name)
    live = journal.live_runs()
    if len(live) == 1:
        return next(iter(live.values()))
    if not live:
        raise NotFound("the store has no commits yet; make one with `cairn commit` or `run.commit(…)`")
    raise NotFound(f"several runs: expected one of {', '.join(sorted(live))} to be named")


def default_run(journal: Journal) -> str:
    """Return the name of the run to work on when none is named: the only one, else `main` in an empty store."""
    return choose_run(journal, None).name if journal.live_runs() else DEFAULT_RUN


def tip_of(run: Run) -> Commit:
    """Return a run's newest commit. Raises NotFound, or Damaged when that cannot be known."""
    run.check_tip()
    if run.tip is None:
        raise NotFound(f"run {run.name!r} has no commits")
    return run.tip


def best(run: Run, metric: str, direction: str | None) -> Commit:
    """Return the commit with the best value of a metric: of the current line, of equals the newest.

    NaN and a missing value rank worst. Without a direction, a metric called like a loss or an error is minimised.
    """
    direction = direction or direction_of(metric)
    if direction is None:
        raise UsageError(f"best:{metric}: say which is better, best:{metric}:min or best:{metric}:max")
    sign = 1 if direction == "min" else -1
    ranked = [c for c in run.line() if metric in c.metrics and not math.isnan(c.metrics[metric])]
    if not ranked:
        known = sorted({name for commit in run.line() for name in commit.metrics})
        raise NotFound(f"run {run.name!r} has no number for metric {metric!r}; it has {', '.join(known) or 'none'}")
    return min(ranked, key=lambda commit: sign * commit.metrics[metric])


def direction_of(metric: str) -> str | None:
    """Return which values of a metric are better, as far as its name tells: `min` for losses and errors."""
    return "min" if re.search(r"loss|error|err$|perplexity|ppl", metric) else None


def _numbered(run: Run, kind: str, number: int) -> Commit:
    found = run.on_line(number) if kind == "step" else None
    if kind == "epoch":
        found = next((commit for commit in run.line() if commit.epoch == number), None)
    if found is not None:
        return found
    others = [c for c in run.state.commits.values() if getattr(c, kind) == number]
    if others:
        hint = f"it is on an attempt that was left: {_list(others)}; name it by its id"
    else:
        numbers = sorted({n for c in run.line() if (n := getattr(c, kind)) is not None}, key=lambda n: abs(n - number))
        hint = f"the nearest are {', '.join(map(str, sorted(numbers[:5]))) or 'none at all'}"
    raise NotFound(f"run {run.name!r} has no {kind} {number} on its current line; {hint}")


def _attempt(run: Run, number: int) -> Commit:
    attempts = run.state.attempts
    if not 1 <= number <= len(attempts):
        raise NotFound(f"run {run.name!r} has {len(attempts)} attempts that were left, not {number}")
    return run.state.commits[attempts[number - 1]]


def _named(journal: Journal, name: str) -> Commit:
    runs = journal.live_runs()
    if name in runs:
        return tip_of(runs[name])
    if names.is_name(name):
        run = journal.run(name)
        error = run.damage(after=run.deleted_at)
        if error is not None:
            raise error
    tag = journal.tag(name)
    if tag is not None:
        return tag.commit
    if _PREFIX.fullmatch(name):
        return _by_prefix(journal, name)
    near = [other for other in (*sorted(runs), *sorted(journal.tags())) if other.lower().startswith(name.lower()[:3])]
    raise NotFound(
        f"revision {name!r}: expected a run, a tag, latest, step:N, epoch:N, best:METRIC, RUN@N or 6 and more digits "
        f"of a commit id; the runs and tags that come near are {', '.join(near) or 'none'}"
    )


def _by_prefix(journal: Journal, prefix: str) -> Commit:
    tagged = {tag.commit.id: tag.commit for tag in journal.tags().values()}
    known = tagged | {commit.id: commit for commit in journal.commits()}
    found = {commit_id: commit for commit_id, commit in known.items() if commit_id.startswith(prefix)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise NotFound(f"commit id {prefix!r} stands for several: {_list(found.values())}")
    raise NotFound(f"no run, tag or commit id begins with {prefix!r}; `cairn log` lists the commits")


def _back(journal: Journal, commit: Commit, count: int) -> Commit:
    for back in range(count):
        parent = journal.by_id(commit.parents[0]) if commit.parents else None
        if parent is None:
            raise NotFound(f"{commit} has no parent: only {back} of {count} steps back exist")
        commit = parent
    return commit


def _list(commits: Iterable[Commit]) -> str:
    return ", ".join(str(commit) for commit in list(commits)[:10])
