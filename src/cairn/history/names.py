"""Names of runs, tags and components: what they may be, and which words are taken."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cairn.errors import Conflict, UsageError

RESERVED = frozenset(("latest", "best", "step", "epoch", "head", "tip", "all", "none", "run", "tag"))

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def is_name(text: object) -> bool:
    """Whether a text can be a name; used for folders that were found, too."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None and text.lower() not in RESERVED


def check(kind: str, name: object) -> str:
    """Check a name from a caller. Raises UsageError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{kind} {name!r:.120}: expected a name of 1 to 100 letters, digits, '.', '_' and '-' "
            f"that begins with a letter or digit"
        )
    if name.lower() in RESERVED:
        raise UsageError(f"{kind} {name!r}: this word has a meaning in revisions; choose another name")
    return name


def check_free(kind: str, name: str, same: Iterable[str], other_kind: str, others: Iterable[str]) -> None:
    """Refuse a new name that differs from another only by case, or that the other kind has. Raises Conflict."""
    for taken in same:
        if taken != name and taken.lower() == name.lower():
            raise Conflict(f"{kind} {name!r}: {kind} {taken!r} exists and differs only by case; choose another name")
    for taken in others:
        if taken.lower() == name.lower():
            raise Conflict(f"{kind} {name!r}: there is a {other_kind} of this name; choose another name")
