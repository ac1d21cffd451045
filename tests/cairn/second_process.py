"""Another process on the same store: it does what each line of its input asks for, and says what came of it."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.cairn.reference import state

import cairn
import cairn.history.journal
import cairn.io.folds
from cairn.errors import CairnError
from cairn.io.disk import Disk
from cairn.io.handles import NewFile
from cairn.store.store import open_store


class UnsyncedFile(NewFile):
    """A file that is not forced to the medium: nothing here cuts the power."""

    def sync(self) -> None:
        """Do nothing."""


class UnsyncedDisk(Disk):
    """The real file system without its slowest part."""

    def create(self, path: Any, mode: int = 0o444) -> NewFile:
        """Open a file that is not forced."""
        made = super().create(path, mode)
        made.__class__ = UnsyncedFile
        return made

    def sync_folder(self, path: Any) -> None:
        """Do nothing."""


def commit(store: cairn.Store, run: str, key: int, step: int | None, loss: float) -> str:
    """Commit; return the id."""
    return store.run(run).commit(state(key), step=step, metrics={"loss": loss}).id


def collect(store: cairn.Store, given: list[str], compact: bool) -> None:
    """Collect garbage."""
    store.gc(keep=given, compact=compact)


def main() -> None:
    """Work until the input ends."""
    # Fold from two entries on and keep snapshots from the first, so that short histories have both.
    cairn.io.folds.SIZES = (2, 8)
    cairn.history.journal.SNAPSHOT_ENTRIES = 1
    for line in sys.stdin:
        root, what, *args = json.loads(line)
        try:
            with open_store(root, disk=UnsyncedDisk()) as store:
                found = commit(store, *args) if what == "commit" else None
                if what == "collect":
                    collect(store, *args)
        except CairnError as error:
            found = type(error).__name__
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
