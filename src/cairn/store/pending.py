"""A commit that is made in the background, and what makes sure that its failure is not missed.

The thread is no daemon: the interpreter ends only after it. A failure is raised where somebody asks first: `result`,
the next use of the handle, the end of the store, or the end of the process.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from cairn.errors import CairnError
from cairn.history.commit import Commit
from cairn.store.core import Core


class Pending:
    """A commit that `wait=False` began: it is made while the caller goes on.

    A failure that nobody has seen is raised by the next commit, resume or other change by the same handle, or when
    the store is closed; at the end of the process Python prints it. After that it is raised by `result` alone.
    """

    def __init__(self, core: Core, run: str, step: int | None, make: Callable[[], Commit]) -> None:
        self.run = run
        self.step = step
        self._core = core
        self._commit: Commit | None = None
        self._error: BaseException | None = None
        self._maker = os.getpid()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(make,), name="cairn-commit", daemon=False)
        _open[self] = None
        try:
            self._thread.start()
        except RuntimeError as error:
            del _open[self]
            raise CairnError(f"{self._words}: {error}; nothing was committed, commit with wait=True") from error
        if not threading.main_thread().is_alive():
            # The program has ended, and what ends it now waits for no thread any more.
            self._wait()

    def __repr__(self) -> str:
        state = "failed" if self._error else "done" if self._commit else "in flight"
        return f"<{self._words}, {state}>"

    def result(self, timeout: float | None = None) -> Commit:
        """Wait until the commit is published and return it, or raise what went wrong, each time it is asked for.

        Raises TimeoutError when that takes more seconds; the commit goes on all the same.
        """
        self._wait(timeout)
        if not self.done():
            raise TimeoutError(f"{self._words}: expected to be done within {timeout} s, found it in flight; ask again")
        if self._commit is not None:
            return self._commit
        if self._error is None:
            raise CairnError(f"{self._words} is made by process {self._maker}, of which this one is a fork; ask there")
        _open.pop(self, None)
        raise self._error

    def done(self) -> bool:
        """Whether the commit is published or has failed."""
        return self._ended.is_set() or self._maker != os.getpid()

    def settle(self) -> None:
        """Wait until the commit is published or has failed; raise what went wrong, if nobody has seen it yet."""
        self._wait()
        if self._is_unseen:
            self.result()

    def _wait(self, timeout: float | None = None) -> None:
        # A join that is interrupted takes the thread for ended, and so does the interpreter when it ends.
        if not self.done() and self._ended.wait(timeout):
            self._thread.join()

    @property
    def _is_unseen(self) -> bool:
        # What a fork inherits is its parent's to see.
        return self._error is not None and self in _open and self._maker == os.getpid()

    @property
    def _words(self) -> str:
        return f"commit of {'a state' if self.step is None else f'step {self.step}'} to run {self.run!r}"

    def _work(self, make: Callable[[], Commit]) -> None:
        try:
            self._commit = make()
        except BaseException as error:
            _let_go(error)
            error.add_note(
                f"This ended the {self._words}, which wait=False had begun; neither it nor what came after it was done."
            )
            self._error = error
            # What this frame holds would stay as long as the error.
            del make
        else:
            del _open[self]
        finally:
            self._ended.set()


_open: dict[Pending, None] = {}
"""The commits that are in flight, or have failed and nobody has seen it, in the order in which they were begun."""


def settle_all(core: Core, *, raising: bool) -> None:
    """Wait for all commits in flight of a store; raise what went wrong first, if nobody has seen it yet."""
    mine = [pending for pending in list(_open) if pending._core is core]
    for pending in mine:
        pending._wait()
    if raising:
        for pending in mine:
            pending.settle()


def _let_go(error: BaseException) -> None:
    """Free what the frames of an error hold: the snapshot, and through it much of the memory there is."""
    # Imported here: nothing else needs it.
    from traceback import clear_frames

    seen: BaseException | None = error
    while seen is not None:
        clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__


@atexit.register
def _raise_unseen() -> None:
    """Raise what nobody has seen, so that Python prints it. The threads have ended by now."""
    failed = [f"{pending._words} failed: {pending._error}" for pending in list(_open) if pending._is_unseen]
    if failed:
        raise CairnError("\n".join(failed))
