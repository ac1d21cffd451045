"""Bringing a deleted run back, while the content of its commits is there.

The new entry continues the log where it stood before the deletion, so nothing of the history is lost in between.
"""

from __future__ import annotations

from cairn.errors import Conflict, Damaged, Dropped, NotFound
from cairn.history import names
from cairn.history.replay import ALL
from cairn.history.run import Run
from cairn.history.state import State
from cairn.io.explain import explained
from cairn.io.leases import leased
from cairn.store.core import Core
from cairn.store.publish import check_absent
from cairn.store.securing import secure_commit


def undelete_run(core: Core, name: str, new: str | None) -> None:
    """Bring a run back as it was, under its name or a new one.

    Raises Conflict when there is a run of that name, Dropped when content is gone.
    """
    run, target = core.journal.run(name), core.journal.run(names.check("run", new or name))
    error = run.damage()
    if error is not None:
        raise error
    if run.exists and new is None and is_deleted(run):
        raise Conflict(f"run {name!r} was begun anew since it was deleted; bring the old one back under a new name")
    check_absent(core, target)
    if not is_deleted(run):
        _refuse(core, run)
    last, end = run.last_deletion - 1, run.log.entry(run.last_deletion)
    with explained("undeleting a run", core.layout.root), leased(core.disk, core.layout, "run undelete") as lease:
        _secure(core, run, run.state_at(last))

        def still() -> None:
            check_absent(core, target)
            if run.refresh().last_deletion != end.seq:
                raise Conflict(f"run {name!r} was changed by somebody else meanwhile; try again")

        origin = {"run": name, "seq": last, "entry": end.document["previous"]}
        core.journal.append(target.log, lease, "create", {"continues": origin}, still)
        target.refresh()


def is_deleted(run: Run) -> bool:
    """Whether what a run was can be brought back: it was deleted, and not to get another name."""
    return bool(run.last_deletion) and run.log.entry(run.last_deletion).document.get("renamed_to") is None


def _refuse(core: Core, run: Run) -> None:
    if run.state.renamed_to is not None:
        raise NotFound(f"run {run.name!r} was not deleted: it was renamed to {run.state.renamed_to!r}")
    deleted = [name for name, other in sorted(core.journal.runs().items()) if is_deleted(other)]
    raise NotFound(f"run {run.name!r} was not deleted: expected one of {', '.join(deleted) or 'none: no run was'}")


def _secure(core: Core, run: Run, state: State) -> None:
    commits = state.commits
    rows = range(commits.begin, len(commits.rows))
    for commit in commits.values_at(row for row in rows if ALL not in commits.dropped(row)):
        try:
            secure_commit(core, commit, skip=commit.dropped)
        except Damaged as error:
            raise Dropped(
                f"run {run.name!r} cannot come back as it was: the content of {commit} is gone since it was deleted; "
                f"`cairn reflog --run {run.name}` shows its commits, and `cairn run create NAME ID` starts from one "
                f"whose content is there"
            ) from error
