"""Where a commit continues from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Base:
    """The tip that was seen, and the parent of the next commit, which after a resume is another."""

    tip: str | None
    parent: str | None
