"""The commits of a run, as columns: a few dozen bytes each, so that 100 000 of them are at hand at once.

A row holds what searching, walking and retention need. The rest of a commit stands in its entry, which is read, and
checked against the id, when the commit is asked for. A parent is an earlier row, nearly always the one before; only
the others are written down, so a line of training is a few ranges of rows.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cairn.errors import Damaged
from cairn.history.commit import Commit, seconds
from cairn.history.metrics import Column, Metrics
from cairn.io.entry import Entry

ID_BYTES = 32
NONE = -1
"""In a column: no number, no parent."""
UNKNOWN = -2
"""A parent that is no row: it belongs to another run, or its entry cannot be read."""

_CACHED = 2048
_SEARCHES = 64
_BATCH = 64
_LARGEST_BATCH = 4096

ReadEntries = Callable[[str, Sequence[int]], Iterator[Entry]]
"""Reads entries of a run's log again, by ascending numbers."""
ReadCommit = Callable[[Entry, tuple[str, ...]], Commit]
"""Reads the commit of an entry, dropped as it is said to be."""


@dataclass(slots=True)
class Rows:
    """The columns. `ids` has 32 bytes for each row; a mark is a place in `kinds`, which say what was dropped."""

    ids: bytearray = field(default_factory=bytearray)
    steps: array[int] = field(default_factory=lambda: array("q"))
    epochs: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    seqs: array[int] = field(default_factory=lambda: array("q"))
    marks: array[int] = field(default_factory=lambda: array("H"))
    kinds: list[tuple[str, ...]] = field(default_factory=lambda: [()])
    parents: dict[int, int] = field(default_factory=dict)
    """Rows whose parent is not the row before, in their order."""
    logs: list[tuple[int, str]] = field(default_factory=list)
    """From which row on the entries stand in which run's log."""
    metrics: Metrics = field(default_factory=Metrics)

    def __len__(self) -> int:
        return len(self.steps)

    def copy(self) -> Rows:
        """Return columns that can go on in another way."""
        return replace(
            self,
            ids=self.ids[:],
            steps=self.steps[:],
            epochs=self.epochs[:],
            times=self.times[:],
            seqs=self.seqs[:],
            marks=self.marks[:],
            kinds=self.kinds[:],
            parents=dict(self.parents),
            logs=self.logs[:],
            metrics=self.metrics.copy(),
        )


class Commits(Mapping[str, Commit]):
    """Commits by id, in the order of their entries; only those from row `begin` on."""

    def __init__(self, read_entries: ReadEntries, read_commit: ReadCommit, rows: Rows | None = None) -> None:
        self.rows = rows or Rows()
        self.begin = 0
        self._read_entries, self._read_commit = read_entries, read_commit
        self._settled = len(self.rows)
        """Rows before this one came as a whole and are searched; later ones are in `_places`."""
        self._places: dict[bytes, int] = {}
        self._came_as_a_whole = self._settled
        self._searches = 0
        self._cache: dict[int, Commit] = {}
        self._provenance: tuple[str, Mapping[str, Any]] = ("", {})
        """That of the last commit that was read, and its spelling."""
        self._guard = threading.Lock()
        self._forks: list[int] | None = None
        self.rows.metrics.reread = self._reread

    # The mapping.

    def __len__(self) -> int:
        return len(self.rows) - self.begin

    def __iter__(self) -> Iterator[str]:
        return (self.id_of(row) for row in range(self.begin, len(self.rows)))

    def __contains__(self, commit_id: object) -> bool:
        return isinstance(commit_id, str) and self.row_of(commit_id) is not None

    def __getitem__(self, commit_id: str) -> Commit:
        row = self.row_of(commit_id)
        if row is None:
            raise KeyError(commit_id)
        return self.at(row)

    # Rows.

    def row_of(self, commit_id: str, *, begin: int | None = None) -> int | None:
        """Return the row of a commit, or None when it is not here."""
        try:
            raw = bytes.fromhex(commit_id)
        except ValueError:
            return None
        return self._find(raw, self.begin if begin is None else begin)

    def rows_with_prefix(self, prefix: str) -> Iterator[int]:
        """Yield the rows whose ids begin with hex digits, those before `begin` too; the last row first."""
        raw = bytes.fromhex(prefix[: len(prefix) // 2 * 2])
        for row in self._search(raw, 0, len(self.rows)):
            if self.id_of(row).startswith(prefix):
                yield row

    def id_of(self, row: int) -> str:
        """Return the id of the commit in a row."""
        return self.rows.ids[row * ID_BYTES : (row + 1) * ID_BYTES].hex()

    def dropped(self, row: int) -> tuple[str, ...]:
        """Return what of a row's commit is no longer kept."""
        return self.rows.kinds[self.rows.marks[row]]

    def mark(self, row: int, parts: tuple[str, ...]) -> None:
        """Say what of a row's commit is no longer kept."""
        if parts not in self.rows.kinds:
            self.rows.kinds.append(parts)
        self.rows.marks[row] = self.rows.kinds.index(parts)
        cached = self._cache.get(row)
        if cached is not None:
            self._cache[row] = replace(cached, dropped=parts)

    def parent(self, row: int) -> int:
        """Return the row of a commit's first parent, or NONE or UNKNOWN."""
        return self.rows.parents.get(row, row - 1)

    def add(self, commit: Commit, seq: int, run: str) -> int:
        """Add a commit of an entry in a run's log; return its row, an old one if it is there."""
        rows, row, raw = self.rows, len(self.rows), bytes.fromhex(commit.id)
        parent = self._parent_of(commit)
        # A commit names its parent in what its id is the hash of, so it can only stand behind it.
        there = self._find(raw, max(self.begin, (UNKNOWN if parent is None else parent) + 1))
        if there is not None:
            return there
        if not rows.logs or rows.logs[-1][1] != run:
            rows.logs.append((row, run))
        if parent is None or parent != row - 1 or row == self.begin:
            rows.parents[row] = UNKNOWN if parent is None else parent
            self._forks = None
        rows.ids += raw
        rows.steps.append(NONE if commit.step is None else commit.step)
        rows.epochs.append(NONE if commit.epoch is None else commit.epoch)
        rows.times.append(seconds(commit.time))
        rows.seqs.append(seq)
        rows.marks.append(0)
        rows.metrics.add(row, commit.metrics)
        self._places[raw] = row
        self._remember(row, commit)
        if commit.dropped:
            self.mark(row, commit.dropped)
        return row

    def copy(self, read_commit: ReadCommit) -> Commits:
        """Return the same commits for another run, which goes on in its own way."""
        other = Commits(self._read_entries, read_commit, self.rows.copy())
        other.begin = self.begin
        return other

    # Commits.

    def at(self, row: int) -> Commit:
        """Return the commit in a row. Raises Damaged when its entry cannot be read any more."""
        found = self._cache.get(row)
        return found if found is not None else next(self._read([row]))

    def values_at(self, rows: Iterable[int]) -> Iterator[Commit]:
        """Yield the commits of rows in ascending or descending order, reading ahead more and more."""
        size, batch = _BATCH, []
        for row in rows:
            batch.append(row)
            if len(batch) == size:
                yield from self._batch(batch)
                size, batch = min(2 * size, _LARGEST_BATCH), []
        yield from self._batch(batch)

    def all(self) -> Iterator[Commit]:
        """Yield all commits, oldest first."""
        return self.values_at(range(self.begin, len(self.rows)))

    # Lines of training.

    def line(self, row: int) -> list[range]:
        """Return the rows from a commit to the oldest one by first parents, as descending ranges."""
        if self._forks is None:
            self._forks = list(self.rows.parents)
        found = []
        while row >= self.begin:
            fork = self._forks[bisect_right(self._forks, row) - 1]
            found.append(range(row, max(fork, self.begin) - 1, -1))
            row = self.rows.parents[fork]
        return found

    def last_with(self, column: str, value: int, line: Iterable[range]) -> int | None:
        """Return the first row of a line whose step or epoch is a number."""
        numbers: array[int] = getattr(self.rows, column)
        wanted = array("q", [value]).tobytes()
        for rows in line:
            low, data = rows[-1], numbers[rows[-1] : rows[0] + 1].tobytes()
            place = data.rfind(wanted)
            while place >= 0:
                if place % len(wanted) == 0:
                    return low + place // len(wanted)
                place = data.rfind(wanted, 0, place + len(wanted) - 1)
        return None

    # Reading.

    def _batch(self, rows: list[int]) -> Iterator[Commit]:
        found = {row: self._cache[row] for row in rows if row in self._cache}
        missing = sorted(row for row in rows if row not in found)
        try:
            found.update(zip(missing, self._read(missing), strict=True))
        except Damaged:
            # One by one: those before the damaged one can be had.
            yield from map(self.at, rows)
        else:
            yield from (found[row] for row in rows)

    def _read(self, rows: list[int]) -> Iterator[Commit]:
        starts = [start for start, _ in self.rows.logs]
        at = 0
        while at < len(rows):
            log = bisect_right(starts, rows[at]) - 1
            end = at
            while end < len(rows) and (log + 1 == len(starts) or rows[end] < starts[log + 1]):
                end += 1
            part = rows[at:end]
            entries = self._read_entries(self.rows.logs[log][1], [self.rows.seqs[row] for row in part])
            for row, entry in zip(part, entries, strict=True):
                commit = self._read_commit(entry, self.dropped(row))
                if commit.id != self.id_of(row):
                    raise Damaged(f"{entry.file}: expected commit {self.id_of(row)}, found commit {commit.id}")
                yield self._remember(row, commit)
            at = end

    def _reread(self, metric: str) -> Column:
        rows, values = array("q"), array("d")
        for row, commit in enumerate(self.values_at(range(self._came_as_a_whole))):
            if metric in commit.metrics:
                rows.append(row)
                values.append(float(commit.metrics[metric]))
        return rows, values

    def _remember(self, row: int, commit: Commit) -> Commit:
        """Keep a commit at hand, with the provenance of the one before if it is the same, which it mostly is."""
        spelled = repr(commit.provenance)  # Spellings are compared, as True equals 1.
        with self._guard:
            if spelled == self._provenance[0]:
                commit = replace(commit, provenance=self._provenance[1])
            else:
                self._provenance = spelled, commit.provenance
            if len(self._cache) >= _CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[row] = commit
        return commit

    def _parent_of(self, commit: Commit) -> int | None:
        """Return the row of a new commit's first parent; NONE when it has none, None when it is not here."""
        if not commit.parents:
            return NONE
        last = len(self.rows) - 1
        if last >= self.begin and self.id_of(last) == commit.parents[0]:
            return last
        return self.row_of(commit.parents[0])

    def _find(self, raw: bytes, begin: int) -> int | None:
        """Return the last row from `begin` on that has an id."""
        row = self._places.get(raw)
        if row is None and len(raw) == ID_BYTES and begin < self._settled:
            self._searches += 1
            if self._searches > _SEARCHES:
                self._place_all()
                return self._find(raw, begin)
            row = next(self._search(raw, begin, self._settled), None)
        return row if row is not None and row >= begin else None

    def _place_all(self) -> None:
        """Enter every row in `_places`: a search is cheap, a hundred thousand of them are not."""
        ids = self.rows.ids
        places = {bytes(ids[row * ID_BYTES : (row + 1) * ID_BYTES]): row for row in range(self._settled)}
        places.update(self._places)
        self._places, self._settled = places, 0

    def _search(self, raw: bytes, begin: int, end: int) -> Iterator[int]:
        """Yield the rows of a range whose ids begin with bytes; the last row first."""
        low, place = begin * ID_BYTES, self.rows.ids.rfind(raw, begin * ID_BYTES, end * ID_BYTES)
        while place >= 0:
            if place % ID_BYTES == 0:
                yield place // ID_BYTES
            place = self.rows.ids.rfind(raw, low, place + len(raw) - 1)
