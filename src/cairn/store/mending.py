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
        ours = _lines(self._core.disk, folder)
        theirs = _lines(copy.disk, copy.layout.root / folder.relative_to(self._core.layout.root))
        proven = {seq: line for seq, line in ours.items() if line is not None}
        for run in _gaps(ours):
            # From the newest back, so that what is proven proves what is before it.
            before, after = proven.get(run[0] - 1), proven.get(run[-1] + 1)
            lines = [theirs.get(seq) for seq in run]
            if _is_chain([before, *lines, after], is_first=run[0] == 1, is_newest=run[-1] == max(ours)):
                proven.update((seq, line) for seq, line in zip(run, lines, strict=True) if line is not None)
        for path, first, last in _files(self._core.disk, folder, ours):
            wanted = range(first, last + 1)
            # An entry may stand in two files, and be right in only one.
            is_whole = all(_line(*item) for item in _split(self._core.disk, path, first, last))
            if not is_whole and all(seq in proven for seq in wanted):
                yield path, b"".join(proven[seq].data for seq in wanted)

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


def _lines(disk: Disk, folder: Path) -> dict[int, _Line | None]:
    """Every entry from the first to the newest; None for one that cannot be read. What is folded counts."""
    found: dict[int, _Line | None] = {}
    for path, first, last in _listed(disk, folder):
        for seq, line in _split(disk, path, first, last):
            found[seq] = found.get(seq) or _line(seq, line)
    newest = max(found, default=0)
    return {seq: found.get(seq) for seq in range(1, newest + 1)}


def _split(disk: Disk, path: Path, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """The numbers that a file should have, with their lines; nothing for a line that is missing."""
    try:
        data = disk.read(path)
    except OSError:
        data = b""
    lines = _LINE.findall(data) if path.suffix == ".jsonl" else [data]
    return zip(range(first, last + 1), [*lines, *[b""] * (last - first + 1)], strict=False)


def _listed(disk: Disk, folder: Path) -> list[tuple[Path, int, int]]:
    matches = [(folder / name, match) for name in disk.names(folder) if (match := _FILE.fullmatch(name))]
    return [(path, int(match[1]), int(match[2] or match[1])) for path, match in matches]


def _files(disk: Disk, folder: Path, ours: dict[int, _Line | None]) -> list[tuple[Path, int, int]]:
    """The files that the log has or lacks: those that are there, and one for each entry that is in none of them."""
    listed = _listed(disk, folder)
    held = {seq for _, first, last in listed for seq in range(first, last + 1)}
    return listed + [(folder / f"{seq:08d}.json", seq, seq) for seq in ours if seq not in held]


def _line(seq: int, data: bytes) -> _Line | None:
    try:
        document, seal = canonical.unseal(data, "an entry")
    except Damaged:
        return None
    previous = document.get("previous")
    if document.get("seq") != seq or not (previous is None or isinstance(previous, str)):
        return None
    return _Line(seal, previous, data)


def _gaps(ours: dict[int, _Line | None]) -> list[list[int]]:
    """Runs of entries that cannot be read, the newest first."""
    gaps: list[list[int]] = []
    for seq in reversed(ours):
        if ours[seq] is None:
            if gaps and gaps[-1][0] == seq + 1:
                gaps[-1].insert(0, seq)
            else:
                gaps.append([seq])
    return gaps


def _is_chain(lines: list[_Line | None], *, is_first: bool, is_newest: bool) -> bool:
    """Whether lines name each other; nothing need stand before the first entry and after the newest."""
    start = 1 if is_first else 0
    stop = len(lines) - 1 if is_newest else len(lines)
    chain = [line for line in lines[start:stop] if line is not None]
    if len(chain) != stop - start or (is_first and chain[0].previous is not None):
        return False
    return all(after.previous == before.seal for before, after in pairwise(chain))
