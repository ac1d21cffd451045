"""The facade: one store, as `cairn.init` and `cairn.open` return it.

Operations are imported where they are used: `log` and `show` must not wait for what they do not need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.history import names, revisions
from cairn.history.commit import Commit
from cairn.io.disk import Disk
from cairn.io.explain import explained
from cairn.io.layout import Layout
from cairn.store import config
from cairn.store.core import assemble
from cairn.store.handle import RunHandle
from cairn.store.upkeep import Upkeep

if TYPE_CHECKING:
    from cairn.store.attempts import Attempt


class Store(Upkeep):
    """A content-addressed checkpoint store in one folder.

    Any number of processes may commit, read and collect garbage at the same time. Not safe to share between
    threads, except for reading.
    """

    # Runs.

    def run(self, name: str = revisions.DEFAULT_RUN) -> RunHandle:
        """Return a run to commit to and load from; its first commit creates it."""
        return RunHandle(self._core, names.check("run", name))

    def default_run(self, name: str | None = None) -> RunHandle:
        """Return the run named, else the only one, else `main` in an empty store. Raises NotFound."""
        return self.run(name or revisions.default_run(self._core.journal))

    def create_run(self, name: str, revision: str) -> RunHandle:
        """Make a run that starts from a commit."""
        from cairn.store import publish

        publish.create_run(self._core, name, self.commit(revision))
        return self.run(name)

    def rename_run(self, old: str, new: str) -> None:
        """Give a run another name; the old one becomes free."""
        from cairn.store import renaming

        renaming.rename_run(self._core, old, new)

    def undelete_run(self, name: str, *, new: str | None = None) -> RunHandle:
        """Bring a deleted run back, under a new name where its own is in use again.

        Raises Dropped when some of its content is gone.
        """
        from cairn.store import undeleting

        undeleting.undelete_run(self._core, name, new)
        return self.run(new or name)

    def delete_run(self, name: str) -> None:
        """End a run. Its content goes with the next gc, except what a tag or another run needs."""
        from cairn.store import publish

        with config.reserve_freed(self._core.disk, self._core.layout):
            publish.delete_run(self._core, name)

    def rewind(self, revision: str, run: str | None = None) -> Commit:
        """Move a run's tip back to one of its commits; the way left behind stays as an attempt."""
        from cairn.store import publish

        target = revisions.resolve(self._core.journal, revision, run)
        chosen = revisions.choose_run(self._core.journal, run or target.run)
        with config.reserve_freed(self._core.disk, self._core.layout):
            publish.rewind(self._core, chosen, target)
        return target

    # Names and decisions.

    def tag(self, name: str, revision: str, *, run: str | None = None) -> Commit:
        """Set a tag; a tagged commit is kept."""
        from cairn.store import publish

        target = self.commit(revision, run)
        publish.tag(self._core, name, target)
        return target

    def delete_tag(self, name: str) -> None:
        """Delete a tag; the commit stays in the history."""
        from cairn.store import publish

        with config.reserve_freed(self._core.disk, self._core.layout):
            publish.delete_tag(self._core, name)

    def drop(
        self, revisions: Iterable[str], *, run: str | None = None, only: Collection[str] | None = None
    ) -> list[Commit]:
        """Record that the content of commits, or some parts of it, is no longer kept; gc frees the space.

        A part is a component, `optimizer`, or files of a folder, `files:optimizer.pt` or `files:*.pt`. What is left
        loads with `only=`. Raises Conflict, and drops nothing, for a whole commit that is always kept.
        """
        from cairn.store import dropping

        commits = [self.commit(revision, run) for revision in revisions]
        with config.reserve_freed(self._core.disk, self._core.layout):
            return dropping.drop(self._core, commits, only=only)

    def attempts(self, run: str | None = None) -> list[Attempt]:
        """Return the attempts of a run, with the commits of each whose content is kept."""
        from cairn.store import attempts

        return attempts.attempts(revisions.choose_run(self._core.journal, run))

    def drop_attempt(self, name: str) -> list[Commit]:
        """Drop all commits that are only on an attempt, such as `main/attempt-1`.

        Those that a tag or another run keeps stay. Raises NotFound.
        """
        from cairn.store import attempts, dropping

        attempt = attempts.named(self._core.journal, name)
        always = dropping.protected(self._core.journal)
        with config.reserve_freed(self._core.disk, self._core.layout):
            commits = [commit for commit in attempt.commits if commit.id not in always]
            return dropping.drop(self._core, commits, only=None)

    def undrop_attempt(self, name: str) -> list[Commit]:
        """Keep again all commits of an attempt that were dropped. Raises Dropped when some of their bytes are gone."""
        from cairn.store import attempts, publish

        return publish.undrop(self._core, *attempts.dropped(self._core.journal, name))

    def undrop(self, revisions: Iterable[str], *, run: str | None = None) -> list[Commit]:
        """Keep again what was dropped, while the bytes are still there; return the commits of which something was.

        Raises Dropped when the bytes are gone.
        """
        from cairn.store import publish

        commits = [self.commit(revision, run) for revision in revisions]
        kept = []
        for name in dict.fromkeys(commit.run for commit in commits):
            run_ = self._core.journal.existing(name)
            kept += publish.undrop(self._core, run_, [commit for commit in commits if commit.run == name])
        return kept


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
