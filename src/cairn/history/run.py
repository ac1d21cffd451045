"""A run: its log, and what can be asked of it: the tip, lines of training, commits by step, damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from cairn.errors import Conflict, Damaged
from cairn.history import snapshot
from cairn.history.commit import Commit
from cairn.history.commits import NONE
from cairn.history.replay import ALL, Move, Replay, attempt_name
from cairn.history.selection import Brief
from cairn.history.snapshot import Snapshot
from cairn.history.state import State
from cairn.io.disk import Disk
from cairn.io.entry import Entry
from cairn.io.log import Log

MAX_RENAMES = 50

_KEPT = ("exists", "tip_row", "attempt_rows", "started_row", "renamed_to", "renames")
"""What a snapshot holds of a state besides its commits."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of training: how many commits it has for itself, and the newest."""

    name: str
    commits: int
    tip: Commit | None


@dataclass(frozen=True, slots=True)
class Summary(Line):
    """A run's current line, and the attempts that are not on it."""

    attempts: tuple[Line, ...]


class Run:
    """One run's log, replayed as far as it has been read.

    `until` ends the replay at an entry; `note` is told what each entry did.
    """

    def __init__(
        self,
        name: str,
        disk: Disk,
        folder: Path,
        others: Callable[[str], Run],
        *,
        depth: int = 0,
        until: int | None = None,
        note: Callable[[Move], None] = lambda move: None,
    ) -> None:
        self.name = name
        self.log = Log(disk, folder / name, self._take, self._restart)
        self.replayed = 0
        """Entries that were replayed and are in no snapshot."""
        self._disk, self._folder, self._others = disk, folder, others
        self._depth, self._until, self._note = depth, until, note
        self._restart()

    def refresh(self) -> Run:
        """Take in the entries that are new on disk."""
        self.log.refresh()
        return self

    def _restart(self) -> None:
        self._replay = Replay(self.name, self._disk, self._folder, self._origin, lambda: bool(self.log.wounds))
        self._continued: dict[int, State] = {}
        self.replayed = 0

    def _take(self, entry: Entry) -> None:
        if self._until is None or entry.seq <= self._until:
            self.replayed += 1
            move = self._replay.take(entry)
            if move is not None:
                self._note(move)

    def _origin(self, entry: Entry, name: str, seq: int, seal: object) -> tuple[State, Damaged | None]:
        """Return the state of a run at an entry that this one continues, and what is wrong with it that is news."""
        if name == self.name and seq >= entry.seq:
            raise Damaged(f"{entry.file}: expected to continue an earlier entry, found entry {seq}")
        source = self if name == self.name else self._others(name)
        error = source.damage()
        if error is None and _seal_of(source.log, seq) != seal:
            raise Damaged(f"{entry.file}: expected to continue entry {seq} of run {name!r}, found another or none")
        if source is self:
            if seq == self._replay.deleted_at - 1 == entry.seq - 2:
                return self.state, None  # The deletion is taken back, and changed nothing else.
            found, worse = self._at(seq, self._depth + 1)
            return found, None if error else worse
        found, worse = source._at(seq, self._depth + 1)
        if found.renames >= MAX_RENAMES:
            raise self._too_many()
        return found, error or worse

    # Snapshots.

    def begin_from(self, load: Callable[[str], bytes | None]) -> None:
        """Begin from a snapshot, if there is one that this log continues."""
        found = snapshot.read(load)
        if found is None or not self.log.is_new or self._until is not None:
            return
        # Set first: entries that came since are replayed on it.
        replay = self._replay
        replay.state = State(replay.commits(found.rows), **{key: found.state[key] for key in _KEPT})
        replay.state.commits.begin = found.state["begin"]
        replay.tip_seq, replay.deleted_at = found.state["tip_seq"], found.state["deleted_at"]
        if not self.log.begin_after(found.seq, found.seal):
            self._restart()

    def snapshot(self) -> Snapshot | None:
        """Return what is known as a snapshot; None of a run that is damaged or has other pasts."""
        newest = self.log.newest
        if self.is_damaged or self._replay.former or newest is None or newest.seq != self.log.last:
            return None
        state = {key: getattr(self.state, key) for key in _KEPT}
        state |= {"begin": self.state.commits.begin, "tip_seq": self._replay.tip_seq}
        state["deleted_at"] = self._replay.deleted_at
        return Snapshot(newest.seq, newest.seal, self.state.commits.rows, state)

    # What is known.

    @property
    def state(self) -> State:
        """What the entries that were read add up to."""
        return self._replay.state

    @property
    def bad(self) -> list[tuple[Entry, Damaged]]:
        """Entries that make no sense, and why."""
        return self._replay.bad

    @property
    def exists(self) -> bool:
        """Whether the run has entries and was not deleted."""
        return self.state.exists

    @property
    def tip(self) -> Commit | None:
        """The last commit or rewind target."""
        return None if self.state.tip_row == NONE else self.state.commits.at(self.state.tip_row)

    @property
    def is_damaged(self) -> bool:
        """Whether some entry cannot be read or makes no sense."""
        return self._replay.is_damaged

    def damage(self, after: int = 0) -> Damaged | None:
        """Return what is wrong with the first damaged entry after a number, as an error to raise."""
        for wound in self.log.wounds:
            if wound.seq > after:
                reason = f"{wound.file}: expected {wound.expected}, found {wound.found}"
                return self._damaged(reason)
        for entry, error in self.bad:
            if entry.seq > after:
                return self._damaged(str(error))
        return None

    @property
    def deleted_at(self) -> int:
        """The number of the entry that deleted the run for now; 0 when it exists."""
        return self._replay.deleted_at if not self.state.exists else 0

    @property
    def is_renamed(self) -> bool:
        """Whether the run ended by getting another name."""
        return self.state.renamed_to is not None

    @property
    def last_deletion(self) -> int:
        """The number of the entry that last deleted the run, also if it was begun anew; 0 if that was taken back."""
        return self._replay.deleted_at

    def check_tip(self) -> None:
        """Raise Damaged when an entry that cannot be read may have moved the tip."""
        error = self.damage(after=self._replay.tip_seq)
        if error is not None:
            raise error

    def last_known(self, commit_id: str) -> Commit | None:
        """Return a commit as the run has it, or as it last had it before it was deleted and begun anew."""
        for commits in (self.state.commits, *reversed(self._replay.former)):
            row = commits.row_of(commit_id, begin=0)
            if row is not None:
                return commits.at(row)
        return None

    def with_prefix(self, prefix: str) -> Iterator[Commit]:
        """Yield the commits whose ids begin with hex digits, those that it had before it was begun anew first."""
        for commits in (*self._replay.former, self.state.commits):
            yield from map(commits.at, sorted(commits.rows_with_prefix(prefix)))

    def check_has(self, commits: Iterable[Commit | Brief]) -> None:
        """Raise Conflict when the run does not exist any more, or was begun anew without some of these commits."""
        if not self.exists:
            raise Conflict(f"run {self.name!r} was deleted or renamed meanwhile; nothing was recorded")
        for commit in commits:
            if commit.id not in self.state.commits:
                raise Conflict(f"{commit} is no commit of run {self.name!r} any more: it was deleted and begun anew")

    # Lines of training.

    def line(self, start: str | None = None) -> Iterator[Commit]:
        """Walk from a commit (the tip) to the oldest one of this run by first parents.

        Raises Damaged, after what could be read, where an entry that cannot be read breaks the line.
        """
        rows = self.line_rows(start)
        yield from self.state.commits.values_at(row for part in rows for row in part)
        self._check_whole(rows)

    def kept_line(self) -> list[Brief]:
        """Return the current line without commits whose content is no longer kept. Raises Damaged as `line` does."""
        commits = self.state.commits
        rows = self.line_rows()
        self._check_whole(rows)
        return [Brief(self.name, commits, row) for part in rows for row in part if ALL not in commits.dropped(row)]

    def line_rows(self, start: str | None = None) -> list[range]:
        """Return the rows of a line, newest first, as far as they can be read."""
        commits = self.state.commits
        row = self.state.tip_row if start is None else commits.row_of(start)
        return [] if row is None or row == NONE else commits.line(row)

    def attempts(self) -> dict[str, list[int]]:
        """Return the rows of each attempt that are not on the current line, newest first, by its name.

        One that the run went back to is part of the line, and no attempt any more.
        """
        line = self.line_rows()
        found = {}
        for number, end in enumerate(self.state.attempt_rows, 1):
            rows = (row for part in self.state.commits.line(end) for row in part)
            own = list(takewhile(lambda row: not any(row in part for part in line), rows))
            if own:
                found[attempt_name(self.name, number)] = own
        return found

    def summary(self) -> Summary:
        """Return how long the current line is, where it ends, and the same of its attempts. Raises Damaged."""
        self.check_tip()
        at = self.state.commits.at
        attempts = tuple(Line(name, len(rows), at(rows[0])) for name, rows in self.attempts().items())
        return Summary(self.name, sum(map(len, self.line_rows())), self.tip, attempts)

    def is_on_line(self, commit: Commit, start: str | None) -> bool:
        """Whether a commit is on the line that ends at another one."""
        row = self.state.commits.row_of(commit.id)
        return row is not None and any(row in part for part in self.line_rows(start))

    def on_line(self, step: int) -> Commit | None:
        """Return the newest commit of the current line with this step. Raises Damaged when that cannot be known."""
        return self._first_on_line("steps", step)

    def on_line_in_epoch(self, epoch: int) -> Commit | None:
        """Return the newest commit of the current line in this epoch. Raises Damaged when that cannot be known."""
        return self._first_on_line("epochs", epoch)

    def best_on_line(self, metric: str, *, largest: bool) -> Commit | None:
        """Return the commit of the current line with the best number, of those whose content is kept.

        Raises Damaged when that cannot be known.
        """
        rows, commits = self.line_rows(), self.state.commits
        self._check_whole(rows)
        found = commits.rows.metrics.best(metric, rows, lambda row: ALL not in commits.dropped(row), largest=largest)
        return None if found is None else commits.at(found)

    def _first_on_line(self, column: str, number: int) -> Commit | None:
        rows = self.line_rows()
        found = self.state.commits.last_with(column, number, rows)
        if found is None:
            self._check_whole(rows)
            return None
        return self.state.commits.at(found)

    def _check_whole(self, line: list[range]) -> None:
        if line and self._replay.is_broken_at(line[-1][-1]):
            raise self.damage() or AssertionError("a line breaks only where there is damage")

    def state_at(self, seq: int) -> State:
        """Return what the entries up to a number add up to."""
        return self._at(seq, 0)[0]

    def _at(self, seq: int, depth: int) -> tuple[State, Damaged | None]:
        """Return the state at an entry, and what is wrong with it. Raises Damaged when it is one too many.

        It is kept: runs that were renamed to and fro ask for the same states again and again.
        """
        if depth > MAX_RENAMES:
            raise self._too_many()
        if seq in self._continued:
            return self._continued[seq], None
        found = Run(self.name, self._disk, self._folder, self._others, depth=depth, until=seq).refresh()
        error = found.damage()
        if error is None:
            self._continued[seq] = found.state
        return found.state, error

    def _too_many(self) -> Damaged:
        return Damaged(f"run {self.name!r}: expected at most {MAX_RENAMES} renames in a row, found more")

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(
            f"run {self.name!r} is damaged: {reason}; `cairn verify --repair --from COPY` puts that file back from a "
            f"copy of the store; without one, move it away if it is the newest, else `cairn run create NEW ID` from a "
            f"commit that `cairn reflog` shows, and `cairn run delete {self.name}`"
        )


def _seal_of(log: Log, seq: int) -> str | None:
    try:
        return log.entry(seq).seal
    except Damaged:
        return None
