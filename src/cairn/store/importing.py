"""The checkpoints of a run folder into a run: one commit each, in the order of their steps.

Everything is looked through before anything is written. A step that the run has with the same content is passed over,
so an import that was cut short is resumed by doing it again; so is one that the run has dropped, unread. A step with
other content is reported, and left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.files.runfolder import Found, LeftOut, survey
from cairn.files.scan import files_of, folder
from cairn.files.words import show
from cairn.history.commit import Commit, check_metrics
from cairn.state.encode import sketch
from cairn.state.nodes import Folder
from cairn.store.base import Base
from cairn.store.content import FILES
from cairn.store.core import Core
from cairn.store.planning import Planner
from cairn.store.provenance import provenance
from cairn.store.publish import Note, Published, StepTaken

if TYPE_CHECKING:
    from cairn.files.take import Opaque


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one checkpoint."""

    name: str
    step: int
    epoch: int | None
    metrics: Mapping[str, float | int]
    bytes: int
    new_bytes: int
    shared_bytes: int
    commit: Commit | None
    """None when it could not be committed, or was only planned."""
    is_new: bool
    """Whether the run did not have it before."""
    conflict: str | None
    """Why it could not be committed."""
    opaque: tuple[Opaque, ...]
    note: str | None
    """What else is odd: that its metrics cannot be read, or that the run has dropped it."""


@dataclass(frozen=True, slots=True)
class Import:
    """What became of a run folder."""

    run: str
    checkpoints: tuple[Imported, ...]
    left_out: tuple[LeftOut, ...]
    """What is called like a checkpoint and is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint that was found, and its files."""

    found: Found
    content: Folder
    bytes: int


def look_through(core: Core, path: Path) -> tuple[list[Checkpoint], tuple[LeftOut, ...]]:
    """Find the checkpoints of a run folder, and all their files. Raises NotFound and UnsupportedValue."""
    looked = survey(path, core.disk)
    checkpoints = []
    for found in looked.found:
        content = folder(found.path, disk=core.disk)
        checkpoints.append(Checkpoint(found, content, sum(file.size for file in files_of(content))))
    return checkpoints, looked.left_out


def passed_over(core: Core, run_name: str, checkpoint: Checkpoint) -> Imported | None:
    """What to say of a step that the run has dropped: nobody wants it read again; None for all others."""
    run = core.journal.run(run_name)
    there = run.on_line(checkpoint.found.step) if run.exists else None
    if there is None or not there.dropped:
        return None
    words = "the run has dropped this step; `cairn undrop` keeps it again while its bytes are there"
    return replace(_imported(checkpoint, there, False, 0, 0, None, ()), note=words)


def committed(checkpoint: Checkpoint, publish: Callable[[Mapping[str, object], Note], Published]) -> Imported:
    """Commit one checkpoint."""
    found = checkpoint.found
    message = found.path.name if found.path.name.isprintable() else None
    note = Note(found.step, found.epoch, check_metrics(found.metrics), message, provenance())
    try:
        made = publish({FILES: checkpoint.content}, note)
    except StepTaken as error:
        return _imported(checkpoint, None, False, 0, 0, str(error), ())
    return _imported(checkpoint, made.commit, made.is_new, made.new_bytes, made.shared_bytes, None, made.opaque)


def planned(checkpoint: Checkpoint, planner: Planner, base: Base, advance: Callable[[int], None]) -> Imported:
    """Say what would become of a checkpoint."""
    plan = planner.plan(base, sketch({FILES: checkpoint.content}), checkpoint.found.step, advance)
    is_new = plan.exists is None and plan.conflict is None
    return _imported(checkpoint, plan.exists, is_new, plan.new_bytes, plan.shared_bytes, plan.conflict, plan.opaque)


def _imported(
    checkpoint: Checkpoint,
    commit: Commit | None,
    is_new: bool,
    new: int,
    shared: int,
    conflict: str | None,
    opaque: tuple[Opaque, ...],
) -> Imported:
    found = checkpoint.found
    return Imported(
        name=show(os.fsencode(found.path.name)),
        step=found.step,
        epoch=found.epoch,
        metrics=found.metrics,
        bytes=checkpoint.bytes,
        new_bytes=new,
        shared_bytes=shared,
        commit=commit,
        is_new=is_new,
        conflict=conflict,
        opaque=opaque,
        note=found.note,
    )
