"""Where good bytes may be: damaged packs, other stores, and files that happen to hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from cairn.errors import CairnError, NotFound
from cairn.files.candidates import candidates, files_below, read_again
from cairn.history.journal import Journal
from cairn.history.settings import Settings
from cairn.ids import BlobRef, blob_id
from cairn.io.disk import Disk
from cairn.io.layout import CONFIG, Layout
from cairn.objects.blobs import Blobs
from cairn.objects.index import Index
from cairn.objects.salvage import salvage
from cairn.store import config
from cairn.store.core import Core
from cairn.store.stock import Stock


@dataclass(frozen=True, slots=True)
class Good:
    """A blob whose bytes were found and hash right."""

    ref: BlobRef
    is_tree: bool
    """As far as the source tells."""
    source: str
    fetch: Callable[[], memoryview | bytes | None]
    """Returns the bytes as they are now, unchecked. Raises OSError."""


class Source(Protocol):
    """A place to look for blobs."""

    def find(self, wanted: Mapping[str, BlobRef]) -> Iterator[Good]:
        """Yield those of the wanted blobs that are there, hash-checked; perhaps others, too."""


@dataclass(frozen=True, slots=True)
class BrokenPack:
    """A pack of the store whose header is wrong."""

    disk: Disk
    path: Path
    words: str

    def find(self, wanted: Mapping[str, BlobRef]) -> Iterator[Good]:
        """Yield all that can be proven, wanted or not."""
        try:
            for ref, offset, is_tree in salvage(self.disk, self.path, wanted):
                yield Good(ref, is_tree, self.words, partial(self.disk.read_at, self.path, offset, ref.size))
        except OSError:
            return


class OtherStore:
    """Another store, or a copy of this one. Nothing in it is changed."""

    def __init__(self, disk: Disk, path: Path) -> None:
        layout = Layout(path.absolute())
        found = config.read(disk, layout)
        index = Index(None, found.store_id, writable=False)
        blobs = Blobs(disk, layout, index, mapped=False)
        self.core = Core(disk, layout, found, index, blobs, Journal(disk, layout), Settings(disk, layout))
        self._words = str(path)
        self._stock: Stock | None = None

    def find(self, wanted: Mapping[str, BlobRef]) -> Iterator[Good]:
        """Yield the wanted blobs that the store has."""
        if not wanted:
            return
        if self._stock is None:
            self._stock = Stock(self.core)
            self._stock.take()
        for ref in wanted.values():
            fetch = partial(self._fetch, self._stock, ref)
            if fetch() is not None:
                yield Good(ref, False, self._words, fetch)

    @staticmethod
    def _fetch(stock: Stock, ref: BlobRef) -> bytes | None:
        return stock.prove(ref, stock.good(ref))


@dataclass(frozen=True, slots=True)
class Files:
    """A file, or all files in a folder."""

    disk: Disk
    path: Path

    def find(self, wanted: Mapping[str, BlobRef]) -> Iterator[Good]:
        """Yield the wanted blobs that some file holds."""
        sizes = {ref.size for ref in wanted.values()}
        for path in files_below(self.path) if wanted else ():
            for data, spans in candidates(self.disk, path, sizes):
                ref = wanted.get(blob_id(data))
                if ref is not None and ref.size == data.nbytes:
                    yield Good(ref, False, str(path), partial(read_again, self.disk, path, spans))


def open_source(disk: Disk, path: Path) -> OtherStore | Files:
    """Take a path for what it is; a store whose own file is damaged is a folder of packs. Raises NotFound."""
    if not path.exists():
        raise NotFound(f"{path}: expected a store, folder or file to look for good bytes in, found nothing there")
    if disk.size(path / CONFIG) is not None:
        try:
            return OtherStore(disk, path)
        except CairnError:
            pass
    return Files(disk, path)
