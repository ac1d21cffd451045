"""One entry of a log: a sealed line, and what is wrong with one that is not what its place says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn import canonical
from cairn.errors import Damaged
from cairn.io import folds

FORMAT = 1

_SINGLE = re.compile(r"([0-9]{8,15})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it was read: its number, its seal, and what it says."""

    seq: int
    seal: str
    document: dict[str, Any]
    file: Path


@dataclass(frozen=True, slots=True)
class Wound:
    """A place where a log cannot be read, and why."""

    file: Path
    seq: int
    expected: str
    found: str


class Unsound(Damaged):
    """An entry that is not what its place says."""

    def __init__(self, file: Path, expected: str, found: str) -> None:
        super().__init__(f"{file}: expected {expected}, found {found}")
        self.expected, self.found = expected, found


def parse(seq: int, data: bytes, file: Path) -> Entry:
    """Read an entry from its line. Raises Unsound."""
    try:
        document, seal = canonical.unseal(data, str(file))
    except Damaged as error:
        found = "a line that was changed or cut short"
        raise Unsound(file, f"entry {seq}, sealed with its hash", found) from error
    if document.get("format") != FORMAT:
        raise Unsound(file, f"an entry of format {FORMAT}", f"format {document.get('format')!r:.40}")
    if document.get("seq") != seq or type(document.get("seq")) is not int:
        raise Unsound(file, f"entry {seq}", f"entry {document.get('seq')!r:.40}")
    return Entry(seq, seal, document, file)


def name_of(seq: int) -> str:
    """Return the name of the file that an entry has to itself."""
    return f"{seq:08d}.json"


def number_of(name: str) -> int | None:
    """Read an entry's number from the name of its file."""
    match = _SINGLE.fullmatch(name)
    if match is None or name != name_of(int(match[1])) or int(match[1]) == 0:
        return None
    return int(match[1])


def is_entry(name: str) -> bool:
    """Whether a file of this name holds an entry, or folded ones."""
    return number_of(name) is not None or folds.block_of(name) is not None
