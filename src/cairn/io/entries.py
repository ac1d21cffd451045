"""Entries of a log by their numbers, wherever they stand: in a file of their own or folded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cairn.errors import Damaged
from cairn.io import folds
from cairn.io.disk import Disk
from cairn.io.entry import Entry, Unsound, name_of, parse
from cairn.io.folds import FoldedFile

_LOOKS = 8


class Entries:
    """Reads entries of the log in one folder, in any order and as often as wanted; it keeps nothing."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self.folder = folder

    def path(self, seq: int) -> Path:
        """Where an entry stands while it has a file of its own."""
        return self.folder / name_of(seq)

    def has(self, seq: int) -> bool:
        """Whether there is an entry of this number, as the names of files tell."""
        return self._disk.size(self.path(seq)) is not None or self.folded_with(seq, listing=False) is not None

    def entry(self, seq: int) -> Entry:
        """Read one entry. Raises Damaged when it is not there or not what it should be; its past is not looked at."""
        return next(self.entries([seq]))

    def entries(self, numbers: Iterable[int], *, damaged: Callable[[Damaged], None] | None = None) -> Iterator[Entry]:
        """Read entries again, by ascending numbers. Raises Damaged, or tells `damaged` and goes on; see `entry`."""
        yield from (entry for _, entry in self.lines(numbers, damaged=damaged))

    def lines(
        self, numbers: Iterable[int], *, damaged: Callable[[Damaged], None] | None = None
    ) -> Iterator[tuple[bytes, Entry]]:
        """Read entries with their lines; see `entries`."""
        folded: FoldedFile | None = None
        for seq in numbers:
            try:
                data, file, folded = self._line(seq, folded)
                found = parse(seq, data, file)
            except Damaged as error:
                if damaged is None:
                    raise
                damaged(error)
                continue
            yield data, found

    def _line(self, seq: int, folded: FoldedFile | None) -> tuple[bytes, Path, FoldedFile | None]:
        """Find an entry's bytes, first where the one before it was found. Raises Damaged."""
        for _ in range(_LOOKS):
            try:
                if folded is None or not folded.first <= seq <= folded.last:
                    if self._disk.size(self.path(seq)) is not None:
                        return self._disk.read(self.path(seq)), self.path(seq), None
                    folded = self.folded_with(seq)
                if folded is not None:
                    return folded.line(seq), folded.path, folded
            except FileNotFoundError:
                # Folded, or folded into a longer block, since it was found.
                folded = None
            except OSError as error:
                raise Unsound(self.path(seq), f"entry {seq}", error.strerror or "an unreadable file") from error
        raise Unsound(self.path(seq), f"entry {seq} of {self.folder.name}", "no such file")

    def folded_with(self, seq: int, *, listing: bool = True) -> FoldedFile | None:
        """Open the folded file that has an entry; by its name, or by `listing` what names there are."""
        found = folds.blocks_with(seq)
        for first, last in (*found, *(self._listed_blocks(seq) if listing else ())):
            try:
                return FoldedFile(self._disk, self.folder / folds.name_of(first, last), first, last)
            except FileNotFoundError:
                continue
        return None

    def _listed_blocks(self, seq: int) -> Iterator[tuple[int, int]]:
        blocks = filter(None, map(folds.block_of, self._disk.names(self.folder)))
        yield from (block for block in blocks if block[0] <= seq <= block[1])
