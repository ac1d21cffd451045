"""`cairn.json`: the file that makes a folder a store. Written once by `init`, never changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn import canonical
from cairn.errors import Conflict, Damaged, StoreNotFound
from cairn.io.disk import Disk
from cairn.io.layout import CONFIG, Layout

FORMAT = "cairn"
VERSION = 1
HASH = "blake3"
RESERVE_BYTES = 1 << 20
"""Set aside by `init`, so that a full disk still has room for the entries and leases that freeing space takes."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a store is: its format version, its id, its options."""

    store_id: str
    options: dict[str, Any]


def create(disk: Disk, layout: Layout) -> Config:
    """Make a store. Raises Conflict when there is one, or other files are in the way."""
    if disk.size(layout.config) is not None:
        raise Conflict(f"{layout.root} is a store already; open it instead")
    _check_unused(disk, layout)
    for parent in reversed((layout.root, *layout.root.parents)):
        if not parent.is_dir():
            disk.make_folder(parent)
    for folder in (layout.runs, layout.tags, layout.packs, layout.leases, layout.trash, layout.tmp):
        disk.make_folder(folder)
    fill_reserve(disk, layout)
    write_id = disk.new_id()
    document = {"format": FORMAT, "version": VERSION, "store_id": write_id, "hash": HASH, "options": {}}
    disk.write_new(layout.config, canonical.seal(document), tmp=layout.temporary(write_id, "config"))
    return Config(write_id, {})


def _check_unused(disk: Disk, layout: Layout) -> None:
    """Refuse a folder in use. What an `init` that was cut short left behind is none: it holds nothing yet."""
    if layout.root.exists() and not layout.root.is_dir():
        raise Conflict(f"{layout.root}: expected a folder or nothing, found a file; choose another place")
    own = {path.name for path in (layout.runs, layout.tags, layout.packs, layout.leases, layout.trash, layout.tmp)}
    found = set(disk.names(layout.root)) - own - {layout.reserve.name}
    full = [path for path in (layout.runs, layout.tags, layout.packs, layout.trash) if disk.names(path)]
    if found or full:
        raise Conflict(f"{layout.root}: expected a new or empty folder, found files in it; choose another place")


def read(disk: Disk, layout: Layout) -> Config:
    """Read and check what a store is. Raises StoreNotFound or Damaged."""
    try:
        data = disk.read(layout.config)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreNotFound(
            f"{layout.root} is not a store: it has no {CONFIG}; make one with `cairn init {layout.root}`"
        ) from None
    document, _ = canonical.unseal(data, str(layout.config))
    if document.get("format") != FORMAT or document.get("version") != VERSION or document.get("hash") != HASH:
        raise StoreNotFound(
            f"{layout.config}: expected {FORMAT} version {VERSION} with {HASH}, found {document.get('format')!r} "
            f"version {document.get('version')!r} with {document.get('hash')!r}; a newer cairn may read it"
        )
    store_id, options = document.get("store_id"), document.get("options")
    if not isinstance(store_id, str) or not isinstance(options, dict):
        raise Damaged(f"{layout.config}: expected a store id and options, found {document!r:.120}")
    return Config(store_id, options)


def fill_reserve(disk: Disk, layout: Layout) -> None:
    """Set the reserve aside, if it is not there; half of it, or a quarter, where no more is to be had."""
    if disk.size(layout.reserve) is not None:
        return
    file = disk.create(layout.reserve, 0o644)
    try:
        for size in (RESERVE_BYTES, RESERVE_BYTES // 2, RESERVE_BYTES // 4):
            with suppress(OSError):
                file.allocate(size)
                return
    finally:
        file.close()
    disk.unlink(layout.reserve)


@contextmanager
def reserve_freed(disk: Disk, layout: Layout) -> Iterator[None]:
    """Lend the reserve to what frees space: the entries and leases that it takes fit on a full disk, then."""
    with suppress(OSError):
        disk.unlink(layout.reserve)
    try:
        yield
    finally:
        # On a disk that is still full the reserve stays away until the next time.
        with suppress(OSError):
            fill_reserve(disk, layout)


def find(start: Path) -> Path | None:
    """Return the nearest folder at or above `start` that is a store, or whose `store` folder is one."""
    for folder in (start, *start.parents):
        for candidate in (folder, folder / "store"):
            if (candidate / CONFIG).is_file():
                return candidate
    return None
