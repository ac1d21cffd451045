"""What is measured: a tool that keeps a state in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from states import State
from timing import files_below

Work = Callable[[], object]


class Tool:
    """A way to keep states. `start`, `prepare` and whatever a method returns as work to do are told apart by the clock.

    A tool is started in a new folder for each round, so nobody overwrites what is there.
    """

    name: str
    does_share = False
    """Whether a second save of a state can cost less than the first."""
    is_slow = False
    """Whether it takes so long that few rounds must do."""

    def missing(self) -> str | None:
        """Say what is not installed, or None."""
        return None

    def start(self, folder: Path) -> None:
        """Make what a first save needs; not timed."""
        self.folder = folder
        folder.mkdir(parents=True)

    def prepare(self, state: State) -> None:
        """Make ready for a save of the state as it is now; not timed."""

    def save(self, state: State) -> None:
        """Keep the state."""
        raise NotImplementedError  # Every tool has its own way.

    def save_later(self, state: State) -> Callable[[], object] | None:
        """Begin to keep the state, and return what waits for the end; None where there is no such thing."""
        return None

    @property
    def has_later(self) -> bool:
        """Whether `save_later` does something."""
        return type(self).save_later is not Tool.save_later

    def loads(self, state: State) -> Mapping[str, Work]:
        """The ways to have the state back that was saved last: name to work, of LOADS in `rounds`."""
        return {}

    def files(self) -> list[Path]:
        """The files that a load of the last save may read."""
        return files_below(self.folder)

    def forget(self) -> None:
        """Unmap what loads have mapped, so that it can leave the page cache."""

    def stop(self) -> None:
        """Let go of everything; the folder is removed next."""
