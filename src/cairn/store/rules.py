"""Rules that say which commits of a run are kept, and which keep all their parts.

    last:N                      the newest N commits
    every:N                     commits whose step is a multiple of N
    best:METRIC[:min|max][:N]   the best N by a metric; of equals the newest; no rule where nobody has a number
    within:DURATION             commits made in the 90m, 12h, 30d or 1w before the newest one
    PART:N                      a part, such as optimizer or files:*.pt, only in the newest N commits that stay

`part:PART:N` says the last of a component that is called like one of the other words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cairn.errors import UsageError
from cairn.history.revisions import direction_of
from cairn.state import parts
from cairn.state.parts import Part

WORDS = ("last", "every", "best", "within", "part")

_NUMBER = re.compile(r"[1-9][0-9]{0,15}", re.ASCII)
_DURATION = re.compile(r"([1-9][0-9]{0,8})([mhdw])", re.ASCII)
_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


class Row(Protocol):
    """What rules look at in a commit."""

    @property
    def id(self) -> str:
        """The commit's id."""

    @property
    def step(self) -> int | None:
        """The step, if it has one."""

    @property
    def seconds(self) -> float:
        """When it was made, in seconds since 1970; NaN when its time cannot be read."""

    @property
    def metrics(self) -> Mapping[str, float | int]:
        """Its metrics by name."""

    @property
    def dropped(self) -> Sequence[str]:
        """What of it is no longer kept."""


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True)
class Last:
    """Keeps the newest commits."""

    count: int

    def __str__(self) -> str:
        return f"last:{self.count}"

    @property
    def subject(self) -> str:
        """What one rule of a kind replaces: of two that say something of the same, one says nothing."""
        return "last"

    @property
    def reason(self) -> str:
        """Why a commit stays."""
        return f"last {self.count}"

    def kept(self, line: Sequence[R]) -> Iterable[R]:
        """Return those that stay, of a line with the newest first."""
        return line[: self.count]


@dataclass(frozen=True, slots=True)
class Every:
    """Keeps the commits at multiples of a step; one without a step is none."""

    step: int

    def __str__(self) -> str:
        return f"every:{self.step}"

    @property
    def subject(self) -> str:
        """Two of these add up."""
        return str(self)

    @property
    def reason(self) -> str:
        """Why a commit stays."""
        return f"every {self.step}"

    def kept(self, line: Sequence[R]) -> Iterable[R]:
        """Return those that stay."""
        return [row for row in line if row.step is not None and row.step % self.step == 0]


@dataclass(frozen=True, slots=True)
class Best:
    """Keeps the best by a metric, of equals the newest; NaN and no value are never best."""

    metric: str
    direction: str
    count: int

    def __str__(self) -> str:
        return f"{self.subject}:{self.count}"

    @property
    def subject(self) -> str:
        """The metric, and which values of it are good."""
        return f"best:{self.metric}:{self.direction}"

    @property
    def reason(self) -> str:
        """Why a commit stays."""
        return f"best {self.count} by {self.metric}, {self.direction}"

    def kept(self, line: Sequence[R]) -> Iterable[R]:
        """Return those that stay."""
        sign = 1 if self.direction == "min" else -1
        numbers = [row for row in line if not math.isnan(row.metrics.get(self.metric, math.nan))]
        return sorted(numbers, key=lambda row: sign * row.metrics[self.metric])[: self.count]


@dataclass(frozen=True, slots=True)
class Within:
    """Keeps what was made in the time before the newest commit, so that a run that stopped keeps what it has."""

    duration: str
    seconds: int

    def __str__(self) -> str:
        return f"within:{self.duration}"

    @property
    def subject(self) -> str:
        """One duration is the longest."""
        return "within"

    @property
    def reason(self) -> str:
        """Why a commit stays."""
        return f"within {self.duration} of the newest"

    def kept(self, line: Sequence[R]) -> Iterable[R]:
        """Return those that stay; one whose time cannot be read is among them."""
        # Nothing is less than NaN, nor NaN less than anything.
        return [row for row in line if not row.seconds < line[0].seconds - self.seconds]


@dataclass(frozen=True, slots=True)
class OnlyLast:
    """Keeps a part only in the newest commits."""

    part: Part
    count: int

    def __str__(self) -> str:
        return f"part:{self.subject}:{self.count}" if self.part.component in WORDS else f"{self.subject}:{self.count}"

    @property
    def subject(self) -> str:
        """The part."""
        return str(self.part)

    @property
    def reason(self) -> str:
        """Why a commit loses the part."""
        return f"{self.subject} only in the newest {self.count}"


Whole = Last | Every | Best | Within
Rule = Whole | OnlyLast


def parse(text: str) -> Rule:
    """Read a rule. Raises UsageError."""
    if type(text) is not str or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"rule: expected text that UTF-8 can spell, such as last:3, found {text!r:.80}")
    word, _, rest = text.partition(":")
    if word == "last":
        return Last(_count(text, rest))
    if word == "every":
        return Every(_count(text, rest))
    if word == "best":
        return _best(text, rest)
    if word == "within":
        match = _DURATION.fullmatch(rest)
        if match is None:
            raise UsageError(f"rule {text!r:.120}: expected within: and a duration, as in 90m, 12h, 30d or 1w")
        return Within(rest, int(match[1]) * _SECONDS[match[2]])
    part, colon, count = (rest if word == "part" else text).rpartition(":")
    if not colon:
        raise UsageError(
            f"rule {text!r:.120}: expected last:N, every:N, best:METRIC:min, best:METRIC:max, within:DURATION or "
            f"PART:N, as in optimizer:2"
        )
    return OnlyLast(parts.parse(part), _count(text, count))


def parse_all(texts: Iterable[str]) -> list[Rule]:
    """Read rules. Raises UsageError, also for a str in place of a list of them."""
    if isinstance(texts, str):
        raise UsageError(f"rules: expected a list of rules, found the str {texts!r:.80}; write [{texts!r:.80}]")
    return [parse(text) for text in texts]


def _best(text: str, rest: str) -> Best:
    metric, *words = rest.split(":")
    count = _count(text, words.pop()) if words and words[-1] not in ("min", "max") else 1
    direction = words.pop() if words and words[-1] in ("min", "max") else direction_of(metric)
    if not metric or words:
        raise UsageError(f"rule {text!r:.120}: expected best:METRIC, then :min or :max, then :N, as in best:loss:min:2")
    if direction is None:
        raise UsageError(f"rule {text!r:.120}: say which is better, best:{metric}:min or best:{metric}:max")
    return Best(metric, direction, count)


def _count(text: str, number: str) -> int:
    if not _NUMBER.fullmatch(number):
        raise UsageError(f"rule {text!r:.120}: expected a number of at least 1, found {number!r:.40}")
    return int(number)
