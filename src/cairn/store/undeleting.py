"""Bringing a deleted run back, while the content of its commits is there.

The new entry continues the log where it stood before the deletion, so nothing of the history is lost in between.
"""

from __future__ import annotations

from cairn.errors import Conflict, Damaged, Dropped, NotFound
from cairn.history.replay import ALL
from cairn.history.run import Run
from cairn.history.state import State
from cairn.io.explain import explained
from cairn.io.leases import leased
from cairn.store.core import Core
from cairn.store.publish import check_absent
from cairn.store.securing import secure_commit


def undelete_run(core: Core, name: str) -> None:
    """Bring a run back as it was. Raises Conflict when there is one of its name, Dropped when content is gone."""
    run = core.journal.run(name)
    error = run.damage()
    if error is not None:
        raise error
    check_absent(core, run)
    if run.state.renamed_to is not None:
        raise NotFound(f"run {name!r} was not deleted: it was renamed to {run.state.renamed_to!r}")
    if not run.deleted_at:
        deleted = [name for name, other in sorted(core.journal.runs().items()) if is_deleted(other)]
        raise NotFound(f"run {name!r} was not deleted: expected one of {', '.join(deleted) or 'none: no run was'}")
    last, end = run.deleted_at - 1, run.log.entry(run.deleted_at)
    with explained("undeleting a run", core.layout.root), leased(core.disk, core.layout, "run undelete") as lease:
        _secure(core, run, run.state_at(last))

        def still() -> None:
            check_absent(core, run)
            if run.log.newest is None or run.log.newest.seal != end.seal:
                raise Conflict(f"run {name!r} was begun anew meanwhile")

        origin = {"run": name, "seq": last, "entry": end.document["previous"]}
        core.journal.append(run.log, lease, "create", {"continues": origin}, still)
        run.refresh()


def is_deleted(run: Run) -> bool:
    """Whether a run ended by being deleted, not by getting another name."""
    return bool(run.deleted_at) and run.state.renamed_to is None


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
