"""Where things stand in a store's folder: names in, paths out, and back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CONFIG = "cairn.json"
INDEX = "index.sqlite"

_PACK = re.compile(r"([0-9a-f]{64})\.safetensors", re.ASCII)
_TRASHED = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{64})\.safetensors", re.ASCII)
_TEMPORARY = re.compile(r"([0-9a-f]{32})\.[a-z0-9-]+", re.ASCII)
_LEASE = re.compile(r"([0-9a-f]{32})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Trashed:
    """A pack on its way out: which gc put it there, and under which name it goes back."""

    gc_id: str
    pack_id: str

    @property
    def name(self) -> str:
        """The file name in the trash."""
        return f"{self.gc_id}.{self.pack_id}.safetensors"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one store."""

    root: Path

    @property
    def config(self) -> Path:
        """The file that makes a folder a store."""
        return self.root / CONFIG

    @property
    def index(self) -> Path:
        """The derived database."""
        return self.root / INDEX

    @property
    def runs(self) -> Path:
        """One folder of entries for each run."""
        return self.root / "runs"

    @property
    def tags(self) -> Path:
        """One folder of entries for each tag."""
        return self.root / "tags"

    @property
    def settings(self) -> Path:
        """The entries that say which rules hold."""
        return self.root / "settings"

    @property
    def packs(self) -> Path:
        """The packs, fanned out by the first two digits of their ids."""
        return self.root / "packs"

    @property
    def leases(self) -> Path:
        """What live processes hold."""
        return self.root / "leases"

    @property
    def trash(self) -> Path:
        """Packs on their way out."""
        return self.root / "trash"

    @property
    def damaged(self) -> Path:
        """Damaged files that a repair set aside."""
        return self.root / "damaged"

    @property
    def tmp(self) -> Path:
        """Files being written."""
        return self.root / "tmp"

    @property
    def reserve(self) -> Path:
        """Space set aside for a full disk."""
        return self.root / "reserve"

    def pack(self, pack_id: str) -> Path:
        """Where a pack stands."""
        return self.packs / pack_id[:2] / f"{pack_id}.safetensors"

    def trashed(self, item: Trashed) -> Path:
        """Where a pack stands while it is in the trash."""
        return self.trash / item.name

    def set_aside(self, write_id: str, path: Path) -> Path:
        """Where a repair puts a damaged file of the store."""
        return self.damaged / f"{write_id}.{'.'.join(path.relative_to(self.root).parts)}"

    def temporary(self, write_id: str, part: str) -> Path:
        """Where an operation writes one of its files."""
        return self.tmp / f"{write_id}.{part}"

    def lease(self, write_id: str) -> Path:
        """Where an operation's lease stands."""
        return self.leases / f"{write_id}.json"


def pack_id_of(name: str) -> str | None:
    """Read a pack's id from its file name."""
    match = _PACK.fullmatch(name)
    return match[1] if match else None


def trashed_of(name: str) -> Trashed | None:
    """Read the gc and the pack from a file name in the trash."""
    match = _TRASHED.fullmatch(name)
    return Trashed(match[1], match[2]) if match else None


def writer_of_temporary(name: str) -> str | None:
    """Read the write id from a file name in tmp."""
    match = _TEMPORARY.fullmatch(name)
    return match[1] if match else None


def writer_of_lease(name: str) -> str | None:
    """Read the write id from a file name in leases."""
    match = _LEASE.fullmatch(name)
    return match[1] if match else None
