"""Dropping: the recorded decision that a commit's content is no longer kept. The commit stays in the history."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from cairn.errors import Conflict, NotFound, UsageError
from cairn.history.commit import Commit
from cairn.history.journal import Journal
from cairn.history.run import Run
from cairn.history.selection import Brief
from cairn.io.explain import explained
from cairn.io.leases import leased
from cairn.state import parts
from cairn.state.parts import Part
from cairn.state.walk import has, read_manifest
from cairn.store.core import Core


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


def drop(core: Core, commits: Iterable[Commit], *, only: Iterable[str] | None) -> list[Commit]:
    """Record that commits, or some parts of them, are no longer kept: one entry in each run.

    Raises Conflict for a whole commit that is always kept, and NotFound for a part that one of them has not; nothing
    is dropped then.
    """
    if isinstance(only, str):
        raise UsageError(f"only: expected a list of parts, found the str {only!r:.80}; write [{only!r:.80}]")
    wanted = None if only is None else sorted({parts.parse(text) for text in only}, key=str)
    groups: dict[str, dict[str, Commit]] = {}
    for commit in commits:
        groups.setdefault(commit.run, {})[commit.id] = commit
    if wanted is None:
        check_free(core.journal, [commit for group in groups.values() for commit in group.values()])
    news = {name: _news(core, name, group.values(), wanted) for name, group in groups.items()}
    done: list[Commit] = []
    for name, new in news.items():
        if new:
            run = core.journal.existing(name)
            spelled = None if wanted is None else [str(part) for part in wanted]
            record(core, run, [(new, spelled, None)], whole_is_free if wanted is None else parts_are_there)
            done += [run.state.commits.get(commit.id, commit) for commit in new]
    return done


Decision = tuple[Collection[Commit | Brief], list[str] | None, str | None]
"""Commits, their parts that go or None for all, and why."""

Check = Callable[[Core, Run, Collection[Commit | Brief]], None]


def record(core: Core, run: Run, decisions: Iterable[Decision], check: Check) -> None:
    """Write one entry for each decision; `check` raises the Conflict to report right before each."""
    with explained("dropping", core.layout.root), leased(core.disk, core.layout, "drop") as lease:
        for commits, only, reason in decisions:

            def still(commits: Collection[Commit | Brief] = commits) -> None:
                run.refresh().check_has(commits)
                check(core, run, commits)

            fields: dict[str, Any] = {"commits": [commit.id for commit in commits], "only": only, "reason": reason}
            core.journal.append(run.log, lease, "drop", fields, still)
    run.refresh()


def whole_is_free(core: Core, run: Run, commits: Collection[Commit | Brief]) -> None:
    """Raise Conflict when one of the commits is always kept."""
    check_free(core.journal, commits)


def parts_are_there(core: Core, run: Run, commits: Collection[Commit | Brief]) -> None:
    """Parts may be dropped of any commit, whatever came meanwhile."""


def check_free(journal: Journal, commits: Iterable[Commit | Brief]) -> None:
    """Raise Conflict when one of the commits is always kept."""
    always = protected(journal)
    for commit in commits:
        if commit.id in always:
            raise Conflict(
                f"{commit} is kept: {', '.join(always[commit.id])}; rewind the run, delete the tag or the run first"
            )


def has_part(core: Core, commit: Commit, part: Part) -> bool:
    """Whether a commit has a part. Raises Damaged."""
    key = (commit.manifest, str(part))
    if key not in core.has:
        core.has[key] = has(commit.root, core.tree, part)
    return core.has[key]


def _news(core: Core, name: str, commits: Iterable[Commit], wanted: Collection[Part] | None) -> list[Commit]:
    """The commits from which something was not dropped before. Raises NotFound."""
    run = core.journal.existing(name)
    found = []
    for commit in commits:
        known = run.state.commits.get(commit.id)
        if known is None:
            raise NotFound(f"{commit} is no commit of run {name!r}")
        new = [part for part in wanted or () if not part.is_in(known.dropped)]
        for part in new:
            if not has_part(core, known, part):
                raise _has_not(core, known, part)
        if new:
            _check_rest(core, known, new)
        if new or (wanted is None and not known.is_dropped):
            found.append(known)
    return found


def _check_rest(core: Core, commit: Commit, new: Collection[Part]) -> None:
    """Raise Conflict when nothing would be left of a commit that is always kept."""
    gone = {*commit.dropped, *map(str, new)}
    if gone.issuperset(read_manifest(commit.root, core.tree).components):
        check_free(core.journal, [commit])


def _has_not(core: Core, commit: Commit, part: Part) -> NotFound:
    components = read_manifest(commit.root, core.tree).components
    if part.component in components:
        return NotFound(
            f"{commit} has nothing in {part.component!r} that is called like {part.pattern!r}; "
            f"`cairn ls {commit.id[:12]} {part.component}` lists what there is"
        )
    return NotFound(f"{commit} has no component {part.component!r}: expected one of {', '.join(components)}")
