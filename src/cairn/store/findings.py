"""What verification says: findings, each with what to do about it, and the report around them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.store.repair import Repair

MOST_STEPS = 1000
"""So many steps that a finding hits are listed."""

_REPAIR = "`cairn verify --repair`"
_FROM = "`cairn verify --repair --from PATH` with a copy of the store, or with files that hold the same bytes"
HINTS = {
    "config": "put the `cairn.json` of a copy of this store in its place",
    "entry": "`cairn verify --repair --from PATH` with a copy of this store puts the entry back; or restore the file "
    "from a backup",
    "blob": f"{_FROM}, mends it; or commit the same state again, which writes it anew",
    "missing": f"{_FROM}, mends it; or commit the same state again, which writes it anew",
    "copy": f"nothing is lost; {_REPAIR} removes the damaged copy",
    "unneeded": f"nothing that is kept needs it; {_REPAIR} removes it",
    "pack": f"{_REPAIR} saves what in it can be proven and sets the file aside; {_FROM}, mends the rest",
    "spoilt": f"nothing that is needed is missing; {_REPAIR} sets the file aside",
    "tree": "`cairn drop` the steps that it hits: another program wrote this, and no copy can be better",
    "history": "if there were commits, restore `runs` and `tags` from a copy of this store and run no gc before; else "
    "`cairn gc` removes the packs",
    "stranger": "look at it, and remove it if nobody needs it",
}
"""What to do, by the code of a finding."""

WARNINGS = frozenset(("copy", "unneeded", "spoilt", "history", "stranger"))
"""Codes of findings after which nothing that is kept is lost."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `level` is "error", or "warning" when no content is at risk."""

    level: str
    code: str
    object: str
    file: str
    expected: str
    found: str
    hint: str
    steps: tuple[str, ...] = ()
    """The commits and paths that the damage hits."""

    def __str__(self) -> str:
        hit = f"; hits {', '.join(self.steps[:5])}{' …' if len(self.steps) > 5 else ''}" if self.steps else ""
        return f"{self.object} ({self.file}): expected {self.expected}, found {self.found}{hit}; {self.hint}"


def finding(
    code: str, what: str, file: str, expected: str, found: str, steps: Iterable[str] = (), way_out: str = ""
) -> Finding:
    """Make a finding, whose code says how bad it is and what to do; `way_out` is what else helps."""
    level = "warning" if code in WARNINGS else "error"
    hint = f"{HINTS[code]}; {way_out}" if way_out else HINTS[code]
    return Finding(level, code, what, file, expected, found, hint, tuple(islice(steps, MOST_STEPS)))


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what is wrong."""

    findings: tuple[Finding, ...]
    entries: int
    commits: int
    packs: int
    blobs: int
    bytes: int
    """What the packs, or the blobs of the commits that were asked for, weigh."""
    level: str = "full"
    bytes_read: int = 0
    """The bytes of packs whose hashes were checked; trees that are read on the way are not counted."""
    packs_skipped: int = 0
    """Packs that were not read: all of them at level "quick", else those read lately or not chosen."""
    repair: Repair | None = None
    """What was mended, or would be; the findings are what is left after it."""

    @property
    def ok(self) -> bool:
        """Whether nothing that was committed is damaged."""
        return not any(finding.level == "error" for finding in self.findings)
