"""The facade: one store, as `cairn.init` and `cairn.open` return it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cairn.errors import UsageError
from cairn.history import names, revisions
from cairn.history.commit import Commit
from cairn.history.journal import Tag
from cairn.io.disk import Disk
from cairn.io.explain import explained, written_out
from cairn.io.layout import Layout
from cairn.io.leases import reading
from cairn.store import config, content, diff, gc, indexing, publish, reach, renaming, retention, usage, verify
from cairn.store.core import Core, assemble
from cairn.store.diff import Diff
from cairn.store.gc import GcPlan
from cairn.store.handle import RunHandle
from cairn.store.listing import Item
from cairn.store.retention import Retention
from cairn.store.usage import Usage
from cairn.store.verify import Report


class Store:
    """A content-addressed checkpoint store in one folder.

    Any number of processes may commit, read and collect garbage at the same time. Not safe to share between
    threads, except for reading.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<cairn store {self.path}>"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index. Nothing is lost without it, and the store can be used further."""
        self._core.index.close()

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self._core.layout.root

    @property
    def id(self) -> str:
        """The store's id; a copy of the folder has the same."""
        return self._core.config.store_id

    # Runs.

    def run(self, name: str = revisions.DEFAULT_RUN) -> RunHandle:
        """Return a run to commit to and load from; its first commit creates it."""
        return RunHandle(self._core, names.check("run", name))

    def runs(self) -> list[str]:
        """Return the names of the runs."""
        return sorted(self._core.journal.live_runs())

    def default_run(self, name: str | None = None) -> RunHandle:
        """Return the run named, else the only one, else `main` in an empty store. Raises NotFound."""
        return self.run(name or revisions.default_run(self._core.journal))

    def create_run(self, name: str, revision: str) -> RunHandle:
        """Make a run that starts from a commit."""
        publish.create_run(self._core, name, self.commit(revision))
        return self.run(name)

    def rename_run(self, old: str, new: str) -> None:
        """Give a run another name; the old one becomes free."""
        renaming.rename_run(self._core, old, new)

    def delete_run(self, name: str) -> None:
        """End a run. Its content goes with the next gc, except what a tag or another run needs."""
        with config.reserve_freed(self._core.disk, self._core.layout):
            publish.delete_run(self._core, name)

    def rewind(self, revision: str, run: str | None = None) -> Commit:
        """Move a run's tip back to one of its commits; the way left behind stays as an attempt."""
        target = revisions.resolve(self._core.journal, revision, run)
        chosen = revisions.choose_run(self._core.journal, run or target.run)
        publish.rewind(self._core, chosen, target)
        return target

    # Commits.

    def commit(self, revision: str, run: str | None = None) -> Commit:
        """Return the commit that a revision names. Raises NotFound with the candidates."""
        return revisions.resolve(self._core.journal, revision, run)

    def log(self, run: str | None = None) -> Iterator[Commit]:
        """Yield the commits of a run's current line, newest first. Raises Damaged after those that can be read."""
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
    ) -> dict[str, Any]:
        """Return a commit's state with every hash checked; see `RunHandle.load`."""
        with explained("loading", self.path):
            return content.load(self._core, self.commit(revision, run), only, copy=copy, as_numpy=as_numpy)

    def open(self, revision: str, *, run: str | None = None, as_numpy: bool = False) -> Mapping[str, Any]:
        """Return a commit's state as a mapping that reads and checks a value when it is touched."""
        with explained("opening", self.path):
            return content.open_lazily(self._core, self.commit(revision, run), as_numpy=as_numpy)

    def ls(self, revision: str, path: str | None = None, *, run: str | None = None) -> list[Item]:
        """List the components of a commit, or the values at and below a path such as `model/layers`.

        A path into the folder `files` may leave that word out; a file is listed with the tensors inside it.
        """
        with explained("listing", self.path), reading(self._core.disk, self._core.layout, "ls"):
            return content.ls(self._core, self.commit(revision, run), path)

    def cat(self, revision: str, path: str, *, run: str | None = None, as_numpy: bool = False) -> Any:
        """Return one value of a commit by its path, or one tensor of a file, which is numpy's; see `RunHandle.load`.

        Raises NotFound with the candidates.
        """
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
        with written_out(Path(target)):
            commit = self.commit(revision, run)
            return content.checkout(self._core, commit, Path(target), only, force=force, expect=expect, advance=advance)

    # Names and decisions.

    def tag(self, name: str, revision: str, *, run: str | None = None) -> Commit:
        """Set a tag; a tagged commit is kept."""
        target = self.commit(revision, run)
        publish.tag(self._core, name, target)
        return target

    def tags(self) -> dict[str, Tag]:
        """Return the tags by name."""
        return self._core.journal.tags()

    def delete_tag(self, name: str) -> None:
        """Delete a tag; the commit stays in the history."""
        publish.delete_tag(self._core, name)

    def drop(
        self, revisions: Iterable[str], *, run: str | None = None, only: Collection[str] | None = None
    ) -> list[Commit]:
        """Record that the content of commits, or some components of it, is no longer kept; gc frees the space."""
        commits = [self.commit(revision, run) for revision in revisions]
        with config.reserve_freed(self._core.disk, self._core.layout):
            return retention.drop(self._core, commits, only=only, reason=None)

    def undrop(self, revisions: Iterable[str], *, run: str | None = None) -> list[Commit]:
        """Keep again what was dropped, while the bytes are still there. Raises Dropped when they are not."""
        commits = [self.commit(revision, run) for revision in revisions]
        for name in {commit.run for commit in commits}:
            run_ = self._core.journal.existing(name)
            publish.undrop(self._core, run_, [commit for commit in commits if commit.run == name])
        return commits

    def plan_retention(self, *, keep_last: int, run: str | None = None) -> Retention:
        """Return what a rule would keep, with the reasons, and what it would drop."""
        journal = self._core.journal
        runs = [journal.existing(run)] if run is not None else journal.live_runs().values()
        return retention.plan(journal, runs, keep_last=keep_last)

    # The whole store.

    def gc(
        self,
        *,
        keep_last: int | None = None,
        run: str | None = None,
        dry_run: bool = False,
        patience: float = gc.PATIENCE_SECONDS,
    ) -> GcPlan:
        """Free the space of what nothing needs; with `keep_last`, first drop all but the last commits of each run.

        `dry_run` only returns the plan. `patience` is how many seconds to wait for operations that were running;
        what they hold up stays in the trash for the next gc.
        """
        if run is not None and keep_last is None:
            raise UsageError("run: expected together with keep_last")
        rules = self.plan_retention(keep_last=keep_last, run=run) if keep_last is not None else None
        if dry_run:
            with explained("planning gc", self.path), reading(self._core.disk, self._core.layout, "gc --dry-run"):
                return gc.plan(self._core, rules)
        with config.reserve_freed(self._core.disk, self._core.layout):
            if rules is not None:
                # What gc would stop at is found before anything is recorded.
                reach.check_history(self._core)
                retention.drop(self._core, rules.dropped, only=None, reason=f"keep_last {keep_last}")
            return gc.execute(self._core, rules, patience)

    def verify(self, revisions: Iterable[str] = (), *, run: str | None = None) -> Report:
        """Read everything, or what some commits need, and check every hash; return what is wrong."""
        commits = [self.commit(revision, run) for revision in revisions]
        with explained("verifying", self.path), reading(self._core.disk, self._core.layout, "verify"):
            return verify.verify(self._core, commits or None)

    def du(self, revisions: Iterable[str] = (), *, run: str | None = None) -> Usage:
        """Say what commits weigh: own and shared bytes, and what dropping each would free."""
        commits = [self.commit(revision, run) for revision in revisions]
        with explained("measuring", self.path), reading(self._core.disk, self._core.layout, "du"):
            return usage.measure(self._core, commits or None)

    def reindex(self) -> int:
        """Build the index anew from packs and entries; return the number of packs."""
        with explained("reindexing", self.path):
            return indexing.rebuild(self._core)


def init(path: Path | str, *, disk: Disk | None = None) -> Store:
    """Make a store in a new or empty folder. Raises Conflict when something is there."""
    disk = disk or Disk()
    layout = Layout(Path(path).absolute())
    with explained("making a store", layout.root):
        return Store(assemble(disk, layout, config.create(disk, layout), None))


def open_store(path: Path | str, *, cache: Path | None = None, disk: Disk | None = None) -> Store:
    """Open a store. Raises StoreNotFound when the folder is none, Damaged when its cairn.json was changed.

    `cache` is a local folder for the index of a store on a network file system.
    """
    disk = disk or Disk()
    layout = Layout(Path(path).absolute())
    with explained("opening", layout.root):
        return Store(assemble(disk, layout, config.read(disk, layout), cache))
