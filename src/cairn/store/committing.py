"""The commits of one handle: one at a time, now or in the background, each of which continues from the one before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cairn.errors import Busy
from cairn.store.base import Base
from cairn.store.core import Core
from cairn.store.pending import Pending

if TYPE_CHECKING:
    from cairn.history.commit import Commit
    from cairn.state.sketch import Sketch
    from cairn.store.publish import Note, Published

Advance = Callable[[int], None]


class Committer:
    """Commits to one run from a base, and makes everything else that changes a handle wait for the commit in flight.

    A commit that fails leaves the base as it was.
    """

    def __init__(self, core: Core, run: str, base: Base) -> None:
        self._core, self._run = core, run
        self._guard = _Guard(run)
        self._pending: Pending | None = None
        self._means: _Means | None = None
        self.base = base
        self.last: Published | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep the handle to one operation, from the end of the commit in flight on. Raises as `finish` does."""
        with self._guard:
            self.finish()
            yield

    def finish(self) -> None:
        """Wait for the commit in flight; raise what the last one failed with, if nobody has seen it."""
        if self._pending is not None:
            self._pending.settle()

    def commit(self, state: Mapping[str, object], note: Note, advance: Advance, threads: int | None) -> Published:
        """Publish a state."""
        from cairn.state.encode import sketch

        with self._guard:
            sketched = sketch(state)
            self.finish()
            return self._publish(self._core, sketched, note, advance, threads)

    def begin(self, state: Mapping[str, object], note: Note, advance: Advance, threads: int | None) -> Pending:
        """Take a snapshot of a state, and publish that in the background."""
        from cairn.state.encode import sketch

        with self._guard:
            sketched = sketch(state)
            self.finish()
            # The commit's own until it ends: should this be interrupted, nobody else gets it.
            means, self._means = self._means or _Means(self._core.anew()), None
            means.staging.take((leaf for leaves in sketched.components.values() for leaf in leaves), threads)
            make = partial(self._publish_with, means, sketched, note, advance, threads)
            self._pending = Pending(self._core, self._run, note.step, make)
            return self._pending

    def _publish_with(
        self, means: _Means, sketched: Sketch, note: Note, advance: Advance, threads: int | None
    ) -> Commit:
        try:
            made = self._publish(means.core, sketched, note, advance, threads).commit
        finally:
            means.core.index.close()
        # Not after a failure: where that left off reading is not known.
        self._means = means
        return made

    def _publish(self, core: Core, sketched: Sketch, note: Note, advance: Advance, threads: int | None) -> Published:
        from cairn.store import publish

        self.last = publish.commit(core, self._run, self.base, sketched, note, advance, threads)
        made = self.last.commit
        tip = core.journal.run(self._run).state.tip
        if self.last.is_new or made.id == tip:
            self.base = Base(made.id, made.id)
        return self.last


class _Means:
    """What a commit in the background works with, and hands on to the next when it is made.

    What it reads and remembers of the store is its own, as if it were another process.
    """

    def __init__(self, core: Core) -> None:
        from cairn.state.staging import Staging

        self.core = core
        self.staging = Staging()


class _Guard:
    """Keeps threads apart, and tells one that is inside already instead of letting it wait for itself.

    A signal handler that commits while its thread commits would wait for ever.
    """

    def __init__(self, name: str) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._name = name

    def __enter__(self) -> None:
        if self._owner == threading.get_ident():
            raise Busy(f"run {self._name!r} is being committed or resumed by this very thread; do it after that")
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *exception: object) -> None:
        self._owner = None
        self._lock.release()
