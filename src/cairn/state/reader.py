"""The reading of trees: bytes to JSON, and containers in parts back to their entries.

Every bound of the format is proven before anything is built: the size of a tree by its reference, the size of a
container by the sizes of its parts, the boundaries between parts by the names of the entries. What is read in all is
counted, so trees that refer to one another again and again cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from cairn import canonical
from cairn.errors import Damaged
from cairn.ids import BlobRef
from cairn.state import lengths, paths
from cairn.state.syntax import Body, Malformed, Steps, parse, parse_key, parse_refs
from cairn.state.trees import (
    MAX_DEPTH,
    MAX_EXPANDED_BYTES,
    MAX_TREE_BYTES,
    PART_BYTES,
    SPLIT_BYTES,
    is_plain_key,
    starts_part,
)

T = TypeVar("T")
ReadTree = Callable[[BlobRef], bytes]

_MAX_LEVELS = 8
"""Lists of parts of lists of parts; 256^8 entries are more than there can be."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands: the component, the steps to it, the keys that people read, and the tree it is in."""

    component: str
    steps: Steps
    keys: tuple[object, ...]
    tree: str

    def child(self, step: str | int, key: object, tree: str) -> Place:
        """The place of an entry."""
        steps = (*self.steps, step)
        keys = steps if self.keys is self.steps and key == step else (*self.keys, key)
        return Place(self.component, steps, keys, tree)

    @property
    def path(self) -> str:
        """The path for people."""
        return paths.readable(self.component, self.keys)

    def checked(self, check: Callable[[], T]) -> T:
        """Do a check of what stands here; what it finds malformed becomes a Damaged."""
        try:
            return check()
        except Malformed as error:
            self.refuse(str(error))
        except RecursionError:
            self.refuse("expected less nesting, found more than can be followed from here")

    def parse(self, raw: Any) -> object:
        """Read the node that stands here. Raises Damaged."""
        try:
            return parse(raw)
        except Malformed as error:
            self.refuse(str(error))

    def refuse(self, reason: str) -> NoReturn:
        """Raise Damaged: what stands here cannot have been written by cairn."""
        raise Damaged(
            f"tree {self.tree} at {self.path or 'the manifest'}: {reason}; "
            "its bytes match its id, so it was written wrongly or by a newer version: upgrade cairn or drop the commit"
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive entries of a container, in one tree: a list of items or pairs, or a dict of fields."""

    tree: str
    start: int
    raw: Any


@dataclass(frozen=True, slots=True)
class Opened:
    """A container with all its entries at hand, and the trees that were read for them."""

    kind: str
    shape: str
    runs: tuple[Run, ...]
    trees: tuple[BlobRef, ...]

    def entries(self) -> Iterator[tuple[str | int, object, Any, str]]:
        """Each entry as its step, its key, its node and the tree it stands in."""
        for run in self.runs:
            if self.shape == "fields":
                for key, node in run.raw.items():
                    yield key, key, node, run.tree
            elif self.shape == "items":
                for place, node in enumerate(run.raw, run.start):
                    yield place, place, node, run.tree
            else:
                for place, (key, node) in enumerate(run.raw, run.start):
                    yield place, parse_key(key), node, run.tree

    def entry(self, step: str | int) -> tuple[object, Any, str] | None:
        """The entry at a step as its key, its node and the tree it stands in."""
        for run in self.runs:
            if self.shape == "fields":
                if step in run.raw:
                    return step, run.raw[step], run.tree
            elif isinstance(step, int) and run.start <= step < run.start + len(run.raw):
                node = run.raw[step - run.start]
                return (step, node, run.tree) if self.shape == "items" else (parse_key(node[0]), node[1], run.tree)
        return None

    def __len__(self) -> int:
        return sum(len(run.raw) for run in self.runs)


class Reader:
    """Reads the trees of one commit through a function that returns hash-checked bytes."""

    def __init__(self, read_tree: ReadTree) -> None:
        """Read with `read_tree`, which raises Damaged for a blob that is missing or wrong."""
        self._read_tree = read_tree
        self._spent = 0

    def restart(self) -> None:
        """Count what is read from here on as a reading of its own."""
        self._spent = 0

    def root(self, ref: BlobRef, component: str) -> tuple[Place, Any]:
        """Read the tree of a component or, under an empty name, the manifest. Raises Damaged."""
        place = Place(component, (), (), ref.id)
        raw = self._tree(ref, place)
        if component and ref.size > SPLIT_BYTES:
            place.checked(lambda: lengths.check(raw))
        return place, raw

    def open(self, body: Body, place: Place) -> Opened:
        """Gather the entries of a container. Raises Damaged."""
        if len(place.steps) >= MAX_DEPTH:
            place.refuse(f"expected at most {MAX_DEPTH} containers inside each other, found more")
        if body.parts:
            refs, lists = self._parts_of(body.raw, place, 0)
            runs = self._runs(refs, body.shape, place)
            opened = Opened(body.kind, body.shape, runs, (*lists, *refs))
        else:
            opened = Opened(body.kind, body.shape, (Run(place.tree, 0, body.raw),), ())
        place.checked(lambda: _check_keys(opened))
        return opened

    def _tree(self, ref: BlobRef, place: Place) -> Any:
        if ref.size > MAX_TREE_BYTES:
            place.refuse(f"expected trees of at most {MAX_TREE_BYTES} bytes, found tree {ref.id} of {ref.size}")
        self._spent += ref.size
        if self._spent > MAX_EXPANDED_BYTES:
            place.refuse(f"expected at most {MAX_EXPANDED_BYTES} bytes of trees in a commit, found more")
        data = self._read_tree(ref)
        if len(data) != ref.size:
            place.refuse(f"expected tree {ref.id} to have {ref.size} bytes, found {len(data)}")
        return canonical.decode(data, f"tree {ref.id} at {place.path or 'the manifest'}")

    def _parts_of(self, raw: Any, place: Place, level: int) -> tuple[tuple[BlobRef, ...], tuple[BlobRef, ...]]:
        """The parts of a container, and the trees that list them."""
        if type(raw) is dict and list(raw) == ["$list"] and level < _MAX_LEVELS:
            refs, lists = self._parts_of(raw["$list"], place, level + 1)
            runs = self._runs(refs, "items", place)
            return place.checked(lambda: parse_refs([item for run in runs for item in run.raw])), (*lists, *refs)
        return place.checked(lambda: parse_refs(raw)), ()

    def _runs(self, refs: tuple[BlobRef, ...], shape: str, place: Place) -> tuple[Run, ...]:
        if sum(ref.size for ref in refs) - len(refs) + 1 <= SPLIT_BYTES:
            place.refuse(f"expected up to {SPLIT_BYTES} bytes to stand whole, found a container in {len(refs)} parts")
        runs: list[Run] = []
        start = 0
        before = 0
        for ref in refs:
            raw = self._tree(ref, place)
            part = Place(place.component, place.steps, place.keys, ref.id)
            part.checked(partial(_check_part, raw, shape, start, before, ref.size))
            runs.append(Run(ref.id, start, raw))
            start += len(raw)
            before = ref.size
        return tuple(runs)


def _check_keys(opened: Opened) -> None:
    if opened.shape == "fields":
        seen: set[str] = set()
        for run in opened.runs:
            for key in run.raw:
                if not is_plain_key(key):
                    raise Malformed(f"expected short keys without $ in front, found {key!r:.60}")
            if not seen.isdisjoint(run.raw):
                raise Malformed("expected every key once, found one in several parts")
            seen.update(run.raw)
    elif opened.shape == "pairs":
        _check_pairs(opened)


def _check_pairs(opened: Opened) -> None:
    spelled: set[bytes] = set()
    plain = opened.kind == "dict"
    for run in opened.runs:
        for pair in run.raw:
            if type(pair) is not list or len(pair) != 2:
                raise Malformed(f"expected a pair of key and value, found {pair!r:.60}")
            text = canonical.encode(pair[0])
            if len(text) > SPLIT_BYTES:
                raise Malformed(f"expected keys of up to {SPLIT_BYTES} bytes, found one of {len(text)}")
            plain = plain and is_plain_key(parse_key(pair[0]))
            spelled.add(text)
    if len(spelled) != len(opened):
        raise Malformed("expected every key once, found one again")
    if plain:
        raise Malformed("expected a dict with plain keys to stand for itself, found it as pairs")


def _check_part(raw: Any, shape: str, start: int, before: int, size: int) -> None:
    """Prove that a part begins and ends where the rule says; `before` is the size of the part in front of it."""
    if type(raw) is not (dict if shape == "fields" else list) or not raw:
        raise Malformed(f"expected a part with {shape}, found {raw!r:.60}")
    if size > PART_BYTES and len(raw) > 1:
        raise Malformed(f"expected parts of up to {PART_BYTES} bytes, found one of {size}")
    names = [key.encode() for key in raw] if shape == "fields" else [b"%d" % (start + at) for at in range(len(raw))]
    if any(starts_part(name) for name in names[1:]):
        raise Malformed("expected a new part where the hash of a name says so, found none")
    if before and not starts_part(names[0]) and before + 1 + _first_bytes(raw, shape) <= PART_BYTES:
        raise Malformed("expected the part in front to go on, found a new one")
    if size > SPLIT_BYTES:
        values: list[Any] = list(raw.values()) if isinstance(raw, dict) else raw
        for value in values:
            lengths.pair(value) if shape == "pairs" else lengths.check(value)


def _first_bytes(raw: Any, shape: str) -> int:
    if shape == "fields":
        key, value = next(iter(raw.items()))
        return len(canonical.encode(key)) + 1 + lengths.length(value)
    return lengths.pair(raw[0]) if shape == "pairs" else lengths.length(raw[0])
