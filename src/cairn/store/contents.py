"""What can be read of a store: the half of the facade that changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cairn.history import revisions
from cairn.history.commit import Commit
from cairn.history.journal import Tag
from cairn.io.explain import explained, written_out
from cairn.io.leases import reading
from cairn.store.core import Core
from cairn.store.pending import settle_all

if TYPE_CHECKING:
    from cairn.store.diff import Diff
    from cairn.store.listing import Item
    from cairn.store.usage import Usage


class Contents:
    """The commits of a store, and what is in them."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<cairn store {self.path}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        # An error on its way out is not to be replaced by an older one.
        self._end(raising=kind is None)

    def close(self) -> None:
        """Wait for commits in flight, raise what one failed with if nobody has seen it, and close the index.

        Nothing is lost without it, and the store can be used further.
        """
        self._end(raising=True)

    def _end(self, *, raising: bool) -> None:
        try:
            settle_all(self._core, raising=raising)
        finally:
            self._core.index.close()

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self._core.layout.root

    @property
    def id(self) -> str:
        """The store's id; a copy of the folder has the same."""
        return self._core.config.store_id

    def runs(self) -> list[str]:
        """Return the names of the runs."""
        return sorted(self._core.journal.live_runs())

    def metrics(self) -> list[str]:
        """Return the names of the metrics that some commit of some run has."""
        runs = self._core.journal.live_runs().values()
        return sorted({name for run in runs for name in run.state.commits.rows.metrics.names})

    def deleted_runs(self) -> list[str]:
        """Return the names of runs that were deleted; `undelete_run` brings one back while its content is there."""
        from cairn.store.undeleting import is_deleted

        return sorted(name for name, run in self._core.journal.runs().items() if is_deleted(run))

    def tags(self) -> dict[str, Tag]:
        """Return the tags by name."""
        return self._core.journal.tags()

    def commit(self, revision: str, run: str | None = None) -> Commit:
        """Return the commit that a revision names. Raises NotFound with the candidates."""
        return revisions.resolve(self._core.journal, revision, run)

    def log(self, run: str | None = None, *, revision: str | None = None) -> Iterator[Commit]:
        """Yield the commits of a run's current line, newest first, or from a commit back, such as an attempt.

        Raises Damaged after those that can be read.
        """
        if revision is not None:
            start = self.commit(revision, run)
            yield from self._core.journal.run(start.run).line(start.id)
            return
        chosen = revisions.choose_run(self._core.journal, run)
        yield from chosen.line()
        chosen.check_tip()

    def load(
        self,
        revision: str,
        *,
        run: str | None = None,
        only: Collection[str] | None = None,
        copy: bool = False,
        as_numpy: bool = False,
        into: Mapping[str, object] | None = None,
        threads: int | None = None,
    ) -> dict[str, Any]:
        """Return a commit's state with every hash checked; see `RunHandle.load`."""
        from cairn.store import content

        with explained("loading", self.path):
            commit = self.commit(revision, run)
            return content.load(self._core, commit, only, copy=copy, as_numpy=as_numpy, into=into, threads=threads)

    def open(self, revision: str, *, run: str | None = None, as_numpy: bool = False) -> Mapping[str, Any]:
        """Return a commit's state as a mapping that reads and checks a value when it is touched."""
        from cairn.store import content

        with explained("opening", self.path):
            return content.open_lazily(self._core, self.commit(revision, run), as_numpy=as_numpy)

    def ls(self, revision: str, path: str | None = None, *, run: str | None = None) -> list[Item]:
        """List the components of a commit, or the values at and below a path such as `model/layers`.

        A path into the folder `files` may leave that word out; a file is listed with the tensors inside it.
        """
        from cairn.store import content

        with explained("listing", self.path), reading(self._core.disk, self._core.layout, "ls"):
            return content.ls(self._core, self.commit(revision, run), path)

    def cat(self, revision: str, path: str, *, run: str | None = None, as_numpy: bool = False) -> Any:
        """Return one value of a commit by its path, or one tensor of a file, which is numpy's; see `RunHandle.load`.

        Raises NotFound with the candidates.
        """
        from cairn.store import content

        with explained("reading", self.path), reading(self._core.disk, self._core.layout, "cat"):
            return content.cat(self._core, self.commit(revision, run), path, as_numpy=as_numpy)

    def diff(
        self,
        before: str,
        after: str,
        path: str | None = None,
        *,
        run: str | None = None,
        only: Collection[str] | None = None,
        values: bool = True,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> Diff:
        """Say what changed between two commits, or at a path and below, or in the components in `only`.

        Equal states are told at once, from two ids. Without `values` only trees are read: what changed, but not by how
        much. A path may lead into a file: `model.safetensors/lm_head.weight`. Ties to what is left out do not count.
        Raises Dropped for content that is no longer kept, unless `path` or `only` leave it out. `advance` is told the
        bytes of tensors as they are compared.
        """
        from cairn.store import diff

        with explained("comparing", self.path):
            commits = self.commit(before, run), self.commit(after, run)
            return diff.diff(self._core, *commits, path, only, values=values, advance=advance)

    def checkout(
        self,
        revision: str,
        target: Path | str,
        *,
        run: str | None = None,
        only: Collection[str] = (),
        force: bool = False,
        expect: Callable[[int], None] = lambda nbytes: None,
        advance: Callable[[int], None] = lambda nbytes: None,
    ) -> list[Path]:
        """Write a commit as files: a folder as it was, other components for plain tools to read.

        Those become `<component>.safetensors` and `<component>.json`. Returns the paths. `only` names components, and
        paths in folders. Refuses to write into a folder that holds anything, unless `force`, which leaves only what
        was written. `expect` is told how many bytes there are to write, `advance` those that were written.
        """
        from cairn.store import content

        with written_out(Path(target)):
            commit = self.commit(revision, run)
            return content.checkout(self._core, commit, Path(target), only, force=force, expect=expect, advance=advance)

    def du(self, revisions: Iterable[str] = (), *, run: str | None = None) -> Usage:
        """Say what commits weigh: own and shared bytes, and what dropping each would free."""
        from cairn.store import usage

        commits = [self.commit(revision, run) for revision in revisions]
        with explained("measuring", self.path), reading(self._core.disk, self._core.layout, "du"):
            return usage.measure(self._core, commits or None)
