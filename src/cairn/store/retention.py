"""Dropping: the recorded decision that a commit's content is no longer kept. The commit stays in the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cairn.errors import Conflict, NotFound, UsageError
from cairn.history.commit import Commit
from cairn.history.journal import Journal
from cairn.history.run import Run
from cairn.io.explain import explained
from cairn.io.leases import leased
from cairn.state.walk import read_manifest
from cairn.store.core import Core


@dataclass(frozen=True, slots=True)
class Kept:
    """A commit that stays, and every reason why."""

    commit: Commit
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retention:
    """What rules would keep and drop."""

    kept: tuple[Kept, ...]
    dropped: tuple[Commit, ...]


def protected(journal: Journal) -> dict[str, list[str]]:
    """Return the commits that are always kept, with why: tips, tagged ones, those that a run started from."""
    why: dict[str, list[str]] = {}
    for name, run in journal.live_runs().items():
        if run.state.tip:
            why.setdefault(run.state.tip, []).append(f"newest of run {name}")
        if run.state.started_from:
            why.setdefault(run.state.started_from, []).append(f"run {name} started from it")
    for name, tag in journal.tags().items():
        why.setdefault(tag.commit.id, []).append(f"tag {name}")
    return why


def plan(journal: Journal, runs: Iterable[Run], *, keep_last: int) -> Retention:
    """Apply a rule to the current line of each run. Attempts stay until they are dropped on purpose."""
    if type(keep_last) is not int or keep_last < 1:
        raise UsageError(f"keep_last: expected at least 1, found {keep_last!r}")
    always = protected(journal)
    kept: list[Kept] = []
    dropped: list[Commit] = []
    for run in runs:
        line = [commit for commit in run.line() if not commit.is_dropped]
        for number, commit in enumerate(line):
            reasons = ([f"last {keep_last}"] if number < keep_last else []) + always.get(commit.id, [])
            if reasons:
                kept.append(Kept(commit, tuple(reasons)))
            else:
                dropped.append(commit)
    return Retention(tuple(kept), tuple(dropped))


def drop(core: Core, commits: Iterable[Commit], *, only: Iterable[str] | None, reason: str | None) -> list[Commit]:
    """Record that commits, or some components of them, are no longer kept: one entry in each run.

    Raises Conflict for a whole commit that is always kept; nothing is dropped then.
    """
    commits = list(commits)
    parts = sorted(set(only)) if only is not None else None
    for commit in commits if parts else ():
        _check_parts(core, commit, parts or [])
    groups: dict[str, list[Commit]] = {}
    for commit in commits:
        groups.setdefault(commit.run, []).append(commit)
    if parts is None:
        _check_free(core.journal, [commit for group in groups.values() for commit in group])
    done: list[Commit] = []
    for name, group in groups.items():
        run = core.journal.existing(name)
        new = [commit for commit in group if _is_news(run, commit, parts)]
        if new:
            _append(core, run, new, parts, reason)
            done += [run.state.commits.get(commit.id, commit) for commit in new]
    return done


def _check_parts(core: Core, commit: Commit, parts: list[str]) -> None:
    components = read_manifest(commit.root, core.tree).components
    for part in parts:
        if part not in components:
            raise NotFound(f"{commit} has no component {part!r}: expected one of {', '.join(components)}")


def _append(core: Core, run: Run, commits: list[Commit], parts: list[str] | None, reason: str | None) -> None:
    def still() -> None:
        run.refresh().check_has(commits)
        if parts is None:
            _check_free(core.journal, commits)

    fields: dict[str, Any] = {"commits": [commit.id for commit in commits], "only": parts, "reason": reason}
    with explained("dropping", core.layout.root), leased(core.disk, core.layout, "drop") as lease:
        core.journal.append(run.log, lease, "drop", fields, still)
    run.refresh()


def _is_news(run: Run, commit: Commit, parts: list[str] | None) -> bool:
    known = run.state.commits.get(commit.id)
    if known is None:
        raise NotFound(f"{commit} is no commit of run {run.name!r}")
    return not known.is_dropped and (parts is None or not set(parts) <= set(known.dropped))


def _check_free(journal: Journal, commits: list[Commit]) -> None:
    always = protected(journal)
    for commit in commits:
        if commit.id in always:
            raise Conflict(
                f"{commit} is kept: {', '.join(always[commit.id])}; rewind the run, delete the tag or the run first"
            )
