"""Which tensors are tied to other places than before.

The places of one memory are a group. Groups are compared among the places that hold a tensor in both commits: each is
stood for by its first such place, in the order of the commit before, and a tensor was *retied* when another place
stands for it than before. So a tie that was added or removed with its place retied nothing. What stands for the same
on both sides needs one comparison of values, at the place that stands for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cairn.state.manifest import Spot, Tie
from cairn.state.place import Place
from cairn.store.tree_diff import Found, Half, Trail, Walk, trail_of


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of the tensors that share their memory."""

    retied: frozenset[Trail]
    covered: frozenset[Trail]
    """Those that are, on both sides, the memory of one other place."""
    here: dict[Trail, tuple[Found, Found]]
    """All of them that both commits have."""


def involved(before: Half, after: Half, names: Collection[str]) -> set[str]:
    """Components to read: those with other trees than before, and those with ties to them or with other ties."""
    ones, others = before.manifest.components, after.manifest.components
    changed = {name for name in names if ones.get(name) != others.get(name)}
    found = set(changed)
    same = set(before.manifest.ties) & set(after.manifest.ties)
    for tie in {*before.manifest.ties, *after.manifest.ties}:
        ends = {tie.at.component, tie.of.component}
        if ends <= set(names) and (tie not in same or ends & changed):
            found |= ends
    return found


def ties_within(half: Half, names: Collection[str]) -> dict[Spot, Spot]:
    """The ties between components that are compared."""
    return {tie.at: tie.of for tie in half.manifest.ties if _ends(tie) <= set(names)}


def judge(walk: Walk, names: Collection[str], scope: Trail) -> Judged:
    """Compare the ties of what was walked, at and below `scope`. Raises Damaged."""
    ones = _groups(walk.before, [(trail, memory) for trail, memory, _ in walk.ties], ties_within(walk.before, names))
    others = _groups(walk.after, [(trail, memory) for trail, _, memory in walk.ties], ties_within(walk.after, names))
    here: dict[Trail, tuple[Found, Found]] = {}
    order: dict[Trail, tuple[int, ...]] = {}
    for trail in dict.fromkeys(trail for group in [*ones, *others] for trail in group):
        before, after = walk.before.at(trail), walk.after.at(trail)
        if trail[: len(scope)] == scope and before and after and before[0].memory and after[0].memory:
            here[trail] = (before[0], after[0])
            order[trail] = before[1]
    first, then = _first(ones, order), _first(others, order)
    retied = {trail for trail in here if first.get(trail, trail) != then.get(trail, trail)}
    covered = {trail for trail in here if first.get(trail, trail) == then.get(trail, trail) != trail}
    return Judged(frozenset(retied), frozenset(covered), here)


def _groups(half: Half, ties: Iterable[tuple[Trail, Spot | None]], between: dict[Spot, Spot]) -> Iterable[set[Trail]]:
    groups: dict[Spot, set[Trail]] = {}
    for trail, memory in ties:
        if memory is not None:
            _group(half, groups, between.get(memory, memory)).update({trail, _trail(half, memory)})
    for at, of in between.items():
        _group(half, groups, of).add(_trail(half, at))
    return list(groups.values())


def _group(half: Half, groups: dict[Spot, set[Trail]], memory: Spot) -> set[Trail]:
    if memory not in groups:
        groups[memory] = {_trail(half, memory)}
    return groups[memory]


def _trail(half: Half, spot: Spot) -> Trail:
    return trail_of(half.tensor(spot, Place(spot.component, (), (), half.manifest.components[spot.component].id)).place)


def _first(groups: Iterable[set[Trail]], order: dict[Trail, tuple[int, ...]]) -> dict[Trail, Trail]:
    """The place that stands for each place of a group."""
    found: dict[Trail, Trail] = {}
    for group in groups:
        known = sorted((trail for trail in group if trail in order), key=lambda trail: order[trail])
        found.update(dict.fromkeys(known, known[0]) if known else {})
    return found


def _ends(tie: Tie) -> set[str]:
    return {tie.at.component, tie.of.component}
