"""A sign of life for work that takes longer than a second, on stderr, only on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

DELAY_SECONDS = 1.0


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Show what is being done while it is being done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    sign = _Sign(doing)
    timer = threading.Timer(DELAY_SECONDS, sign.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        sign.stop()


class _Sign:
    """A spinner that is started by one thread and stopped by another."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._guard = threading.Lock()
        self._status: Status | None = None
        self._done = False

    def start(self) -> None:
        from rich.console import Console

        with self._guard:
            if not self._done:
                self._status = Console(stderr=True).status(f"{self._doing}…")
                self._status.start()

    def stop(self) -> None:
        with self._guard:
            self._done = True
            if self._status is not None:
                self._status.stop()
