"""Parts of a commit that can be given up alone: `optimizer`, a component; `files:optimizer.pt`, entries of a folder.

What stands behind the colon is a path inside the folder. In each of its names `*`, `?` and `[…]` stand for other
characters, never for a slash; `**` stands for any number of folders. A folder that is named goes with all that is in
it. Names are compared as they are, case included; one that holds such a character is also matched by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cairn.errors import UsageError
from cairn.state.nodes import Gone
from cairn.state.trees import COMPONENT_NAME


@dataclass(frozen=True, slots=True)
class Part:
    """A component, or with a pattern some entries of the folder that it is."""

    component: str
    pattern: str | None = None

    def __str__(self) -> str:
        return self.component if self.pattern is None else f"{self.component}:{self.pattern}"

    def is_in(self, dropped: Collection[str]) -> bool:
        """Whether a commit without these parts is without this one."""
        return str(self) in dropped or self.component in dropped or "*" in dropped


def parse(text: str) -> Part:
    """Read a part as people write it. Raises UsageError."""
    component, colon, pattern = text.partition(":")
    pattern = pattern.strip("/")
    names = pattern.split("/") if colon else []
    if any("\ud800" <= character <= "\udfff" for character in pattern):
        raise UsageError(f"part {text!r:.120}: expected text that UTF-8 can spell; write ? for a byte that is no text")
    if COMPONENT_NAME.fullmatch(component) is None or not all(names) or {".", ".."}.intersection(names):
        raise UsageError(
            f"part {text!r:.120}: expected a component, as in optimizer, or a component and a path in the folder that "
            f"it is, as in files:optimizer.pt or files:*.pt"
        )
    return Part(component, pattern if colon else None)


class Parts:
    """What a reading leaves out, as `Commit.dropped` spells it."""

    def __init__(self, spelled: Collection[str]) -> None:
        split = [text.partition(":") for text in spelled]
        self.components = frozenset(component for component, colon, _ in split if not colon)
        self._patterns: dict[str, list[str]] = {}
        for component, colon, pattern in split:
            if colon:
                self._patterns.setdefault(component, []).append(pattern)

    def patterns(self, component: str) -> Sequence[str]:
        """The patterns for a component's folder."""
        return self._patterns.get(component, ())

    def gone(self, component: str, path: tuple[object, ...]) -> str | None:
        """The part that an entry of a folder belongs to, if any."""
        names = [name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name) for name in path]
        for pattern in self.patterns(component):
            if _fits(pattern.split("/"), names):
                return f"{component}:{pattern}"
        return None


NOTHING = Parts(())


def _fits(pattern: list[str], names: list[str]) -> bool:
    """Follow all ways through the pattern at once, so that no pattern takes long."""
    places = _on(pattern, {0})
    for name in names:
        stay = {place for place in places if place < len(pattern) and pattern[place] == "**"}
        step = {place + 1 for place in places - stay if place < len(pattern) and _is(name, pattern[place])}
        places = _on(pattern, stay | step)
    return len(pattern) in places


def _on(pattern: list[str], places: set[int]) -> set[int]:
    """The places, and those behind each `**`, which may stand for nothing."""
    for place, name in enumerate(pattern):
        if place in places and name == "**":
            places.add(place + 1)
    return places


def _is(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def missing(value: object) -> Gone | None:
    """Return the first thing that a loaded folder lacks because it was dropped."""
    entries = getattr(value, "entries", None)
    if isinstance(value, Gone) or entries is None:
        return value if isinstance(value, Gone) else None
    return next((gone for entry in entries.values() if (gone := missing(entry)) is not None), None)
