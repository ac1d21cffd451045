"""Two commits' trees side by side: which places differ, found without reading a tensor.

A place is known by its *trail*: the component, then a token for each key, which tells keys apart as the store does (1
is not True, and a NaN is its bits). What has the same JSON on both sides is the same, except for ties: the steps of a
tie may lead to another place than before. So ties are gathered wherever they stand, for `cairn.store.tie_diff`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cairn.canonical import float_text
from cairn.errors import Dropped
from cairn.state import paths
from cairn.state.filesyntax import FileNode
from cairn.state.lazy import Pool
from cairn.state.manifest import Spot
from cairn.state.nodes import Gone
from cairn.state.opened import Opened
from cairn.state.place import Place
from cairn.state.stored import StoredFile
from cairn.state.syntax import Body, Link, Steps, Tensor
from cairn.store.core import Core

Trail = tuple[object, ...]
Keys = tuple[object, ...]

_spell = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


class Child(NamedTuple):
    """A node that was not parsed yet: where it stands, and its place among its siblings."""

    place: Place
    raw: Any
    at: int


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at a place: a Tensor, which for a tie is that of the memory, an Opened, a StoredFile, or a value.

    `memory` is the first place of a tensor's memory within the component; an empty tensor has none.
    """

    place: Place
    node: object
    memory: Spot | None = None

    @property
    def is_tie(self) -> bool:
        """Whether the tensor is the memory of an earlier one of its component."""
        return self.memory is not None and self.memory.steps != self.place.steps


@dataclass(frozen=True, slots=True)
class Pair:
    """A place that may differ; None is a side on which nothing stands there."""

    keys: Keys
    before: Found | None
    after: Found | None
    reordered: bool = False

    @property
    def path(self) -> str:
        """The path for people."""
        return paths.readable(str(self.keys[0]), self.keys[1:])


def token(key: object) -> object:
    """What tells a key from all others."""
    if type(key) is tuple:
        return ("tuple", *map(token, key))
    if type(key) is float:
        return ("float", float_text(key))
    if type(key) is complex:
        return ("complex", float_text(key.real), float_text(key.imag))
    return key if type(key) is str else (type(key).__name__, key)


def trail_of(place: Place) -> Trail:
    """The trail that leads to a place."""
    return (place.component, *map(token, place.keys))


class Half:
    """The trees of one of the commits, read as far as they are needed."""

    def __init__(self, core: Core, pool: Pool) -> None:
        self.pool = pool
        self.manifest = pool.manifest
        self._core = core
        self._children: dict[tuple[str, Steps], dict[object, Child]] = {}

    def root(self, component: str) -> Child | None:
        """The node of a component."""
        if component not in self.manifest.components:
            return None
        return Child(*self.pool.root(component), list(self.manifest.components).index(component))

    def found(self, child: Child) -> Found:
        """Parse a node, and follow it where it is a tie. Raises Damaged."""
        place = child.place
        node = place.parse(child.raw)
        if isinstance(node, Gone):
            raise Dropped(f"{node.path}: {node.part} was dropped; compare a path, or only what is kept (only=, --only)")
        if isinstance(node, Body):
            return Found(place, self.pool.open(node, place))
        if isinstance(node, FileNode):
            return Found(place, StoredFile(node.mode, self.pool.reader.file(node, place), self._core, place.path))
        if isinstance(node, Link):
            spot = Spot(place.component, node.steps)
            return Found(place, self.tensor(spot, place).node, spot)
        if isinstance(node, Tensor) and node.nbytes:
            return Found(place, node, Spot(place.component, place.steps))
        return Found(place, node)

    def tensor(self, spot: Spot, place: Place) -> Found:
        """The tensor that a tie at a place leads to. Raises Damaged."""
        target = self.pool.find(*spot)
        if target is None or not isinstance(target[1], Tensor) or not target[1].nbytes:
            place.refuse(f"expected a tie to an earlier tensor, found the steps {list(spot.steps)}")
        return Found(target[0], target[1], spot)

    def children(self, found: Found) -> dict[object, Child]:
        """The entries of a container by their tokens."""
        if not isinstance(found.node, Opened):
            return {}
        spot = (found.place.component, found.place.steps)
        if spot not in self._children:
            self._children[spot] = {
                token(key): Child(found.place.child(step, key, tree), raw, at)
                for at, (step, key, raw, tree) in enumerate(found.node.children())
            }
        return self._children[spot]

    def at(self, trail: Trail) -> tuple[Found, tuple[int, ...]] | None:
        """What stands at the end of a trail, and its place in the order of the state."""
        child = self.root(str(trail[0]))
        if child is None:
            return None
        found, order = self.found(child), [child.at]
        for step in trail[1:]:
            child = self.children(found).get(step)
            if child is None:
                return None
            found = self.found(child)
            order.append(child.at)
        return found, tuple(order)


@dataclass(slots=True)
class Walk:
    """The way through two trees at once."""

    before: Half
    after: Half
    pairs: dict[Trail, Pair] = field(default_factory=dict)
    """What may differ, by trail."""
    ties: list[tuple[Trail, Spot | None, Spot | None]] = field(default_factory=list)
    """Tensors that are on both sides and on one of them a tie, with the first places of their memory."""
    equal: Counter[str] = field(default_factory=Counter)
    """Tensors with the same JSON on both sides, by component."""

    def compare(self, trail: Trail, keys: Keys, one: Child | None, other: Child | None) -> None:
        """Compare what stands at one place. Raises Damaged."""
        if one is None or other is None:
            self._lone(trail, keys, one, other)
        elif _is_same(one, other):
            self._same(trail, one)
        else:
            self._pair(trail, keys, self.before.found(one), self.after.found(other))

    def _pair(self, trail: Trail, keys: Keys, before: Found, after: Found) -> None:
        a = self.before.children(before)
        b = self.after.children(after)
        if isinstance(before.node, Opened) and isinstance(after.node, Opened):
            reordered = [key for key in a if key in b] != [key for key in b if key in a]
            if reordered or (before.node.kind, before.node.mode) != (after.node.kind, after.node.mode):
                self.pairs[trail] = Pair(keys, before, after, reordered)
            for key in _union(a, b):
                self._child(trail, keys, key, a.get(key), b.get(key))
            return
        self.pairs[trail] = Pair(keys, before, after)
        if before.memory is not None and after.memory is not None and (before.is_tie or after.is_tie):
            self.ties.append((trail, before.memory, after.memory))
        for key, child in a.items():
            self._child(trail, keys, key, child, None)
        for key, child in b.items():
            self._child(trail, keys, key, None, child)

    def _child(self, trail: Trail, keys: Keys, key: object, one: Child | None, other: Child | None) -> None:
        child = one or other
        if child is not None:
            self.compare((*trail, key), (*keys, child.place.keys[-1]), one, other)

    def _lone(self, trail: Trail, keys: Keys, one: Child | None, other: Child | None) -> None:
        """Take in everything that stands on one side only; a container is there as what is in it, if anything is."""
        before = self.before.found(one) if one else None
        after = self.after.found(other) if other else None
        found, half = (before, self.before) if before else (after, self.after)
        inside = half.children(found) if found else {}
        if not inside:
            self.pairs[trail] = Pair(keys, before, after)
        for key, child in inside.items():
            self._child(trail, keys, key, child if before else None, None if before else child)

    def _same(self, trail: Trail, child: Child) -> None:
        """Count the tensors in what is the same on both sides, and gather its ties."""
        raw = child.raw
        if type(raw) is dict and "$tensor" in raw:
            self.equal[str(trail[0])] += 1
        elif type(raw) in (dict, list):
            node = child.place.parse(raw)
            if isinstance(node, Link):
                spot = Spot(child.place.component, node.steps)
                self.ties.append((trail, spot, spot))
            elif isinstance(node, Body):
                for step, key, inner, tree in self.before.pool.open(node, child.place).children():
                    if type(inner) in (dict, list):
                        self._same((*trail, token(key)), Child(child.place.child(step, key, tree), inner, 0))


def _is_same(one: Child, other: Child) -> bool:
    """Whether two nodes have the same JSON, in which true is not 1; a tensor has no place for true."""
    before, after = _node(one), _node(other)
    if before != after:
        return False
    return (type(before) is dict and "$tensor" in before) or _spell(before) == _spell(after)


def _node(child: Child) -> Any:
    """The JSON of a node; that of a file is known when the file was dropped, and says whether it is the same."""
    return child.raw.raw if isinstance(child.raw, Gone) else child.raw


def _union(a: Iterable[object], b: Iterable[object]) -> Iterable[object]:
    return dict.fromkeys([*a, *b])
