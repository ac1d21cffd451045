"""Repair of entries: the damaged file of a log is replaced by that of a copy of the store, if the chain proves it.

Each entry is named by the next through its seal. So the entries of a copy are right if the first that is still readable
after them names the last of them, and they name each other and the one before them. The newest entry has no such
witness: it must come from a store of the same id, be sealed right and name the one before it.

A damaged file is replaced by one rename and never removed first: a log whose newest entry is gone looks like one that
never had it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cairn import canonical
from cairn.errors import Damaged
from cairn.history import names
from cairn.io import entry
from cairn.io.disk import Disk
from cairn.io.log import Log
from cairn.store.core import Core

_FILE = re.compile(r"([0-9]{8,15})(?:-([0-9]{8,15}))?\.jsonl?", re.ASCII)


_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class MendedEntry:
    """A file of a log that was put back, or would be: where, and the copy that it is from."""

    file: str
    source: str


@dataclass(frozen=True, slots=True)
class _Line:
    """An entry as it stands in a file, its seal checked."""

    seal: str
    previous: str | None
    data: bytes


class EntryMender:
    """Puts back what is damaged or missing below the newest entry of each log."""

    def __init__(self, core: Core, copies: Iterable[Core], write_id: str) -> None:
        self._core = core
        # The store itself comes first: what was folded may have kept its file.
        self._copies = [core, *(copy for copy in copies if copy.config.store_id == core.config.store_id)]
        self._write_id = write_id

    def run(self, *, dry_run: bool) -> list[MendedEntry]:
        """Mend what a copy proves; return what was mended."""
        done: list[MendedEntry] = []
        for folder in self._damaged_logs():
            for copy in self._copies:
                for path, data in self._replacements(folder, copy):
                    name = str(path.relative_to(self._core.layout.root))
                    if any(mended.file == name for mended in done):
                        continue  # Nothing was changed: this is a dry run.
                    if not dry_run:
                        self._replace(path, data, len(done))
                    done.append(MendedEntry(name, str(copy.layout.root)))
        return done

    def _damaged_logs(self) -> Iterator[Path]:
        disk, layout = self._core.disk, self._core.layout
        folders = [above / name for above in (layout.runs, layout.tags) for name in disk.names(above)]
        folders = [folder for folder in folders if names.is_name(folder.name)]
        for folder in [*folders, layout.settings]:
            log = Log(disk, folder)
            log.refresh()
            if log.wounds:
                yield folder

    def _replacements(self, folder: Path, copy: Core) -> Iterator[tuple[Path, bytes]]:
        """The files of a log that a copy can put in place, with their bytes."""
        listed = _listed(self._core.disk, folder)
        proven = _lines(self._core.disk, listed)
        theirs = _lines(copy.disk, _listed(copy.disk, copy.layout.root / folder.relative_to(self._core.layout.root)))
        newest = max((last for _, _, last in listed), default=0)
        # From the newest back, so that what is proven proves what is before it.
        for run in _gaps(proven, newest):
            if all(seq in theirs for seq in run):
                lines = [theirs[seq] for seq in run]
                before, after = proven.get(run[0] - 1), proven.get(run[-1] + 1)
                if _is_chain([before, *lines, after], is_first=run[0] == 1, is_newest=run[-1] == newest):
                    proven.update(zip(run, lines, strict=True))
        for path, first, last in listed:
            # An entry may stand in two files, and be right in only one.
            lines_there = _split(self._core.disk, path, first, last)
            is_whole = len(lines_there) == last - first + 1 and all(_line(*item) for item in lines_there)
            if not is_whole and all(seq in proven for seq in range(first, last + 1)):
                yield path, b"".join(proven[seq].data for seq in range(first, last + 1))
        for seq in sorted(proven):
            if not any(first <= seq <= last for _, first, last in listed):
                yield folder / entry.name_of(seq), proven[seq].data

    def _replace(self, path: Path, data: bytes, number: int) -> None:
        disk, layout = self._core.disk, self._core.layout
        tmp = layout.temporary(self._write_id, f"mended-{number}")
        if not disk.exists(path):
            disk.write_new(path, data, tmp=tmp)
            return
        disk.make_folder(layout.damaged)
        disk.link(path, layout.set_aside(self._write_id, path))
        disk.sync_folder(layout.damaged)
        file = disk.create(tmp)
        try:
            file.write(data)
            file.sync()
        finally:
            file.close()
        disk.rename(tmp, path)
        disk.sync_folder(path.parent)


_File = tuple[Path, int, int]
"""A file of a log, and the numbers of the first and the last entry that it should have."""


def _lines(disk: Disk, listed: Iterable[_File]) -> dict[int, _Line]:
    """The entries that can be read, wherever they stand."""
    found: dict[int, _Line] = {}
    for path, first, last in listed:
        for seq, data in _split(disk, path, first, last):
            line = found.get(seq) or _line(seq, data)
            if line is not None:
                found[seq] = line
    return found


def _split(disk: Disk, path: Path, first: int, last: int) -> list[tuple[int, bytes]]:
    """The lines that a file has, with their numbers. A name may promise any number of them."""
    try:
        data = disk.read(path)
    except OSError:
        return []
    lines = _LINE.findall(data) if path.suffix == ".jsonl" else [data]
    return list(zip(range(first, last + 1), lines, strict=False))


def _listed(disk: Disk, folder: Path) -> list[_File]:
    matches = [(folder / name, match) for name in disk.names(folder) if (match := _FILE.fullmatch(name))]
    return [(path, int(match[1]), int(match[2] or match[1])) for path, match in matches]


def _line(seq: int, data: bytes) -> _Line | None:
    try:
        document, seal = canonical.unseal(data, "an entry")
    except Damaged:
        return None
    previous = document.get("previous")
    if document.get("seq") != seq or not (previous is None or isinstance(previous, str)):
        return None
    return _Line(seal, previous, data)


def _gaps(known: Iterable[int], newest: int) -> list[range]:
    """The numbers up to the newest that are not known, the newest first."""
    ends = [0, *sorted(known), newest + 1]
    return [range(before + 1, after) for before, after in reversed(list(pairwise(ends))) if after > before + 1]


def _is_chain(lines: list[_Line | None], *, is_first: bool, is_newest: bool) -> bool:
    """Whether lines name each other; nothing need stand before the first entry and after the newest."""
    start = 1 if is_first else 0
    stop = len(lines) - 1 if is_newest else len(lines)
    chain = [line for line in lines[start:stop] if line is not None]
    if len(chain) != stop - start or (is_first and chain[0].previous is not None):
        return False
    return all(after.previous == before.seal for before, after in pairwise(chain))
