"""A sign of life for work that takes longer than a second, on stderr, only on a terminal.

Where the bytes to come are known it is a bar with bytes, rate and time left, else a spinner.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.status import Status

DELAY_SECONDS = 1.0
REFRESH_SECONDS = 0.1


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Show what is being done while it is being done."""
    with _shown_late(partial(_spinner, doing)):
        yield


@contextmanager
def moving_bytes(doing: str) -> Iterator[Bar]:
    """Show how far it is."""
    bar = Bar(doing)
    with _shown_late(bar.make):
        yield bar


class Bar:
    """A bar that any thread may move."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._guard = threading.Lock()
        self._total = self._moved = 0
        self._next = 0.0
        self._live: Progress | None = None

    def expect(self, nbytes: int) -> None:
        """Learn of more bytes to come."""
        with self._guard:
            self._total += nbytes
        self._update()

    def advance(self, nbytes: int) -> None:
        """Learn of bytes that are done."""
        with self._guard:
            self._moved += nbytes
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + REFRESH_SECONDS
            self._update()

    def make(self) -> Progress:
        """Make what is shown."""
        from rich import progress
        from rich.console import Console

        made = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        made.add_task(self._doing, total=self._total, completed=self._moved)
        self._live = made
        return made

    def _update(self) -> None:
        if self._live is not None:
            self._live.update(self._live.task_ids[0], total=self._total, completed=self._moved)


def _spinner(doing: str) -> Status:
    from rich.console import Console

    return Console(stderr=True).status(f"{doing}…")


@contextmanager
def _shown_late(make: Callable[[], Progress | Status]) -> Iterator[None]:
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    sign = _Sign(make)
    timer = threading.Timer(DELAY_SECONDS, sign.show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        sign.remove()


class _Sign:
    """Something on the terminal that is shown by one thread and removed by another."""

    def __init__(self, make: Callable[[], Progress | Status]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._live: Progress | Status | None = None
        self._done = False

    def show(self) -> None:
        with self._guard:
            if not self._done:
                self._live = self._make()
                self._live.start()

    def remove(self) -> None:
        with self._guard:
            self._done = True
            if self._live is not None:
                self._live.stop()
