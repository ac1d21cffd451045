"""A disk that lets a commit in the background go on, or fail, when a test says so."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from cairn.io.disk import Disk

PATIENCE_SECONDS = 60.0
"""After this long a wait counts as a deadlock."""


def interrupt_the_wait() -> None:
    """Send Ctrl-C to the main thread, which calls this, once it waits for another."""
    goes_on = threading.Event()

    def send() -> None:
        goes_on.wait()
        main, waits = threading.main_thread().ident or 0, {"wait", "_wait_for_tstate_lock"}
        while sys._current_frames()[main].f_code.co_name not in waits:
            pass
        # From the first line of the wait to where it really waits.
        threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send).start()
    goes_on.set()


class GatedDisk(Disk):
    """Stops the threads of commits in the background before their first step while the gate is closed."""

    def __init__(self) -> None:
        self.fails_at = ""
        """The name of the step that finds the disk full."""
        self.before_next_read: Callable[[], object] | None = None
        """What is done when the main thread reads the next file."""
        self._reached, self._gate = threading.Event(), threading.Event()
        self._gate.set()

    def close_gate(self) -> None:
        """From now on commits in the background wait."""
        self._reached.clear()
        self._gate.clear()

    def open_gate(self) -> None:
        """Let them go on."""
        self._gate.set()

    def wait_until_reached(self) -> None:
        """Wait until one stands at the gate."""
        assert self._reached.wait(PATIENCE_SECONDS)

    def step(self, name: str, path: Path) -> None:
        if threading.current_thread().name == "cairn-commit":
            self._reached.set()
            assert self._gate.wait(PATIENCE_SECONDS)
        if name == self.fails_at:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def read(self, path: Path) -> bytes:
        if self.before_next_read is not None and threading.current_thread() is threading.main_thread():
            meanwhile, self.before_next_read = self.before_next_read, None
            meanwhile()
        return super().read(path)
