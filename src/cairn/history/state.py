"""What a run is at one point of its log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cairn.history.commit import Commit


@dataclass(slots=True)
class State:
    """What a run's entries say, up to one of them."""

    exists: bool = False
    tip: str | None = None
    commits: dict[str, Commit] = field(default_factory=dict)
    attempts: list[str] = field(default_factory=list)
    started_from: str | None = None
    renamed_to: str | None = None

    def copy(self) -> State:
        """Return a state that can go another way."""
        return replace(self, commits=dict(self.commits), attempts=list(self.attempts))
