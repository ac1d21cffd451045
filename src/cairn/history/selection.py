"""Commits that were chosen by what their columns say, and that are read only when they are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import overload

from cairn.history.commit import Commit, label
from cairn.history.commits import NONE, Commits
from cairn.history.metrics import Metrics


class Brief:
    """What is known of a commit without reading it. `dropped` stays as it was when the commit was looked up."""

    __slots__ = ("_commits", "_row", "dropped", "run")

    def __init__(self, run: str, commits: Commits, row: int) -> None:
        self.run = run
        self.dropped = commits.dropped(row)
        self._commits, self._row = commits, row

    def __str__(self) -> str:
        return label(self.run, self.step, self.id)

    @property
    def id(self) -> str:
        """The commit's id."""
        return self._commits.id_of(self._row)

    @property
    def step(self) -> int | None:
        """The step, if it has one."""
        step = self._commits.rows.steps[self._row]
        return None if step == NONE else step

    @property
    def seconds(self) -> float:
        """When it was made, in seconds since 1970; NaN when its time cannot be read."""
        return self._commits.rows.times[self._row]

    @property
    def metrics(self) -> Mapping[str, float]:
        """Its metrics by name."""
        return _Numbers(self._commits.rows.metrics, self._row)

    @staticmethod
    def read(briefs: Iterable[Brief]) -> Iterator[Commit]:
        """Yield the commits, reading ahead. Raises Damaged when an entry cannot be read any more."""
        for commits, group in groupby(briefs, key=lambda brief: brief._commits):
            some = list(group)
            for brief, commit in zip(some, commits.values_at(brief._row for brief in some), strict=True):
                yield commit if commit.dropped == brief.dropped else replace(commit, dropped=brief.dropped)


class Selection(Sequence[Commit]):
    """Commits in an order, each as it was when it was selected; two are equal when they name the same commits.

    Reading raises Damaged when an entry cannot be read any more. A copy, or a pickle, is the tuple of them.
    """

    __slots__ = ("briefs",)

    def __init__(self, briefs: Iterable[Brief] = ()) -> None:
        self.briefs = tuple(briefs)
        """What is known of each without reading."""

    def __len__(self) -> int:
        return len(self.briefs)

    def __iter__(self) -> Iterator[Commit]:
        return Brief.read(self.briefs)

    def __reversed__(self) -> Iterator[Commit]:
        return Brief.read(reversed(self.briefs))

    @overload
    def __getitem__(self, index: int) -> Commit: ...
    @overload
    def __getitem__(self, index: slice) -> Selection: ...
    def __getitem__(self, index: int | slice) -> Commit | Selection:
        if isinstance(index, slice):
            return Selection(self.briefs[index])
        return next(Brief.read([self.briefs[index]]))

    def __eq__(self, other: object) -> bool:
        return self._names() == other._names() if isinstance(other, Selection) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._names()))

    def __repr__(self) -> str:
        return f"<{len(self)} commits, read when they are looked at>"

    def __reduce__(self) -> tuple[type[tuple[Commit, ...]], tuple[tuple[Commit, ...]]]:
        return tuple, (tuple(self),)

    def _names(self) -> list[tuple[str, str]]:
        return [(brief.run, brief.id) for brief in self.briefs]


class _Numbers(Mapping[str, float]):
    """The metrics of one row, looked up in the columns."""

    __slots__ = ("_metrics", "_row")

    def __init__(self, metrics: Metrics, row: int) -> None:
        self._metrics, self._row = metrics, row

    def __getitem__(self, name: str) -> float:
        found = self._metrics.at(name, self._row)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._metrics.names if self._metrics.at(name, self._row) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
