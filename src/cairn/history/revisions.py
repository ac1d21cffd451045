"""Revisions: the words that name a commit.

`latest`, a run, a tag, `step:N`, `epoch:N`, `best:METRIC[:min|max]`, `RUN@N`, `RUN/attempt-N[@N]`, or six and more
digits of a commit id; each may be followed by `~N`, N steps back by first parents. A name wins over an id prefix.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable

from cairn.errors import NotFound, UsageError
from cairn.history import names
from cairn.history.commit import Commit
from cairn.history.commits import NONE
from cairn.history.journal import Journal
from cairn.history.replay import attempt_name
from cairn.history.run import Run

_BACK = re.compile(r"(.+)~([0-9]{1,9})", re.ASCII)
_NUMBERED = re.compile(r"(step|epoch):([0-9]{1,16})", re.ASCII)
_BEST = re.compile(r"best:(.+?)(?::(min|max))?")
_AT = re.compile(r"([^@]+)@([0-9]{1,16})", re.ASCII)
_ATTEMPT = re.compile(r"([^/@]+)/attempt-([0-9]{1,9})(?:@([0-9]{1,16}))?", re.ASCII)
_PREFIX = re.compile(r"[0-9a-f]{6,64}", re.ASCII)

DEFAULT_RUN = "main"

_MOST = 10
"""Candidates that a message names."""


def resolve(journal: Journal, revision: str, run: str | None = None) -> Commit:
    """Find the commit that a revision names. Raises NotFound with the candidates, UsageError for nonsense.

    `run` is where to look for words that do not name a run; without it, the only run there is.
    """
    if type(revision) is not str:
        raise UsageError(f"revision: expected a str such as 'latest' or 'step:100', found {revision!r:.60}")
    if match := _BACK.fullmatch(revision):
        commit = resolve(journal, match[1], run)
        return _back(journal, commit, int(match[2]))
    if revision == "latest":
        return tip_of(choose_run(journal, run))
    if match := _NUMBERED.fullmatch(revision):
        return _numbered(choose_run(journal, run), match[1], int(match[2]))
    if match := _BEST.fullmatch(revision):
        return best(choose_run(journal, run), match[1], match[2])
    if match := _ATTEMPT.fullmatch(revision):
        return _attempt(journal.existing(match[1]), int(match[2]), match[3])
    if match := _AT.fullmatch(revision):
        return _numbered(journal.existing(match[1]), "step", int(match[2]))
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
    raise NotFound(f"several runs: expected one of {', '.join(sorted(live))} to be named, with --run or run=")


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
    """Return the commit with the best value of a metric: of the current line and kept, of equals the newest.

    NaN and a missing value rank worst. Without a direction, a metric called like a loss or an error is minimised.
    """
    direction = direction or direction_of(metric)
    if direction is None:
        raise UsageError(f"best:{metric}: say which is better, best:{metric}:min or best:{metric}:max")
    found = run.best_on_line(metric, largest=direction == "max")
    if found is None:
        known = ", ".join(run.state.commits.rows.metrics.names) or "none"
        raise NotFound(f"run {run.name!r} has no number for metric {metric!r} on its current line; it has {known}")
    return found


def direction_of(metric: str) -> str | None:
    """Return which values of a metric are better, as far as its name tells: `min` for losses and errors."""
    return "min" if re.search(r"loss|error|err$|perplexity|ppl", metric) else None


def _numbered(run: Run, kind: str, number: int) -> Commit:
    found = run.on_line(number) if kind == "step" else run.on_line_in_epoch(number)
    if found is not None:
        return found
    commits = run.state.commits
    numbers = getattr(commits.rows, f"{kind}s")
    others = [row for row in range(commits.begin, len(numbers)) if numbers[row] == number][:_MOST]
    if others:
        hint = f"attempts that were left have it: {_list_attempts(run, others)}"
    else:
        on_line = {numbers[row] for part in run.line_rows() for row in part} - {NONE}
        near = sorted(heapq.nsmallest(5, on_line, key=lambda n: abs(n - number)))
        hint = f"the nearest are {', '.join(map(str, near)) or 'none at all'}"
    raise NotFound(f"run {run.name!r} has no {kind} {number} on its current line; {hint}")


def _attempt(run: Run, number: int, step: str | None) -> Commit:
    ends = run.state.attempt_rows
    if not 1 <= number <= len(ends):
        raise NotFound(f"run {run.name!r} has {_some(len(ends), 'attempt')} that were left, not {number}")
    commits = run.state.commits
    if step is None:
        return commits.at(ends[number - 1])
    row = commits.last_with("steps", int(step), commits.line(ends[number - 1]))
    if row is None:
        raise NotFound(f"{attempt_name(run.name, number)} has no step {step}; `cairn log` with that name lists it")
    return commits.at(row)


def _some(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number or 'no'} {what}s"


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
    number = re.fullmatch(r"(?:step|epoch)?[ =]?([0-9]{1,16})", name, re.ASCII)
    if number:
        raise NotFound(f"revision {name!r}: no run, tag or commit id is called like that; for a step, step:{number[1]}")
    near = [other for other in (*sorted(runs), *sorted(journal.tags())) if other.lower().startswith(name.lower()[:3])]
    raise NotFound(
        f"revision {name!r}: expected a run, a tag, latest, step:N, epoch:N, best:METRIC, RUN@N or 6 and more digits "
        f"of a commit id; the runs and tags that come near are {', '.join(near) or 'none'}"
    )


def _by_prefix(journal: Journal, prefix: str) -> Commit:
    tagged = {tag.commit.id: tag.commit for tag in journal.tags().values()}
    found = {commit_id: commit for commit_id, commit in tagged.items() if commit_id.startswith(prefix)}
    found |= {commit.id: commit for commit in journal.with_prefix(prefix)}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise NotFound(f"commit id {prefix!r} stands for several: {_list(found.values())}")
    raise NotFound(f"no run, tag or commit id begins with {prefix!r}; `cairn log` lists the commits")


def _back(journal: Journal, commit: Commit, count: int) -> Commit:
    for back in range(count):
        parent = _parent(journal, commit)
        if parent is None:
            error = journal.run(commit.run).damage() if commit.parents and names.is_name(commit.run) else None
            if error is not None:
                raise error
            raise NotFound(f"{commit} has no parent: only {back} of {count} steps back exist")
        commit = parent
    return commit


def _parent(journal: Journal, commit: Commit) -> Commit | None:
    """The first parent as the commit's own run has it, or where that began, as any other run does."""
    if not commit.parents:
        return None
    own = journal.run(commit.run).state.commits.get(commit.parents[0]) if names.is_name(commit.run) else None
    return own or journal.by_id(commit.parents[0])


def _list_attempts(run: Run, rows: list[int]) -> str:
    """Name commits that are not on the current line by their attempts, which are revisions."""
    attempts = run.attempts()
    named = []
    for row in rows:
        commit = run.state.commits.at(row)
        name = next((name for name, own in attempts.items() if row in own), None)
        named.append(f"{name}@{commit.step} ({commit.id[:12]})" if name and commit.step is not None else str(commit))
    return ", ".join(named)


def _list(commits: Iterable[Commit]) -> str:
    return ", ".join(str(commit) for commit in list(commits)[:_MOST])
