"""The one way in which a checkpoint's file comes into being.

The bytes go to `<name>.tmp` in the same folder and reach the disk before the file gets its name. Under its name a file
is therefore whole or absent, whenever the process or the machine dies. The folder is synchronised as well,
because a rename is a change of the folder.

An interrupted write leaves its `.tmp` behind. That is deliberate: it is a trace of what happened, it never
counts as the file, and the next save removes it.
"""

from __future__ import annotations

import os
from pathlib import Path


def temporary(path: Path) -> Path:
    """Returns where a file is written before it gets its name."""
    return path.with_name(path.name + ".tmp")


def write_atomic(path: Path, data: bytes) -> None:
    """Writes a file so that it appears whole or not at all, over an older one if there is one."""
    with temporary(path).open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary(path), path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
