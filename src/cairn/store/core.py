"""The opened parts of one store, which every operation works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cairn.errors import UsageError
from cairn.history.journal import Journal
from cairn.history.settings import Settings
from cairn.ids import BlobRef
from cairn.io import process
from cairn.io.disk import Disk
from cairn.io.layout import Layout
from cairn.objects.blobs import Blobs
from cairn.objects.fetch import Fetch, fetched
from cairn.objects.index import Index
from cairn.store.config import Config

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Core:
    """A disk, where things stand on it, and what has been read of them so far."""

    disk: Disk
    layout: Layout
    config: Config
    index: Index
    blobs: Blobs
    journal: Journal
    settings: Settings
    cache: Path | None = None
    has: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Whether a manifest has a part, as far as somebody asked: neither ever changes."""

    def tree(self, ref: BlobRef) -> bytes:
        """Return a tree's bytes, hash-checked. Raises Damaged."""
        return bytes(self.blobs.read(ref))

    def entries(self) -> Journal:
        """Return the journal as entries alone tell it: nothing in it comes from the index."""
        return Journal(self.disk, self.layout)

    def anew(self) -> Core:
        """Open the parts anew, so that another thread works with the store as another process would."""
        return assemble(self.disk, self.layout, self.config, self.cache)

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        """Return the concatenation of blobs, hash-checked. Raises Damaged."""
        return self.blobs.data(refs)

    def fetched(self, build: Callable[[Fetch], T], threads: int | None = None) -> T:
        """Return what is built of what a Fetch hands out, hash-checked. Raises Damaged."""
        return fetched(self.blobs, self.disk, build, threads)


def check_threads(threads: object) -> None:
    """Raise UsageError for what is no number of cores."""
    if threads is not None and (type(threads) is not int or threads < 1):
        raise UsageError(f"threads: expected an int of at least 1, or None, found {threads!r:.60}")


def assemble(disk: Disk, layout: Layout, config: Config, cache: Path | None) -> Core:
    """Open the parts of a store.

    The index lies in the store; on a network file system, where SQLite cannot work, in `cache` or else in memory.
    """
    shared = process.is_network_mount(layout.root)
    writable = disk.can_write(layout.root)
    path: Path | None = layout.index
    if shared:
        path = cache / f"{config.store_id}.sqlite" if cache else None
    index = Index(path, config.store_id, writable=writable or shared)
    blobs = Blobs(disk, layout, index, mapped=not shared)
    return Core(disk, layout, config, index, blobs, Journal(disk, layout, index), Settings(disk, layout), cache)
