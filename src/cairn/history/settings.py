"""The settings of a store: the rules that say what is kept. A log whose newest entry says all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cairn.errors import Damaged
from cairn.io.disk import Disk
from cairn.io.entry import Entry
from cairn.io.layout import Layout
from cairn.io.log import Log


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule that is applied by every gc, to all runs or to one."""

    rule: str
    run: str | None = None

    def __str__(self) -> str:
        return self.rule if self.run is None else f"{self.rule} for run {self.run}"


class Settings:
    """Reads the settings as they are now."""

    def __init__(self, disk: Disk, layout: Layout) -> None:
        self.log = Log(disk, layout.settings, above=0)

    def rules(self) -> tuple[StoredRule, ...]:
        """Return the rules, in the order in which they were made. Raises Damaged when they cannot be known."""
        self.log.refresh()
        newest = self.log.newest
        for wound in self.log.wounds:
            if newest is None or wound.seq > newest.seq:
                raise unknown(f"{wound.file}: expected {wound.expected}, found {wound.found}")
        return rules_of(newest) if newest else ()


def rules_of(entry: Entry) -> tuple[StoredRule, ...]:
    """Read what an entry of the settings says. Raises Damaged."""
    rules = entry.document.get("rules")
    if entry.document.get("op") != "set" or not isinstance(rules, list) or not all(map(_is_rule, rules)):
        raise unknown(f"{entry.file}: expected settings that this version knows, found {entry.document!r:.200}")
    return tuple(StoredRule(rule["rule"], rule["run"]) for rule in rules)


def fields_of(rules: Iterable[StoredRule]) -> dict[str, Any]:
    """Spell settings as the members of an entry."""
    return {"rules": [{"rule": each.rule, "run": each.run} for each in rules]}


def unknown(reason: str) -> Damaged:
    """Return the error for settings that cannot be known."""
    return Damaged(
        f"the rules that say what is kept cannot be known: {reason}; restore that file from a copy, or move "
        f"it away and the rules before it hold; `cairn gc --no-rules` frees space without them"
    )


def _is_rule(rule: object) -> bool:
    if not isinstance(rule, dict) or set(rule) != {"rule", "run"}:
        return False
    return isinstance(rule["rule"], str) and isinstance(rule["run"], str | None)
