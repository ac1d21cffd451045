"""A log: numbered entries in one folder, created one by one and never changed.

Entry `n` is the sealed line in `<n as 8 digits>.json`; old ones may stand together, byte for byte, in folded files
(`cairn.io.folds`). Each entry names the seal of the one before it (`previous`), so a missing, changed or swapped
entry is seen. The newest entry always has a file of its own, which makes "is there anything new?" two look-ups.

A log hands on each entry as it reads it and keeps none: a run of 100 000 commits needs no more memory than one of ten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cairn import canonical
from cairn.errors import Damaged
from cairn.io import folds
from cairn.io.disk import Disk
from cairn.io.entries import Entries
from cairn.io.entry import FORMAT, Entry, Unsound, Wound, is_entry, number_of, parse
from cairn.io.folds import FoldedFile

_LOOKS = 8


class Log(Entries):
    """Reads a log once and then only what is new.

    `take` is handed each entry in its order; `restart` is called before that begins anew, because another log stands
    there now.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        take: Callable[[Entry], None] = lambda entry: None,
        restart: Callable[[], None] = lambda: None,
        *,
        above: int = 1,
    ) -> None:
        """Read the log in a folder; `above` counts the folders over it that come and go with their content."""
        super().__init__(disk, folder)
        self._folders = (*reversed(folder.parents[:above]), folder)
        self._hand_on, self._restart = take, restart
        self.last = 0
        """The newest number; 0 in an empty log."""
        self.newest: Entry | None = None
        """The newest entry that could be read."""
        self.count = 0
        """How many entries were read."""
        self.wounds: list[Wound] = []
        self.strangers: list[Path] = []
        self.is_reading = False
        """Whether entries are being handed on: what they add up to is not known before the last of them."""
        self._has_begun = False

    def begin_after(self, seq: int, seal: str) -> bool:
        """Begin behind an entry whose past is known from elsewhere; False when that entry is not there."""
        try:
            entry = self.entry(seq)
        except Damaged:
            return False
        if entry.seal != seal:
            return False
        self.newest, self.last, self._has_begun = entry, seq, True
        with self._alone():
            # After a power cut an entry that was folded may have kept its file, and the one after it may not.
            self._read_on(folded=True)
        return True

    def refresh(self) -> None:
        """Read what is new. Damage is kept in `wounds`, never raised: the rest stays readable.

        Does nothing while it is at work: a run that was renamed and renamed back continues one that continues it, and
        an inner look must not go ahead of the outer one.
        """
        if not self.is_reading:
            with self._alone():
                self._refresh()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.is_reading = True
        try:
            yield
        finally:
            self.is_reading = False

    def _refresh(self) -> None:
        if not self._has_begun:
            self._read_all()
            return
        self._read_on()
        if self.last and self._disk.size(self.path(self.last)) is None:
            if self._is_where_it_was():
                self._read_on(folded=True)
            else:
                self._restart()
                self.newest, self.last, self.count = None, 0, 0
                self._read_all()

    @property
    def is_new(self) -> bool:
        """Whether nothing has been read yet."""
        return not self._has_begun

    def strangers_now(self) -> list[Path]:
        """List the names in the folder that are no entry's, as they are now."""
        return [self.folder / name for name in self._disk.names(self.folder) if not is_entry(name)]

    def next_document(self, op: str, write_id: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return what the next entry says. Raises Damaged when the newest entry cannot be read."""
        if self.wounds and self.wounds[-1].seq == self.last:
            wound = self.wounds[-1]
            raise Damaged(
                f"{wound.file}: expected {wound.expected}, found {wound.found}; nothing can be added after an entry "
                f"that cannot be read; restore the file from a copy, then try again"
            )
        return {
            "format": FORMAT,
            "seq": self.last + 1,
            "previous": self.newest.seal if self.newest else None,
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
        path = self.path(self.last)
        data = self._disk.read(path) if self._disk.size(path) is not None else b""
        if not data.endswith(seal.encode() + b'"}\n'):
            raise Damaged(
                f"{path}: expected the entry that was read before, found another or none; the store was replaced or "
                f"its log changed; open it anew"
            )

    # Reading in order.

    def _read_on(self, *, folded: bool = False) -> None:
        """Read the entries after the last; those that are only in folded files, if `folded`."""
        while True:
            seq = self.last + 1
            try:
                if self._disk.size(self.path(seq)) is not None:
                    self._take_single(seq)
                elif folded and (file := self._folded_after_the_last()) is not None:
                    self._take_folded(file)
                else:
                    return
            except FileNotFoundError:
                folded = True  # Since it was seen.

    def _folded_after_the_last(self) -> FoldedFile | None:
        """Open the folded file with the next entry: by its name, and where the last one is folded, of any range."""
        is_folded = self.last > 0 and self._disk.size(self.path(self.last)) is None
        return self.folded_with(self.last + 1, listing=is_folded)

    def _is_where_it_was(self) -> bool:
        """Whether the newest entry was only folded: nothing else stands in its place."""
        if self.newest is None or self.newest.seq != self.last:
            return False
        try:
            return self.entry(self.last).seal == self.newest.seal
        except Damaged:
            return False

    def _read_all(self) -> None:
        """Read everything anew."""
        self.wounds, self.strangers = [], []
        self._has_begun = True
        for look in range(_LOOKS):
            if self._read_listed(is_last=look == _LOOKS - 1):
                return

    def _read_listed(self, *, is_last: bool) -> bool:
        """Read what a listing has; False when some of it may have been folded meanwhile."""
        found: list[tuple[int, int, bool]] = []
        self.strangers = []
        for name in self._disk.names(self.folder):
            if (number := number_of(name)) is not None:
                found.append((number, number, False))
            elif (block := folds.block_of(name)) is not None:
                found.append((*block, True))
            else:
                self.strangers.append(self.folder / name)
        try:
            # Of two that begin with the same entry the longer one first: it has all that the other has; and what is
            # folded counts. Any block may be folded and one before it not.
            for first, last, is_folded in sorted(found, key=lambda item: (item[0], -item[1], not item[2])):
                if last <= self.last:
                    continue
                if first > self.last + 1 and not is_last:
                    return False
                if is_folded:
                    self._take_folded(FoldedFile(self._disk, self.folder / folds.name_of(first, last), first, last))
                else:
                    self._miss(first)
                    self._take_single(first)
        except FileNotFoundError:
            return False
        return True

    def _miss(self, seq: int) -> None:
        for missing in range(self.last + 1, min(seq, self.last + 1001)):
            self._wound(self.path(missing), missing, f"entry {missing} of {self.folder.name}", "no such file")

    def _take_single(self, seq: int) -> None:
        file = self.path(seq)
        try:
            data = self._disk.read(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._wound(file, seq, f"entry {seq}", error.strerror or "an unreadable file")
            return
        self._take(seq, data, file)

    def _take_folded(self, file: FoldedFile) -> None:
        seq = file.first - 1
        try:
            for seq, line in enumerate(file.lines(), file.first):
                if seq > self.last:
                    self._miss(seq)
                    self._take(seq, line, file.path)
        except FileNotFoundError:
            raise
        except OSError as error:
            found = error.strerror or "an unreadable file"
            self._wound(file.path, file.last, f"entries {file.first} to {file.last}", found)
            return
        if seq != file.last:
            whole = file.last - file.first + 1
            self._wound(file.path, file.last, f"{whole} entries", f"{seq - file.first + 1} lines")

    def _take(self, seq: int, data: bytes, file: Path) -> None:
        try:
            entry = parse(seq, data, file)
        except Unsound as error:
            self._wound(file, seq, error.expected, error.found)
            return
        before = self.newest
        previous = entry.document.get("previous")
        if (before.seq if before else 0) == seq - 1 and previous != (before.seal if before else None):
            self._wound(file, seq, "the seal of the entry before it", f"{previous!r:.80}")
            return
        self.newest, self.last = entry, seq
        self.count += 1
        self._hand_on(entry)

    def _wound(self, file: Path, seq: int, expected: str, found: str) -> None:
        self.wounds.append(Wound(file, seq, expected, found))
        self.last = max(self.last, seq)


def timestamp(disk: Disk) -> str:
    """The time as documents spell it: UTC, ISO 8601, microseconds."""
    return disk.now().isoformat(timespec="microseconds").replace("+00:00", "Z")
