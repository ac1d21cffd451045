"""A run as a training loop holds it: commit, load, resume."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from cairn.errors import Busy, Conflict, UsageError
from cairn.history import revisions
from cairn.history.commit import Commit, check_message, check_metrics, check_step
from cairn.history.replay import Move
from cairn.history.run import Summary
from cairn.io.explain import explained, written_out
from cairn.io.leases import reading
from cairn.store import config
from cairn.store.base import Base
from cairn.store.committing import Committer
from cairn.store.core import Core, check_threads

if TYPE_CHECKING:
    from cairn.store.importing import Import
    from cairn.store.pending import Pending
    from cairn.store.planning import CommitPlan
    from cairn.store.publish import Published
    from cairn.store.retention import Retention


class RunHandle:
    """One run, with a base: what the next commit continues from.

    The base is the run's tip when the handle was made, then the commit of the last `commit` or `resume`. When somebody
    else moves the run in between, `commit` raises Conflict and publishes nothing.
    """

    def __init__(self, core: Core, name: str) -> None:
        self._core = core
        self.name = name
        run = core.journal.run(name)
        tip = run.state.tip if run.exists else None
        self._committer = Committer(core, name, Base(tip, tip))

    def __repr__(self) -> str:
        return f"<cairn run {self.name!r} of {self._core.layout.root}>"

    @overload
    def commit(
        self,
        state: Mapping[str, object],
        *,
        step: int | None = ...,
        epoch: int | None = ...,
        metrics: Mapping[str, float] | None = ...,
        message: str | None = ...,
        wait: Literal[True] = ...,
        threads: int | None = ...,
        advance: Callable[[int], None] = ...,
    ) -> Commit: ...

    @overload
    def commit(
        self,
        state: Mapping[str, object],
        *,
        step: int | None = ...,
        epoch: int | None = ...,
        metrics: Mapping[str, float] | None = ...,
        message: str | None = ...,
        wait: Literal[False],
        threads: int | None = ...,
        advance: Callable[[int], None] = ...,
    ) -> Pending: ...

    @overload
    def commit(
        self,
        state: Mapping[str, object],
        *,
        step: int | None = ...,
        epoch: int | None = ...,
        metrics: Mapping[str, float] | None = ...,
        message: str | None = ...,
        wait: bool,
        threads: int | None = ...,
        advance: Callable[[int], None] = ...,
    ) -> Commit | Pending: ...

    def commit(
        self,
        state: Mapping[str, object],
        *,
        step: int | None = None,
        epoch: int | None = None,
        metrics: Mapping[str, float] | None = None,
        message: str | None = None,
        wait: bool = True,
        threads: int | None = None,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> Commit | Pending:
        """Keep a state: component name to any nesting of plain containers, numbers, text, arrays and tensors.

        Arrays are numpy's and jax's, tensors torch's.

        When this returns, the commit survives a power cut; when it raises, nothing was published. A step that the
        current line has with the same state is returned as it is. Raises UnsupportedValue, before anything is
        written, for a value that cannot be kept exactly, and Conflict when the run moved or the step has another
        state. Files of a `cairn.folder` are read now; `advance` is told the bytes as they are read. `threads` is on
        how many cores to hash; on all, if it is left out.

        With `wait=False` this returns when a snapshot of the state is taken, which the caller may change from then
        on; the commit is made in the background, and its `Pending` gives it, or raises what went wrong. Only files
        are still read then: leave them as they are. A handle has one commit in flight: the next change waits for it.
        If it failed and nobody has seen that, the next change raises its failure and does nothing itself: do it
        again. Reading does not wait. It needs memory for all bytes of the state that can be changed and a 16th more,
        kept for the next snapshot, and what a commit that is waited for needs: under 256 MiB, and a copy of the
        largest array that does not lie in memory as it is stored.
        """
        from cairn.store.provenance import provenance
        from cairn.store.publish import Note

        if type(wait) is not bool:
            raise UsageError(f"wait: expected True or False, found {wait!r:.60}")
        check_threads(threads)
        note = Note(
            check_step(step, "step"),
            check_step(epoch, "epoch"),
            check_metrics(metrics),
            check_message(message),
            provenance(),
        )
        if wait:
            return self._committer.commit(state, note, advance, threads).commit
        return self._committer.begin(state, note, advance, threads)

    def wait_until_finished(self) -> None:
        """Wait for the commit in flight, if any; raise what the last one failed with, if nobody has seen it."""
        self._committer.finish()

    @property
    def last(self) -> Published | None:
        """What the last commit of this handle added to the store."""
        return self._committer.last

    def plan(
        self,
        state: Mapping[str, object],
        *,
        step: int | None = None,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> CommitPlan:
        """Say what `commit` of this state at this step would do now. Reads and hashes everything, writes nothing.

        Raises UnsupportedValue for a value that cannot be kept exactly; a conflict is part of the plan.
        """
        from cairn.state.encode import sketch
        from cairn.store.planning import Planner

        core = self._core
        self.wait_until_finished()
        with explained("planning a commit", core.layout.root), reading(core.disk, core.layout, "commit --dry-run"):
            return Planner(core, self.name).plan(self._committer.base, sketch(state), check_step(step, "step"), advance)

    def import_folder(
        self,
        path: Path | str,
        *,
        dry_run: bool = False,
        expect: Callable[[int], None] = lambda nbytes: None,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> Import:
        """Commit the checkpoints in the folder of a training run, in the order of their steps; see `cairn import`.

        A step that the run has with the same content, or has dropped, is passed over; one with other content is
        reported and left as it is. Raises NotFound, before anything is written, when there are none, or two for one
        step. `expect` is told how many bytes there are to read, `advance` those that were read.
        """
        from cairn.store import importing
        from cairn.store.planning import Planner

        core = self._core
        self.wait_until_finished()
        checkpoints, left_out = importing.look_through(core, Path(path))
        known = {each: importing.passed_over(core, self.name, each) for each in checkpoints}
        expect(sum(each.bytes for each, said in known.items() if said is None))
        if dry_run:
            with explained("planning an import", core.layout.root), reading(core.disk, core.layout, "import --dry-run"):
                do = partial(
                    importing.planned, planner=Planner(core, self.name), base=self._committer.base, advance=advance
                )
                made = [said or do(each) for each, said in known.items()]
        else:
            publish_it = partial(self._committer.commit, advance=advance, threads=None)
            made = [said or importing.committed(each, publish_it) for each, said in known.items()]
        return importing.Import(self.name, tuple(made), left_out)

    def apply_rules(self, *, gc: bool = False) -> Retention:
        """Drop what the stored rules drop of this run now; for a training loop, after each commit.

        With `gc`, the space is freed, too, where nobody has to be waited for; what is in use is left to the next gc.
        When there is nothing to drop, nothing is written and nothing freed. Raises Damaged when the rules, or what
        the runs and tags need, cannot be known.
        """
        from cairn.store import retention
        from cairn.store.gc import execute as collect
        from cairn.store.retention import Asked

        core, asked = self._core, Asked()
        with self._committer.alone(), explained("applying rules", core.layout.root):
            found = retention.plan(core, asked, self.name)
            if found.drops_nothing:
                return found
            with config.reserve_freed(core.disk, core.layout):
                found = retention.apply(core, asked, found, self.name)
                if gc:
                    with suppress(Busy):
                        collect(core, patience=0)
            return found

    def load(
        self,
        *,
        step: int | None = None,
        only: Collection[str] | None = None,
        copy: bool = False,
        as_numpy: bool = False,
        into: Mapping[str, object] | None = None,
        threads: int | None = None,
    ) -> dict[str, Any]:
        """Return a commit's state, the tip's unless a step is named, with every hash checked.

        Arrays are read-only views of the store unless `copy`. Where torch tensors were committed, they come back: on
        the CPU, always fresh copies, for torch has no read-only ones; arrays of jax do, on its default device. With
        `as_numpy` both are arrays of numpy, and neither torch nor jax is needed.
        `only` names the components to load, `threads` bounds the cores that this takes.

        With `into`, a state, its arrays of numpy and torch tensors are filled and returned in the place of new ones.
        They must be at the places, of the types and shapes, and tied as in the commit, each with a memory of its own:
        else UsageError is raised and none of them is changed. Nor is one when something is Damaged, unless the store
        is on a network file system. All other values come from the commit, and those of `into` are left alone.
        `copy` and `as_numpy` are for new arrays, so not beside `into`.
        """
        from cairn.store import content

        with explained("loading", self._core.layout.root):
            return content.load(
                self._core, self.at(step), only, copy=copy, as_numpy=as_numpy, into=into, threads=threads
            )

    def open(self, *, step: int | None = None, as_numpy: bool = False) -> Mapping[str, Any]:
        """Return a commit's state as a mapping that reads and checks a value when it is touched; see `load`."""
        from cairn.store import content

        with explained("opening", self._core.layout.root):
            return content.open_lazily(self._core, self.at(step), as_numpy=as_numpy)

    def resume(
        self,
        *,
        step: int | None = None,
        only: Collection[str] | None = None,
        copy: bool = False,
        as_numpy: bool = False,
        into: Mapping[str, object] | None = None,
        threads: int | None = None,
    ) -> dict[str, Any]:
        """Load a commit, as `load` does, and let the next commit continue from it.

        Changes nothing by itself. When training then takes another way than before, the way left behind stays
        in the store as an attempt.
        """
        from cairn.store import content

        with self._committer.alone():
            # Both before loading: whoever moves the run meanwhile is noticed by the next commit.
            commit = self.at(step)
            base = Base(self._core.journal.run(self.name).state.tip, commit.id)
            if step is None and base.tip != commit.id:
                raise Conflict(f"run {self.name!r} moved while it was being resumed; resume again")
            with explained("loading", self._core.layout.root):
                state = content.load(self._core, commit, only, copy=copy, as_numpy=as_numpy, into=into, threads=threads)
            self._committer.base = base
            return state

    def at(self, step: int | None = None) -> Commit:
        """Return the commit at a step of the current line, or the tip. Raises NotFound."""
        if step is None:
            return revisions.tip_of(self._core.journal.existing(self.name))
        return revisions.resolve(self._core.journal, f"step:{check_step(step, 'step')}", self.name)

    @property
    def base(self) -> Commit | None:
        """The commit that the next one continues from: where training is; None before the first."""
        return self._core.journal.run(self.name).state.commits.get(self._committer.base.parent or "")

    @property
    def tip(self) -> Commit | None:
        """The newest commit, or None before the first. Raises Damaged when it cannot be known."""
        run = self._core.journal.run(self.name)
        run.check_tip()
        return run.tip if run.exists else None

    def log(self) -> Iterator[Commit]:
        """Yield the commits of the current line, newest first. Raises Damaged after those that can be read."""
        run = self._core.journal.run(self.name)
        yield from run.line() if run.exists else ()
        run.check_tip()

    def check(self) -> None:
        """Raise Damaged when some entry of the run cannot be read, unless it was deleted after that."""
        run = self._core.journal.run(self.name)
        error = run.damage(after=run.deleted_at)
        if error is not None:
            raise error

    def summary(self) -> Summary:
        """Return how long the current line is, where it ends, and the same of the attempts that were left behind."""
        return self._core.journal.existing(self.name).summary()

    def reflog(self) -> list[Move]:
        """Return what happened to the run, newest first."""
        return self._core.journal.moves(self.name)[::-1]

    def checkout(self, target: Path | str, *, step: int | None = None) -> list[Path]:
        """Write a commit as files; see `Store.checkout`."""
        from cairn.store import content

        with written_out(Path(target)):
            return content.checkout(self._core, self.at(step), Path(target), only=(), force=False)
