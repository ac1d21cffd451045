"""Two commits compared, from the manifests down to the tensors that differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from cairn.errors import Dropped, NotFound, UsageError
from cairn.history.commit import Commit
from cairn.state.find import locate_node
from cairn.state.lazy import Pool
from cairn.state.stored import StoredFile
from cairn.store.changes import Judge
from cairn.store.content import prepare, qualified
from cairn.store.core import Core
from cairn.store.diff import Change, ComponentDiff, Diff, Side
from cairn.store.file_diff import named
from cairn.store.tie_diff import Judged, involved, judge, ties_within
from cairn.store.tree_diff import Child, Half, Keys, Pair, Trail, Walk, trail_of

_DIGITS = re.compile("([0-9]+)")


@dataclass(frozen=True, slots=True)
class _Start:
    """A place to compare with all below it; `inside` is the tensor of the file there, if only that is asked for."""

    trail: Trail
    keys: Keys
    before: Child | None
    after: Child | None
    inside: str | None = None


class Comparison:
    """Two commits, and what of them is compared: all, the components in `only`, or what stands at a path and below."""

    def __init__(
        self, core: Core, before: Commit, after: Commit, path: str | None, only: Collection[str] | None
    ) -> None:
        """Read the manifests. Raises NotFound, Dropped, Damaged."""
        self._core = core
        self._commits = before, after
        for commit in self._commits:
            if commit.is_dropped:
                raise Dropped(f"{commit} was dropped: its content is no longer kept; `cairn undrop` takes that back")
        self._before, self._after = (Half(core, _pool(core, commit)) for commit in self._commits)
        known = list({**self._before.manifest.components, **self._after.manifest.components})
        self._path = path if path is None else qualified([path], known)[0]
        self._all = path is None and only is None
        self._names = self._choose(known, only)
        self._read = self._needed()

    def run(self, *, values: bool, advance: Callable[[int], None]) -> Diff:
        """Compare. Without `values` only trees are read; `advance` is told the bytes of tensors that were compared."""
        walk = Walk(self._before, self._after)
        starts = self._starts()
        for start in starts:
            walk.compare(start.trail, start.keys, start.before, start.after)
        judged = judge(walk, self._read, starts[0].trail if self._path is not None and starts else ())
        _settle(walk, judged)
        inside = starts[0].inside if starts else None
        changes = self._changes(walk, judged, values=values or inside is not None, advance=advance)
        if inside is not None:
            changes = [change for change in changes if change.path == f"{change.file}/{inside}"]
        changes += self._reordered() if self._all else []
        changes.sort(key=_by_path)
        components = tuple([self._sum(name, walk, changes) for name in self._names])
        return Diff(*self._commits, self._path, not changes, components, tuple(changes))

    def _choose(self, known: list[str], only: Collection[str] | None) -> list[str]:
        """The components in question. Raises NotFound."""
        if isinstance(only, str):
            raise UsageError(f"only: expected a set of component names, found the str {only!r}; write {{{only!r}}}")
        wanted = known if only is None else only
        if self._path is not None:
            wanted = [self._path.partition("/")[0]]
        for name in wanted:
            if name not in known:
                raise NotFound(f"component {name!r}: expected one of {', '.join(known)}; no side has this one")
        return [name for name in known if name in wanted]

    def _needed(self) -> set[str]:
        """The components whose trees are read. Raises Dropped."""
        needed = involved(self._before, self._after, self._names)
        if self._path is not None and not any(self._names[0] in commit.dropped for commit in self._commits):
            needed = set(self._names)
        for commit in self._commits:
            gone = [name for name in self._names if name in needed and name in commit.dropped]
            if gone:
                raise Dropped(
                    f"{commit}: {', '.join(gone)} was dropped; compare a path, or only what is kept (only=, --only)"
                )
        return needed

    def _starts(self) -> list[_Start]:
        if self._path is not None:
            return [self._start(self._path)] if self._read else []
        wanted = [name for name in self._names if name in self._read]
        return [_Start((name,), (name,), self._before.root(name), self._after.root(name)) for name in wanted]

    def _start(self, path: str) -> _Start:
        """Find a path, which may lead to a tensor inside a file, on either side. Raises NotFound."""
        head, inside = path, ""
        while True:
            one, other = locate_node(self._before.pool, head), locate_node(self._after.pool, head)
            found = one or other
            if found is not None:
                break
            head, _, tail = head.rpartition("/")
            inside = f"{tail}/{inside}" if inside else tail
        before, after = Child(*one, 0) if one else None, Child(*other, 0) if other else None
        if inside:
            nodes = [half.found(child).node for half, child in self._sides(before, after)]
            if not any(isinstance(node, StoredFile) and inside in named(node) for node in nodes):
                raise NotFound(f"{path!r}: expected a path that one of the commits has, found nothing behind {head!r}")
        place = found[0]
        return _Start(trail_of(place), (place.component, *place.keys), before, after, inside or None)

    def _sides(self, before: Child | None, after: Child | None) -> list[tuple[Half, Child]]:
        sides = ((self._before, before), (self._after, after))
        return [(half, child) for half, child in sides if child is not None]

    def _changes(self, walk: Walk, judged: Judged, *, values: bool, advance: Callable[[int], None]) -> list[Change]:
        between = ties_within(self._before, self._read), ties_within(self._after, self._read)
        judging = Judge(self._core, self._before, self._after, between, walk.equal, values, advance)
        changes: list[Change] = []
        for trail, pair in walk.pairs.items():
            found = judging.changes(pair, retied=trail in judged.retied)
            changes += found
            if not found and pair.before is not None and not pair.before.is_tie:
                walk.equal[pair.before.place.component] += 1
        return changes

    def _reordered(self) -> list[Change]:
        """The change of the order of components."""
        ones, others = list(self._before.manifest.components), list(self._after.manifest.components)
        before, after = [name for name in ones if name in others], [name for name in others if name in ones]
        if before == after:
            return []
        one, other = (Side("container", "dict", value=tuple(names)) for names in (before, after))
        return [Change("", "", ("reordered",), one, other)]

    def _sum(self, name: str, walk: Walk, changes: list[Change]) -> ComponentDiff:
        counts: dict[str, Counter[str]] = {}
        for change in changes:
            if change.component == name:
                counts.setdefault(change.kind, Counter()).update(change.kinds)
        status = "changed" if counts else "same"
        if name not in self._before.manifest.components:
            status = "added"
        elif name not in self._after.manifest.components:
            status = "removed"
        equal = walk.equal[name] if name in self._read else None
        return ComponentDiff(name, status, equal, {kind: dict(found) for kind, found in counts.items()})


def _pool(core: Core, commit: Commit) -> Pool:
    return Pool(commit.root, prepare(core, commit), without=commit.dropped)


def _settle(walk: Walk, judged: Judged) -> None:
    """Leave out places that another stands for, and take in ties that the same JSON hid."""
    for trail in judged.covered:
        walk.pairs.pop(trail, None)
    for trail in dict.fromkeys([*judged.retied, *(trail for trail, _, _ in walk.ties)]):
        if trail in judged.here and trail not in judged.covered and trail not in walk.pairs:
            before, after = judged.here[trail]
            walk.pairs[trail] = Pair((before.place.component, *before.place.keys), before, after)
            if not before.is_tie and not after.is_tie:
                walk.equal[before.place.component] -= 1  # It was counted where its JSON was found to be the same.


def _by_path(change: Change) -> tuple[object, ...]:
    """Sort by component and path, the parts of a path before what it is a beginning of, numbers by their value."""
    parts = _DIGITS.split(change.path.replace("/", "\0"))
    natural = [int(part) if place % 2 else part for place, part in enumerate(parts)]
    return change.component, natural, change.path
