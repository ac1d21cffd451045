"""What a run's entries add up to, one after the other.

A commit's entry holds the whole commit document, so steps, metrics and parents need no pack. The tip is the last
commit or rewind target; a tip that the run moved away from, and that the new tip does not descend from, is an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.errors import Damaged
from cairn.history.commit import Commit, read
from cairn.history.commits import NONE, UNKNOWN, Commits, Rows
from cairn.history.state import State
from cairn.ids import is_id
from cairn.io.disk import Disk
from cairn.io.entries import Entries
from cairn.io.entry import Entry

ALL = "*"
"""In `dropped`: the whole content."""


@dataclass(frozen=True, slots=True)
class Move:
    """One line of the reflog: what an entry did. `attempt` is the name of what it left behind."""

    seq: int
    time: str
    op: str
    commit: str | None
    text: str
    attempt: str | None


class Replay:
    """The state of one run, moved on by its entries.

    `origin` gives the state of a run at one of its entries, which this run then continues, and what is wrong with it.
    """

    def __init__(
        self,
        name: str,
        disk: Disk,
        folder: Path,
        origin: Callable[[Entry, str, int, object], tuple[State, Damaged | None]],
        is_wounded: Callable[[], bool],
    ) -> None:
        self.name = name
        self.bad: list[tuple[Entry, Damaged]] = []
        """Entries that make no sense, and why."""
        self.former: list[Commits] = []
        """What the run had before it was begun anew with the commits of another."""
        self.tip_seq = 0
        """The number of the last entry that moved the tip."""
        self.deleted_at = 0
        self._disk, self._folder = disk, folder
        self._origin, self._is_wounded = origin, is_wounded
        self._left: str | None = None
        self.state = State(self.commits())

    @property
    def is_damaged(self) -> bool:
        """Whether some entry cannot be read or makes no sense."""
        return bool(self.bad) or self._is_wounded()

    def take(self, entry: Entry) -> Move | None:
        """Take in the next entry; say what it did, unless it makes no sense."""
        document = entry.document
        action = getattr(self, f"_{document.get('op')}_entry", None)
        self._left = None
        try:
            if action is None:
                raise Damaged(f"{entry.file}: expected an operation that this version knows, found {document!r:.100}")
            commit, text = action(entry, document)
        except Damaged as error:
            self.bad.append((entry, error))
            return None
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            self.bad.append((entry, Damaged(f"{entry.file}: expected an entry that makes sense, found {error!r:.120}")))
            return None
        if commit is not None:
            self.tip_seq = entry.seq
        return Move(entry.seq, str(document.get("time")), document["op"], commit, text, self._left)

    def _commit_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str, str]:
        commit = self.read_commit(entry)
        if not self.state.exists:
            self._begin()
        row = self.state.commits.add(commit, entry.seq, self.name)
        self._move_tip(row)
        return commit.id, commit.message or ""

    def _create_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str | None, str]:
        origin = document.get("continues")
        if origin is None:
            commit = self.read_commit(entry, document.get("dropped", ()))
            self._begin()
            row = self.state.commits.add(commit, entry.seq, self.name)
            self.state.tip_row = self.state.started_row = row
            return commit.id, f"starts from {commit.id[:12]}"
        name, seq = (origin.get("run"), origin.get("seq")) if isinstance(origin, dict) else (None, None)
        if not isinstance(name, str) or type(seq) is not int:
            raise Damaged(f"{entry.file}: expected a run and an entry to continue, found {origin!r:.100}")
        found, error = self._origin(entry, name, seq, origin.get("entry"))
        state = found if found is self.state else found.copy(self.read_commit)
        if error is not None:
            self.bad.append((entry, error))
        if name == self.name and seq == self.deleted_at - 1:
            self.deleted_at = 0
        state.exists, state.renamed_to = True, None
        state.renames += name != self.name
        old = self.state.commits.rows.ids
        if old and not state.commits.rows.ids.startswith(old):
            self.former.append(self.state.commits)
        self.state = state
        return state.tip, f"continues {name}"

    def _begin(self) -> None:
        """Begin anew, behind what a run of this name was before."""
        commits = self.state.commits
        commits.begin = len(commits.rows)
        self.state = State(commits, exists=True)

    def _rewind_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str, str]:
        target = document.get("to")
        row = self.state.commits.row_of(target) if isinstance(target, str) else None
        if row is None:
            raise Damaged(f"{entry.file}: expected to rewind to a commit of this run, found {target!r:.80}")
        self._move_tip(row)
        commit = self.state.commits.at(row)
        return commit.id, f"back to {commit}"

    def _drop_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str | None, str]:
        parts = self._parts(entry, document)
        commits = self.state.commits
        rows = self._named(entry, document)
        for row in rows:
            commits.mark(row, tuple(dict.fromkeys((*commits.dropped(row), *parts))))
        what = "" if parts == (ALL,) else f"{', '.join(parts)} of "
        return None, f"{what}{self._which(rows)}: {document.get('reason') or 'on request'}"

    def _undrop_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str | None, str]:
        parts = self._parts(entry, document)
        commits = self.state.commits
        rows = self._named(entry, document)
        for row in rows:
            commits.mark(row, () if ALL in parts else tuple(p for p in commits.dropped(row) if p not in parts))
        return None, self._which(rows)

    def _delete_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str | None, str]:
        target = document.get("renamed_to")
        self.state.exists = False
        self.deleted_at = entry.seq
        self.state.renamed_to = target if isinstance(target, str) else None
        return self.state.tip, f"renamed to {target}" if target else "deleted"

    def _move_tip(self, new: int) -> None:
        state, old = self.state, self.state.tip_row
        state.tip_row = new
        if old == NONE or old == state.commits.parent(new) or old in state.attempt_rows:
            return
        line = state.commits.line(new)
        # Where damage broke the line, the old tip may be an ancestor after all.
        if not any(old in part for part in line) and not self.is_broken_at(line[-1][-1]):
            state.attempt_rows.append(old)
            self._left = attempt_name(self.name, len(state.attempt_rows))

    def is_broken_at(self, oldest: int) -> bool:
        """Whether a line ends in this row only because an entry cannot be read."""
        commits = self.state.commits
        return commits.parent(oldest) == UNKNOWN and oldest != self.state.started_row and self.is_damaged

    def commits(self, rows: Rows | None = None) -> Commits:
        """Return commits that read their entries from this run's log, and those that it continues."""
        return Commits(self._read_entries, self.read_commit, rows)

    def _read_entries(self, run: str, numbers: Sequence[int]) -> Iterator[Entry]:
        return Entries(self._disk, self._folder / run).entries(numbers)

    def read_commit(self, entry: Entry, dropped: object = ()) -> Commit:
        """Read the commit of an entry. Raises Damaged."""
        document = entry.document
        packs = document.get("packs", ())
        return read(document.get("commit"), run=self.name, what=str(entry.file), packs=packs, dropped=dropped)

    def _which(self, rows: list[int]) -> str:
        """Name the first of some commits, and how many there are."""
        steps = self.state.commits.rows.steps
        shown = [f"step {steps[row]}" if steps[row] != NONE else self.state.commits.id_of(row)[:12] for row in rows[:3]]
        return ", ".join(shown) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")

    def _named(self, entry: Entry, document: dict[str, Any]) -> list[int]:
        ids = document.get("commits")
        rows = [self.state.commits.row_of(item) for item in ids if is_id(item)] if isinstance(ids, list) else []
        if not isinstance(ids, list) or None in rows or len(rows) != len(ids):
            raise Damaged(f"{entry.file}: expected commits of this run, found {ids!r:.100}")
        return [row for row in rows if row is not None]

    def _parts(self, entry: Entry, document: dict[str, Any]) -> tuple[str, ...]:
        parts = document.get("only")
        if parts is None:
            return (ALL,)
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise Damaged(f"{entry.file}: expected the parts to drop, found {parts!r:.100}")
        return tuple(parts)


def attempt_name(run: str, number: int) -> str:
    """Spell the name of an attempt, counted from 1."""
    return f"{run}/attempt-{number}"
