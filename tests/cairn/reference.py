"""What a store should hold, kept in plain dictionaries: the reference that a real store is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ALL = "*"
PARTS = ("model", "optimizer")


def state(key: int) -> dict[str, Any]:
    """Make a state; two keys may share a component, and all share a tensor."""
    return {
        "model": {"w": np.full(6, key // 2, "f4"), "same": np.arange(5)},
        "optimizer": {"m": np.full(7, key, "f8"), "step": key},
    }


def equal(found: dict[str, Any], key: int, only: set[str] | None = None) -> bool:
    """Whether a loaded state is the one of a key, bit for bit."""
    expected = {name: value for name, value in state(key).items() if only is None or name in only}
    return list(found) == list(expected) and all(_same(found[name], expected[name]) for name in expected)


def _same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return list(found) == list(expected) and all(
        value == found[name]
        if isinstance(value, int)
        else (value.dtype, value.tobytes()) == (found[name].dtype, found[name].tobytes())
        for name, value in expected.items()
    )


@dataclass
class ACommit:
    """A commit of one run: what it should load as, and what of it is no longer kept."""

    id: str
    key: int
    step: int | None
    loss: float
    parent: str | None
    dropped: set[str] = field(default_factory=set)
    may_be_gone: bool = False
    """Whether a gc has run since something of it was dropped."""


@dataclass
class ARun:
    """A run: its commits by id, and where its lines end."""

    commits: dict[str, ACommit] = field(default_factory=dict)
    tip: str | None = None
    attempts: list[str] = field(default_factory=list)
    started_from: str | None = None
    may_be_gone: bool = False
    """Of a deleted run: whether a gc has run since."""

    def line(self, start: str | None = None) -> list[ACommit]:
        """Return the commits from one back, newest first."""
        found = []
        commit = self.commits.get(start or self.tip or "")
        while commit is not None:
            found.append(commit)
            commit = self.commits.get(commit.parent or "")
        return found

    def move(self, new: str) -> None:
        """Move the tip; another way than before leaves an attempt."""
        old, self.tip = self.tip, new
        if old is not None and old not in self.attempts and all(each.id != old for each in self.line()):
            self.attempts.append(old)


@dataclass
class ATag:
    """A tag: the run it was taken from, and the commit."""

    run: str
    id: str
    key: int


@dataclass
class Reference:
    """A whole store."""

    runs: dict[str, ARun] = field(default_factory=dict)
    deleted: dict[str, ARun] = field(default_factory=dict)
    tags: dict[str, ATag] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)

    def protected(self) -> set[str]:
        """Return what is never dropped as a whole."""
        tips = {run.tip for run in self.runs.values()}
        starts = {run.started_from for run in self.runs.values()}
        return {each for each in tips | starts | {tag.id for tag in self.tags.values()} if each}

    def collect(self, extra: list[tuple[str, int]]) -> None:
        """Do what gc does: apply rules to each line, and let go of what is dropped."""
        always = self.protected()
        rules = [*self.rules.items(), *extra]
        for run in self.runs.values():
            line = [each for each in run.line() if ALL not in each.dropped]
            numbered = any(not math.isnan(each.loss) for each in line)
            whole = [rule for rule in rules if rule[0] not in PARTS and (numbered or not rule[0].startswith("best"))]
            keep = always | {each.id for kind, count in whole for each in _kept(line, kind, count)}
            for each in line:
                if whole and each.id not in keep:
                    each.dropped = each.dropped | {ALL}
            for part in PARTS:
                counts = [count for kind, count in rules if kind == part]
                holders = [each for each in line if not each.dropped & {ALL, part}]
                for each in holders[max(counts) :] if counts else ():
                    if each.id not in always:
                        each.dropped = each.dropped | {part}
        for run in (*self.runs.values(), *self.deleted.values()):
            for each in run.commits.values():
                each.may_be_gone = each.may_be_gone or bool(each.dropped)
        for run in self.deleted.values():
            run.may_be_gone = True


def _kept(line: list[ACommit], kind: str, count: int) -> list[ACommit]:
    if kind == "last":
        return line[:count]
    if kind == "every":
        return [each for each in line if each.step is not None and each.step % count == 0]
    numbers = [each for each in line if not math.isnan(each.loss)]
    return sorted(numbers, key=lambda each: each.loss)[:count]
