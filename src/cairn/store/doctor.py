"""doctor: what the store stands on, who is at work in it, and what was left behind.

Each check says one thing that was looked at. A "problem" keeps the store from working; a "warning" is something to
know, or to clear up some day.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cairn.history import names
from cairn.io import leases, probes, process
from cairn.io.layout import CONFIG, INDEX, writer_of_lease, writer_of_temporary
from cairn.objects.blobs import list_packs, list_trash
from cairn.store.config import VERSION
from cairn.store.core import Core

OK, WARNING, PROBLEM = "ok", "warning", "problem"

_CLOCK_SECONDS = 60.0
_GIB = 1 << 30
_LOW_BYTES = _GIB
_LOW_FILES = 1000
_SHOWN = 5
_SQLITE = b"SQLite format 3\0"
_PACKAGES = {"cairn": "cairn-store", "numpy": "numpy", "blake3": "blake3", "safetensors": "safetensors"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `status` is "ok", "warning" or "problem"."""

    name: str
    status: str
    found: str
    hint: str = ""
    """What to do; nothing when all is well."""


class Doctor:
    """Looks at one store."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._disk, self._layout = core.disk, core.layout
        self._can_write = core.disk.can_write(core.layout.root)

    def examine(self) -> tuple[Check, ...]:
        """Look at everything."""
        return tuple(
            check for part in (self._place, self._abilities, self._people, self._leftovers) for check in part()
        )

    # What the store is and where.

    def _place(self) -> Iterator[Check]:
        yield Check("store", OK, f"format {VERSION}, id {self._core.config.store_id}, in {self._layout.root}")
        yield Check("versions", OK, f"Python {platform.python_version()}, {', '.join(_versions())}")
        if self._can_write:
            yield self._folders()
        else:
            hint = "reading and verify work; to write, use a store whose folder this user may change"
            yield Check("writing", WARNING, "this user cannot write here, or the file system is read-only", hint)
        yield self._mount()
        yield Check("packs", OK, f"{'mapped' if self._core.blobs.mapped else 'read, not mapped'} when they are loaded")
        yield self._room()
        yield self._reserve()

    def _folders(self) -> Check:
        """Folders that another user made, and that this one cannot write into."""
        layout = self._layout
        tops = (layout.runs, layout.tags, layout.packs, layout.leases, layout.trash, layout.tmp)
        below = [top / name for top in (layout.runs, layout.tags, layout.packs) for name in self._disk.names(top)]
        there = [folder for folder in (*tops, *below) if folder.is_dir()]
        closed = [folder for folder in there if not self._disk.can_write(folder)]
        if not closed:
            return Check("writing", OK, f"this user may write in all {len(there)} folders")
        hint = "whoever owns them gives the group write access (`chmod -R g+w`), with a umask of 002 from then on"
        return Check("writing", PROBLEM, f"this user cannot write in {self._listed(closed)}", hint)

    def _mount(self) -> Check:
        kind = process.kind_of_mount(self._layout.root) or "unknown"
        if not process.is_network_mount(self._layout.root):
            return Check("file system", OK, f"{kind}, local")
        hint = "packs stay in the trash for 24 hours; leases of other hosts are judged by the clock"
        return Check("file system", WARNING, f"{kind}, which other hosts may have mounted", hint)

    def _room(self) -> Check:
        room = probes.room(self._layout.root)
        files = "" if room.files is None else f", {room.files} files"
        found = f"{room.free / _GIB:.1f} of {room.total / _GIB:.1f} GiB{files} free"
        if room.free < _LOW_BYTES or (room.files is not None and room.files < _LOW_FILES):
            return Check(
                "space", WARNING, found, "free some with `cairn drop` and `cairn gc`, or elsewhere on the disk"
            )
        return Check("space", OK, found)

    def _reserve(self) -> Check:
        size = self._disk.size(self._layout.reserve)
        if size is None:
            return Check("reserve", WARNING, "none is set aside", "`cairn gc` sets it aside again when there is space")
        return Check("reserve", OK, f"{size} bytes set aside for a full disk")

    # What the file system does.

    def _abilities(self) -> Iterator[Check]:
        if not self._can_write:
            yield Check("abilities", OK, "not tried out: that takes writing")
            return
        yield self._tried(
            "links",
            probes.links,
            PROBLEM,
            "create a file only if its name is free",
            "nothing can be committed here; move the store to a file system with hard links",
        )
        yield self._tried(
            "locks",
            probes.locks,
            WARNING,
            "tell whether the holder of a lease is alive",
            "leases are judged by the clock: gc leaves what the last 24 hours touched",
        )
        yield self._tried("mapping", probes.mapping, PROBLEM, "map files", "loading fails here; move the store")
        yield self._tried(
            "folder sync",
            probes.folder_sync,
            WARNING,
            "make names durable",
            "a power cut may undo the last commit; nothing else is lost",
        )
        yield self._clock()

    def _tried(self, name: str, probe: Callable[..., str | None], status: str, does: str, hint: str) -> Check:
        try:
            reason = probe(self._disk, self._layout)
        except OSError as error:
            reason = f"{error.strerror or error}"
            status = PROBLEM
        return Check(name, OK, does) if reason is None else Check(name, status, f"cannot {does}: {reason}", hint)

    def _clock(self) -> Check:
        try:
            ahead = probes.clock(self._disk, self._layout)
        except OSError as error:
            return Check("clock", PROBLEM, f"cannot be asked: {error.strerror or error}", "see the checks above")
        words = f"the store's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this host's"
        if abs(ahead) > _CLOCK_SECONDS:
            return Check(
                "clock", WARNING, words, "set both clocks, by NTP for instance; times in the log are this host's"
            )
        return Check("clock", OK, "the store's clock is this host's, within a minute")

    # Who is at work.

    def _people(self) -> Iterator[Check]:
        writers = {writer_of_lease(name) for name in self._disk.names(self._layout.leases)} - {None}
        if not self._can_write:
            yield Check("leases", OK, f"{len(writers)}, not judged: that takes writing")
            return
        alive = leases.alive(self._disk, self._layout)
        found = self._listed(map(str, alive.values())) if alive else "nobody is at work"
        dead = len(writers - alive.keys())
        if dead:
            yield Check("leases", WARNING, f"{found}; {dead} of dead processes", "`cairn gc` removes them")
        else:
            yield Check("leases", OK, found)
        tmp = self._layout.tmp
        left = [tmp / name for name in self._disk.names(tmp) if writer_of_temporary(name) not in alive]
        yield self._kept("leftovers", left, WARNING, "`cairn gc` removes what dead processes left in tmp")

    # What lies around.

    def _leftovers(self) -> Iterator[Check]:
        trash = [self._layout.trashed(item) for item in list_trash(self._disk, self._layout)]
        yield self._kept("trash", trash, OK, "the next `cairn gc` deletes what nothing needs by then")
        damaged = [self._layout.damaged / name for name in self._disk.names(self._layout.damaged)]
        yield self._kept("set aside", damaged, WARNING, "remove them from `damaged` when the repair is all you wanted")
        yield self._index()
        yield self._names()

    def _kept(self, name: str, files: list[Path], status: str, hint: str) -> Check:
        if not files:
            return Check(name, OK, "nothing")
        weight = sum(self._disk.size(file) or 0 for file in files)
        return Check(name, status, f"{len(files)} file{'' if len(files) == 1 else 's'}, {weight} bytes", hint)

    def _index(self) -> Check:
        path = self._core.index.path
        size = self._disk.size(path) if path is not None else None
        if path is None or size is None:
            return Check("index", OK, "none yet; the next commit makes it")
        hint = "`cairn reindex` builds it anew; every answer is the same without it"
        if self._disk.read_at(path, 0, len(_SQLITE)) != _SQLITE or not self._core.index.is_filled():
            return Check("index", WARNING, f"broken, of another version, or not complete, {size} bytes", hint)
        lacks = len(self._core.index.lacks(list_packs(self._disk, self._layout)))
        if lacks:
            return Check("index", WARNING, f"behind by {lacks} packs, {size} bytes", hint)
        return Check("index", OK, f"complete, {size} bytes")

    def _names(self) -> Check:
        """Names that cairn does not give, or that differ from another only in case."""
        layout = self._layout
        own = {
            CONFIG,
            layout.reserve.name,
            layout.damaged.name,
            layout.settings.name,
            *(INDEX + end for end in ("", "-wal", "-shm")),
        }
        own |= {top.name for top in (layout.runs, layout.tags, layout.packs, layout.leases, layout.trash, layout.tmp)}
        odd = [layout.root / name for name in self._disk.names(layout.root) if name not in own]
        for folder in (layout.runs, layout.tags):
            seen: set[str] = set()
            for name in self._disk.names(folder):
                if not names.is_name(name) or name.lower() in seen:
                    odd.append(folder / name)
                seen.add(name.lower())
        if not odd:
            return Check("names", OK, "all are cairn's")
        hint = "move them out of the store; a name in runs or tags that is none stops gc"
        return Check("names", WARNING, f"not cairn's, or like another but for case: {self._listed(odd)}", hint)

    def _listed(self, things: Iterable[object]) -> str:
        root = self._layout.root
        words = [str(each.relative_to(root)) if isinstance(each, Path) else str(each) for each in things]
        return ", ".join(words[:_SHOWN]) + (f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else "")


def _versions() -> Iterator[str]:
    for name, package in _PACKAGES.items():
        try:
            yield f"{name} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            yield f"no {name}"
