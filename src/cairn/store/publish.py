"""The one way to publish: every operation that creates an entry which needs packs.

(1) Take a lease, before any look-up. (2) Write what is new and make it durable. (3) Check every pack that the commit
needs, its own included; take back what lies in the trash, write anew what is gone. (4) Create the entry. (5) Update
the index. (6) End the lease. The lease must span (1) to (4): gc waits for it between moving packs to the trash and
looking again at what is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cairn.errors import Conflict, Damaged, Dropped, NotFound
from cairn.history import names
from cairn.history.commit import Commit, document_of, id_of, read
from cairn.history.run import Run
from cairn.ids import BlobRef
from cairn.io.explain import explained
from cairn.io.leases import Lease, leased
from cairn.io.log import timestamp
from cairn.objects.intake import Intake
from cairn.store.base import Base
from cairn.store.core import Core
from cairn.store.indexing import catch_up, enter_packs
from cairn.store.securing import secure_commit
from cairn.store.taking import Content, take_in

if TYPE_CHECKING:
    from cairn.files.take import Opaque
    from cairn.state.sketch import Sketch


@dataclass(frozen=True, slots=True)
class Note:
    """What a commit says besides its content."""

    step: int | None
    epoch: int | None
    metrics: Mapping[str, float | int]
    message: str | None
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Published:
    """A commit as it was published: what it added to the store."""

    commit: Commit
    is_new: bool
    """Whether the commit was made now; the run may have had this very state at this step."""
    new_bytes: int
    shared_bytes: int
    """Bytes that the store or another part of the commit had; with the new ones, all bytes of the commit."""
    files: Mapping[str, int]
    """How many files there are of each format."""
    opaque: tuple[Opaque, ...]
    """Files that look like a known format and were kept as plain bytes."""
    left_out: tuple[str, ...]
    """Stores inside the folder, which are never part of a commit."""


class StepTaken(Conflict):
    """The current line has another state at this step."""


class Exists(Exception):
    """The current line has this very state at this step."""

    def __init__(self, commit: Commit) -> None:
        self.commit = commit


def commit(
    core: Core,
    run_name: str,
    base: Base,
    sketch: Sketch,
    note: Note,
    advance: Callable[[int], None] = lambda nbytes: None,
    threads: int | None = None,
) -> Published:
    """Publish a state as the next commit of a run, hashing on so many cores, or on all.

    Raises Conflict when the run moved or the step exists.
    """
    with explained("committing", core.layout.root), leased(core.disk, core.layout, "commit") as lease:
        run = core.journal.run(run_name)
        run.check_tip()
        check_new_run(core, run)
        catch_up(core)
        parent = run.state.commits.get(base.parent or "")
        core.blobs.durable.update(parent.packs if parent else ())
        intake = Intake(core.disk, core.layout, core.blobs, lease.write_id, threads)
        content = take_in(intake, sketch, advance, lease.renew)
        try:
            check_step(run.refresh(), content.manifest, note.step, base)
            packs = intake.finish()
            made = _publish(core, run, base, content.manifest, note, packs, lease)
        except Exists as found:
            # Whoever made that entry may not have come to this; and what of it was lost or damaged is there again.
            core.disk.sync_folder(run.log.folder)
            if intake.new_bytes:
                enter_packs(core, intake.finish())
            return _published(found.commit, content, intake.new_bytes, intake.shared_bytes, is_new=False)
        return _published(made, content, intake.new_bytes, intake.shared_bytes, is_new=True)


def _published(commit: Commit, content: Content, new: int, shared: int, *, is_new: bool) -> Published:
    return Published(commit, is_new, new, shared, content.files, content.opaque, content.left_out)


def tag(core: Core, name: str, target: Commit) -> None:
    """Set a tag."""
    names.check("tag", name)
    names.check_free("tag", name, core.journal.tag_logs(), "run", core.journal.live_runs())
    with explained("tagging", core.layout.root), leased(core.disk, core.layout, "tag") as lease:
        packs = secure_commit(core, target)
        fields = {"commit": _document(target), "run": target.run, "packs": packs}
        core.journal.append(core.journal.tag_log(name), lease, "set", fields)


def delete_tag(core: Core, name: str) -> None:
    """Delete a tag. Raises NotFound."""
    if core.journal.tag(name) is None:
        raise NotFound(f"tag {name!r}: expected one of {', '.join(core.journal.tags()) or 'no tags yet'}")
    with explained("deleting a tag", core.layout.root), leased(core.disk, core.layout, "tag") as lease:
        core.journal.append(core.journal.tag_log(name), lease, "delete", {})


def rewind(core: Core, run: Run, target: Commit) -> None:
    """Move a run's tip back. Raises Conflict when the run moves meanwhile, NotFound for another run's commit."""
    if target.id not in run.state.commits:
        raise NotFound(
            f"{target} is no commit of run {run.name!r}; to start from it, use `cairn run create NAME {target.id[:12]}`"
        )
    tip = run.state.tip
    with explained("rewinding", core.layout.root), leased(core.disk, core.layout, "rewind") as lease:
        secure_commit(core, target)

        def still() -> None:
            _check_tip(run.refresh(), tip)
            if run.state.commits[target.id].is_dropped:
                raise Dropped(f"{target} was dropped meanwhile")

        core.journal.append(run.log, lease, "rewind", {"to": target.id}, still)
        run.refresh()


def create_run(core: Core, name: str, target: Commit) -> None:
    """Make a run that starts from a commit. Raises Conflict when the run exists."""
    names.check("run", name)
    run = core.journal.run(name)
    check_absent(core, run)
    with explained("creating a run", core.layout.root), leased(core.disk, core.layout, "run create") as lease:
        packs = secure_commit(core, target)
        fields = {"commit": _document(target), "packs": packs, **_without(target)}
        core.journal.append(run.log, lease, "create", fields, lambda: check_absent(core, run.refresh()))
        run.refresh()


def delete_run(core: Core, name: str) -> None:
    """End a run. Its entries stay; its content goes with the next gc unless something else needs it."""
    run = core.journal.existing(name)
    tip = run.state.tip
    with explained("deleting a run", core.layout.root), leased(core.disk, core.layout, "run delete") as lease:
        core.journal.append(run.log, lease, "delete", {}, lambda: _check_tip(run.refresh(), tip))
        run.refresh()


def undrop(core: Core, run: Run, targets: list[Commit]) -> list[Commit]:
    """Keep again what was dropped, and return it; nothing to do for the rest. Raises Dropped when bytes are gone."""
    run.check_has(targets)
    targets = [run.state.commits[target.id] for target in targets if run.state.commits[target.id].dropped]
    if not targets:
        # Whoever made the entries that were read may not have come to this.
        core.disk.sync_folder(run.log.folder)
        return []
    with explained("undropping", core.layout.root), leased(core.disk, core.layout, "undrop") as lease:
        for target in targets:
            try:
                secure_commit(core, target, skip=())
            except Damaged as error:
                raise Dropped(
                    f"{target} cannot be kept again: some of its bytes are gone since it was dropped"
                ) from error
        fields = {"commits": [target.id for target in targets], "only": None}
        core.journal.append(run.log, lease, "undrop", fields, lambda: run.refresh().check_has(targets))
        run.refresh()
        # The run may have been deleted and begun anew by now.
        return [run.state.commits.get(target.id) or replace(target, dropped=()) for target in targets]


def _publish(core: Core, run: Run, base: Base, manifest: BlobRef, note: Note, packs: list[str], lease: Lease) -> Commit:
    document = document_of(
        manifest=manifest,
        parents=(base.parent,) if base.parent else (),
        step=note.step,
        epoch=note.epoch,
        metrics=note.metrics,
        message=note.message,
        time=timestamp(core.disk),
        provenance=note.provenance,
    )

    def still() -> None:
        check_step(run.refresh(), manifest, note.step, base)

    core.journal.append(run.log, lease, "commit", {"commit": document, "packs": packs}, still)
    run.refresh()
    catch_up(core)
    made = run.state.commits.get(id_of(document))
    return made or read(document, run=run.name, what="the new commit", packs=packs)


def check_step(run: Run, manifest: BlobRef, step: int | None, base: Base) -> None:
    """Raise Exists when the line has this state at this step, StepTaken when another, Conflict when the run moved."""
    there = run.on_line(step) if step is not None and run.exists else None
    moved = (run.state.tip if run.exists else None) != base.tip
    # After a resume the commits beyond the resumed one are about to become an attempt: they are in nobody's way.
    if there is not None and (moved or base.parent == base.tip or run.is_on_line(there, base.parent)):
        if there.manifest == manifest.id and not there.dropped:
            raise Exists(there)
        if there.manifest == manifest.id:
            raise StepTaken(
                f"run {run.name!r} has this state at step {step} already, and it was dropped: {there}; `cairn undrop` "
                f"keeps it again while its bytes are there; else commit another step, or go back first with `resume`"
            )
        raise StepTaken(
            f"run {run.name!r} has step {step} already, with another content: {there}; commit another step, or go back "
            f"first with `run.resume(step=…)` or `cairn rewind`"
        )
    if moved:
        _check_tip(run, base.tip)


def _check_tip(run: Run, expected: str | None) -> None:
    tip = run.state.tip if run.exists else None
    if tip != expected:
        raise Conflict(
            f"the run moved: {run.name!r} is now at {run.tip or 'no commit'}, expected "
            f"{expected[:12] if expected else 'no commit'}; somebody else changed it; look at `cairn log`, then take "
            f"the run anew with `store.run({run.name!r})` or `resume`"
        )


def check_new_run(core: Core, run: Run) -> None:
    """Raise UsageError or Conflict when a run that is not there yet cannot have its name."""
    if not run.exists:
        names.check("run", run.name)
        names.check_free("run", run.name, core.journal.live_runs(), "tag", core.journal.tags())


def check_absent(core: Core, run: Run, but: str | None = None) -> None:
    """Raise Conflict when a run exists or its name is too close to another; `but` is the run that gets the name."""
    if run.refresh().exists:
        raise Conflict(f"run {run.name!r} exists; choose another name, or delete it first")
    same = [name for name in core.journal.live_runs() if name != but]
    names.check_free("run", run.name, same, "tag", core.journal.tags())


def _without(target: Commit) -> dict[str, Any]:
    """What the first entry of a run says of parts that were dropped and may be gone."""
    return {"dropped": list(target.dropped)} if target.dropped else {}


def _document(target: Commit) -> dict[str, Any]:
    return document_of(
        manifest=target.root,
        parents=target.parents,
        step=target.step,
        epoch=target.epoch,
        metrics=target.metrics,
        message=target.message,
        time=target.time,
        provenance=target.provenance,
    )
