"""Giving a run another name: two entries in two logs, which cannot be created at once.

The new name continues the old run's entries where they stand; then the old name ends. A rename that was cut short
between the two leaves both names with the same history, and the same command ends it.
"""

from __future__ import annotations

import contextlib

from cairn.errors import CairnError, Conflict
from cairn.history import names
from cairn.history.run import MAX_RENAMES, Run
from cairn.io.entry import Entry
from cairn.io.explain import explained
from cairn.io.leases import leased
from cairn.store import keeping
from cairn.store.core import Core
from cairn.store.publish import check_absent


def rename_run(core: Core, old: str, new: str) -> None:
    """Give a run another name. Raises Conflict when the name is taken or the run is in use meanwhile."""
    names.check("run", new)
    source, target = core.journal.existing(old), core.journal.run(new)
    if source.state.renames >= MAX_RENAMES:
        raise Conflict(
            f"run {old!r} was renamed {MAX_RENAMES} times, and a history that is continued more often cannot be read; "
            f"`cairn run create {new} {old}` makes a run of that name from its newest commit"
        )
    end = _newest(source)
    origin = {"run": old, "seq": end.seq, "entry": end.seal}
    with explained("renaming a run", core.layout.root), leased(core.disk, core.layout, "run rename") as lease:
        # What the new name continues must be there for good, and so must the new name before the old one ends.
        if _continues(target) == origin:
            core.disk.sync_folder(target.log.folder)
        else:
            check_absent(core, target, but=old)
            core.disk.sync_folder(source.log.folder)
            fields = {"continues": origin}
            core.journal.append(target.log, lease, "create", fields, lambda: check_absent(core, target, but=old))
        begun = _newest(target.refresh())
        try:
            core.journal.append(source.log, lease, "delete", {"renamed_to": new}, lambda: _check_end(source, end))
        except Conflict:
            # The new name lacks what came meanwhile. It ends again, unless somebody uses it already.
            with contextlib.suppress(Conflict):
                core.journal.append(target.log, lease, "delete", {}, lambda: _check_end(target, begun))
            raise
        except OSError as error:
            raise CairnError(
                f"renaming run {old!r} failed half-way: {error.strerror or error} ({error.filename}); both names are "
                f"there with the same history; the same command ends it"
            ) from error
        source.refresh()
        target.refresh()
    keeping.follow(core, new)


def _continues(run: Run) -> object:
    """The entry of another run that a run which exists began by continuing."""
    origin = None
    newest = run.log.newest.seq if run.log.newest else 0
    for entry in run.log.entries(range(1, newest + 1), damaged=lambda error: None):
        if entry.document.get("op") in ("create", "delete"):
            origin = entry.document.get("continues")
    return origin if run.exists else None


def _newest(run: Run) -> Entry:
    newest = run.log.newest
    if newest is None:
        raise run.damage() or Conflict(f"run {run.name!r} has no entries")
    return newest


def _check_end(run: Run, newest: Entry) -> None:
    if _newest(run.refresh()).seal != newest.seal:
        raise Conflict(f"the run moved: {run.name!r} was changed while it was being renamed; try again")
