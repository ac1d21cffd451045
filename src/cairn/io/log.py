"""A log: numbered entries in one folder, created one by one and never changed.

Entry `n` is the sealed line in `<n as 8 digits>.json`; old ones may stand together, byte for byte, in
`<first>-<last>.jsonl`. Each entry names the seal of the one before it (`previous`), so a missing, changed or swapped
entry is seen. The newest entry always has a file of its own, which makes "is there anything new?" two look-ups.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn import canonical
from cairn.errors import Damaged
from cairn.io.disk import Disk

FORMAT = 1

_SINGLE = re.compile(r"([0-9]{8,15})\.json", re.ASCII)
_FOLDED = re.compile(r"([0-9]{8,15})-([0-9]{8,15})\.jsonl", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it was read: its number, its seal, and what it says."""

    seq: int
    seal: str
    document: dict[str, Any]
    file: Path


@dataclass(frozen=True, slots=True)
class Wound:
    """A place where the log cannot be read, and why."""

    file: Path
    seq: int
    expected: str
    found: str


class Log:
    """Reads a log once and then only what is new."""

    def __init__(self, disk: Disk, folder: Path, *, above: int = 1) -> None:
        """Read the log in a folder; `above` counts the folders over it that come and go with their content."""
        self._disk = disk
        self.folder = folder
        self._folders = (*reversed(folder.parents[:above]), folder)
        self.entries: list[Entry] = []
        self.wounds: list[Wound] = []
        self.strangers: list[Path] = []
        self._last: int = 0
        self._listed = False

    @property
    def last(self) -> int:
        """The newest number; 0 in an empty log."""
        return self._last

    def path(self, seq: int) -> Path:
        """Where an entry stands while it has a file of its own."""
        return self.folder / f"{seq:08d}.json"

    def refresh(self) -> list[Entry]:
        """Read what is new and return it. Damage is kept in `wounds`, never raised: the rest stays readable."""
        known = len(self.entries)
        if not self._listed:
            self._list()
            return self.entries
        while self._disk.size(self.path(self._last + 1)) is not None:
            self._read_single(self._last + 1)
        if self._last and self._disk.size(self.path(self._last)) is None:
            self._list()
            return self.entries
        return self.entries[known:]

    def strangers_now(self) -> list[Path]:
        """List the names in the folder that are no entry's, as they are now."""
        return [self.folder / name for name in self._disk.names(self.folder) if not _is_entry(name)]

    def next_document(self, op: str, write_id: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return what the next entry says. Raises Damaged when the newest entry cannot be read."""
        if self.wounds and self.wounds[-1].seq == self._last:
            wound = self.wounds[-1]
            raise Damaged(
                f"{wound.file}: expected {wound.expected}, found {wound.found}; nothing can be added after an entry "
                f"that cannot be read; restore the file from a copy, then try again"
            )
        return {
            "format": FORMAT,
            "seq": self._last + 1,
            "previous": self.entries[-1].seal if self.entries else None,
            "write_id": write_id,
            "time": timestamp(self._disk),
            "op": op,
            **fields,
        }

    def append(self, document: dict[str, Any], tmp: Path) -> None:
        """Create the entry that a document of `next_document` describes. Raises FileExistsError.

        An answer that was lost, or a link that went through twice, is recognised by the write id.
        """
        seq = document["seq"]
        self._check_newest(document["previous"])
        if seq == 1:
            for folder in self._folders:
                self._disk.make_folder(folder, sync=False)
                # Also when it is there: whoever made it may not have come to this.
                self._disk.sync_folder(folder.parent)
        data = canonical.seal(document)
        try:
            self._disk.write_new(self.path(seq), data, tmp=tmp)
        except FileExistsError:
            if self._disk.size(self.path(seq)) is None or self._disk.read(self.path(seq)) != data:
                raise
            self._disk.sync_folder(self.folder)

    def _check_newest(self, seal: str | None) -> None:
        """Raise Damaged when the entry that the next one names is no longer the one that was read."""
        if seal is None:
            return
        path = self.path(self._last)
        data = self._disk.read(path) if self._disk.size(path) is not None else b""
        if not data.endswith(seal.encode() + b'"}\n'):
            raise Damaged(
                f"{path}: expected the entry that was read before, found another or none; the store was replaced or "
                f"its log changed; open it anew"
            )

    def _list(self) -> None:
        """Read everything anew."""
        self.entries, self.wounds, self.strangers, self._last = [], [], [], 0
        self._listed = True
        singles: set[int] = set()
        folded: list[tuple[int, int, str]] = []
        for name in self._disk.names(self.folder):
            if (match := _SINGLE.fullmatch(name)) and _is_entry(name):
                singles.add(int(match[1]))
            elif match := _FOLDED.fullmatch(name):
                folded.append((int(match[1]), int(match[2]), name))
            else:
                self.strangers.append(self.folder / name)
        for first, last, name in sorted(folded):
            self._read_folded(first, last, self.folder / name)
        for seq in sorted(singles):
            if seq > self._last:
                self._miss(seq)
                self._read_single(seq)

    def _miss(self, seq: int) -> None:
        for missing in range(self._last + 1, min(seq, self._last + 1001)):
            self._wound(self.path(missing), missing, f"entry {missing} of {self.folder.name}", "no such file")

    def _read_single(self, seq: int) -> None:
        file = self.path(seq)
        try:
            data = self._disk.read(file)
        except OSError as error:
            self._wound(file, seq, f"entry {seq}", error.strerror or "an unreadable file")
            return
        self._take(seq, data, file)

    def _read_folded(self, first: int, last: int, file: Path) -> None:
        try:
            lines = self._disk.read(file).splitlines(keepends=True)
        except OSError as error:
            self._wound(file, last, f"entries {first} to {last}", error.strerror or "an unreadable file")
            return
        for seq, line in enumerate(lines, first):
            if seq > self._last:
                self._miss(seq)
                self._take(seq, line, file)
        if len(lines) != last - first + 1:
            self._wound(file, last, f"{last - first + 1} entries", f"{len(lines)} lines")

    def _take(self, seq: int, data: bytes, file: Path) -> None:
        try:
            document, seal = canonical.unseal(data, str(file))
        except Damaged:
            self._wound(file, seq, f"entry {seq}, sealed with its hash", "a line that was changed or cut short")
            return
        if document.get("format") != FORMAT:
            self._wound(file, seq, f"an entry of format {FORMAT}", f"format {document.get('format')!r:.40}")
            return
        if document.get("seq") != seq or type(document.get("seq")) is not int:
            self._wound(file, seq, f"entry {seq}", f"entry {document.get('seq')!r:.40}")
            return
        after = self.entries[-1] if self.entries else None
        if (after.seq if after else 0) == seq - 1 and document.get("previous") != (after.seal if after else None):
            self._wound(file, seq, "the seal of the entry before it", f"{document.get('previous')!r:.80}")
            return
        self.entries.append(Entry(seq, seal, document, file))
        self._last = seq

    def _wound(self, file: Path, seq: int, expected: str, found: str) -> None:
        self.wounds.append(Wound(file, seq, expected, found))
        self._last = max(self._last, seq)


def _is_entry(name: str) -> bool:
    match = _SINGLE.fullmatch(name)
    if match is None:
        return _FOLDED.fullmatch(name) is not None
    return name == f"{int(match[1]):08d}.json" and int(match[1]) > 0


def timestamp(disk: Disk) -> str:
    """The time as documents spell it: UTC, ISO 8601, microseconds."""
    return disk.now().isoformat(timespec="microseconds").replace("+00:00", "Z")
