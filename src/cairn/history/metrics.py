"""Metrics as columns: for each name the rows that have a number for it, ascending, and these numbers."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

Column = tuple["array[int]", "array[float]"]


class Metrics:
    """Columns by name; those of a snapshot are loaded when they are asked for.

    `reread` makes a column of the snapshot anew, from entries, when its part cannot be used.
    """

    def __init__(self, load: Callable[[str], Column | None] = lambda name: None, names: Iterable[str] = ()) -> None:
        self._load = load
        self.reread: Callable[[str], Column] = lambda name: (array("q"), array("d"))
        self._unloaded = set(names)
        self._columns: dict[str, Column] = {}

    @property
    def names(self) -> list[str]:
        """The names that some row has a number for."""
        return sorted(self._unloaded | self._columns.keys())

    def add(self, row: int, metrics: Mapping[str, float | int]) -> None:
        """Enter the metrics of a row after all others."""
        for name, value in metrics.items():
            rows, values = self._columns.setdefault(name, (array("q"), array("d")))
            rows.append(row)
            values.append(float(value))

    def column(self, name: str) -> Column:
        """Return the rows that have a metric, ascending, and their numbers."""
        if name in self._unloaded:
            rows, values = self._load(name) or self.reread(name)
            later = self._columns.get(name, (array("q"), array("d")))
            self._columns[name] = rows + later[0], values + later[1]
            self._unloaded.discard(name)
        return self._columns.get(name, (array("q"), array("d")))

    def at(self, name: str, row: int) -> float | None:
        """Return a row's number for a metric, if it has one."""
        rows, values = self.column(name)
        place = bisect_left(rows, row)
        return values[place] if place < len(rows) and rows[place] == row else None

    def best(self, name: str, line: Iterable[range], passing: Callable[[int], bool], *, largest: bool) -> int | None:
        """Return the row of a line with the best number, of equals the first on the line; NaN is never it.

        Only rows that are `passing` count.
        """
        numbered, values = self.column(name)
        best, found = math.nan, None
        for rows in line:
            low, high = bisect_left(numbered, rows[-1]), bisect_left(numbered, rows[0] + 1)
            for at in range(high - 1, low - 1, -1):
                value = values[at]
                is_better = found is None or (value > best if largest else value < best)
                if value == value and is_better and passing(numbered[at]):
                    best, found = value, numbered[at]
        return found

    def copy(self) -> Metrics:
        """Return columns that can go on in another way."""
        other = Metrics(self._load, self._unloaded)
        other._columns = {name: (rows[:], values[:]) for name, (rows, values) in self._columns.items()}
        return other
