"""What a commit would do, without doing it: everything is read and hashed, nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import Conflict
from cairn.history.commit import Commit
from cairn.history.run import Run
from cairn.objects.intake import Intake
from cairn.store.base import Base
from cairn.store.core import Core
from cairn.store.indexing import catch_up
from cairn.store.publish import Exists, check_new_run, check_step
from cairn.store.taking import Content, take_in

if TYPE_CHECKING:
    from cairn.files.take import Opaque
    from cairn.ids import BlobRef
    from cairn.state.sketch import Sketch


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What a commit would add to the store, and what it would meet there.

    `new_bytes` and `shared_bytes` together are all bytes of the commit, its trees included.
    """

    manifest: str
    new_bytes: int
    shared_bytes: int
    new_blobs: int
    files: Mapping[str, int]
    """How many files there are of each format."""
    opaque: tuple[Opaque, ...]
    """Files that look like a known format and would be kept as plain bytes."""
    left_out: tuple[str, ...]
    """Stores inside the folder, which are never part of a commit."""
    exists: Commit | None
    """The commit that has this very state at this step: there would be nothing to do."""
    conflict: str | None
    """Why the commit would be refused."""


class Planner:
    """Plans commits of one run, one after the other: what one brings, the next has to share.

    Hold a reading lease from before it is made until the last plan.
    """

    def __init__(self, core: Core, run_name: str) -> None:
        self._core = core
        self._run = core.journal.run(run_name)
        self._run.check_tip()
        catch_up(core)
        self._intake = Intake(core.disk, core.layout, core.blobs, None)

    def plan(self, base: Base, sketch: Sketch, step: int | None, advance: Callable[[int], None]) -> CommitPlan:
        """Plan one commit."""
        intake = self._intake
        before = (intake.new_bytes, intake.shared_bytes, intake.new_blobs)
        content = take_in(intake, sketch, advance)
        after = (intake.new_bytes, intake.shared_bytes, intake.new_blobs)
        new, shared, blobs = (end - start for start, end in zip(before, after, strict=True))
        exists, conflict = self._met(self._run.refresh(), content.manifest, step, base)
        return _described(content, new, shared, blobs, exists, conflict)

    def _met(self, run: Run, manifest: BlobRef, step: int | None, base: Base) -> tuple[Commit | None, str | None]:
        try:
            check_new_run(self._core, run)
            check_step(run, manifest, step, base)
        except Exists as found:
            return found.commit, None
        except Conflict as error:
            return None, str(error)
        return None, None


def _described(
    content: Content, new: int, shared: int, blobs: int, exists: Commit | None, conflict: str | None
) -> CommitPlan:
    return CommitPlan(
        manifest=content.manifest.id,
        new_bytes=new,
        shared_bytes=shared,
        new_blobs=blobs,
        files=content.files,
        opaque=content.opaque,
        left_out=content.left_out,
        exists=exists,
        conflict=conflict,
    )
