"""What a run is at one point of its log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cairn.history.commits import NONE, Commits, ReadCommit


@dataclass(slots=True)
class State:
    """What a run's entries say, up to one of them. Commits are named by their rows; `NONE` is no commit."""

    commits: Commits
    exists: bool = False
    tip_row: int = NONE
    attempt_rows: list[int] = field(default_factory=list)
    """The tips that training went away from, in the order in which it did."""
    started_row: int = NONE
    renamed_to: str | None = None
    renames: int = 0
    """How many times in a row the run got another name."""

    @property
    def tip(self) -> str | None:
        """The id of the last commit or rewind target."""
        return self._id(self.tip_row)

    @property
    def attempts(self) -> list[str]:
        """The ids of the tips that training went away from."""
        return [self.commits.id_of(row) for row in self.attempt_rows]

    @property
    def started_from(self) -> str | None:
        """The id of the commit of another run that this one began with."""
        return self._id(self.started_row)

    def copy(self, read_commit: ReadCommit) -> State:
        """Return the same state for another run, which goes on in its own way."""
        return replace(self, commits=self.commits.copy(read_commit), attempt_rows=self.attempt_rows[:])

    def _id(self, row: int) -> str | None:
        return None if row == NONE else self.commits.id_of(row)
