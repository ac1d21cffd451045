"""The reading of trees: bytes to JSON, and containers in parts back to their entries.

Every bound of the format is proven before anything is built: the size of a tree by its reference, the size of a
container by the sizes of its parts, the boundaries between parts by the names of the entries. What is read in all is
counted, so trees that refer to one another again and again cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cairn import canonical
from cairn.errors import Damaged
from cairn.ids import BlobRef
from cairn.state import lengths
from cairn.state.filesyntax import FileNode, gather
from cairn.state.nodes import FileRefs, Gone
from cairn.state.opened import Opened, Run
from cairn.state.parts import NOTHING, Parts
from cairn.state.place import Place
from cairn.state.syntax import Body, Malformed, parse_key, parse_refs
from cairn.state.trees import MAX_DEPTH, MAX_EXPANDED_BYTES, MAX_TREE_BYTES, PART_BYTES, SPLIT_BYTES, starts_part

ReadTree = Callable[[BlobRef], bytes]
Seen = dict[tuple[str, str], int]
"""Trees whose content was walked to its end: id and what the tree was read as, to the number of its entries."""

_MAX_LEVELS = 8
"""Lists of parts of lists of parts; 256^8 entries are more than there can be."""


@dataclass(slots=True)
class Watch:
    """What a walk wants to know of the reading, and what it wants left out."""

    seen: Seen | None
    """Parts that need not be read."""
    damaged: Callable[[str, Damaged], None] | None
    """Told of damage, which then does not stop the reading."""
    met: list[tuple[Place, BlobRef]] = field(default_factory=list)
    """The trees that were come across, read or not."""
    losses: int = 0
    """How often damage was met."""
    is_whole: bool = True
    """Whether nothing of the component was dropped: only then do its trees become `seen`."""

    def lose(self, place: Place, error: Damaged) -> None:
        """Note damage, or raise it where nobody asked to be told."""
        if self.damaged is None:
            raise error
        self.losses += 1
        self.damaged(place.path, error)


class Reader:
    """Reads the trees of one commit through a function that returns hash-checked bytes."""

    def __init__(self, read_tree: ReadTree, watch: Watch | None = None, without: Parts = NOTHING) -> None:
        """Read with `read_tree`, which raises Damaged for a blob that is missing or wrong.

        What stands in folders and was dropped, as `without` says, is Gone instead of what it was.
        """
        self._read_tree = read_tree
        self._watch = watch
        self._without = without
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
        metadata = tuple([(raw, place.tree) for raw in body.metadata])
        if body.parts:
            runs, partial = self._runs(self._parts_of(body.raw, place, 0), body.shape, place)
            opened = Opened(body.kind, body.shape, runs, True, partial, body.mode, metadata)
        else:
            opened = Opened(body.kind, body.shape, (Run(place.tree, 0, body.raw),), False, False, body.mode, metadata)
        place.checked(opened.check_keys)
        return opened if opened.kind != "folder" else self._without_gone(opened, place)

    def file(self, node: FileNode, place: Place) -> FileRefs:
        """Gather the slices of a file. Raises Damaged."""
        runs: tuple[Run, ...] = (Run(place.tree, 0, node.slices.raw),)
        if node.slices.parts:
            runs, _ = self._runs(self._parts_of(node.slices.raw, place, 0), "slices", place)
        return place.checked(lambda: gather(node, [entry for run in runs for entry in run.raw]))

    def _without_gone(self, folder: Opened, place: Place) -> Opened:
        """Put Gone in the place of entries that were dropped: what they refer to is then read by nobody."""
        if not self._without.patterns(place.component):
            return folder

        def kept(key: object, raw: Any) -> Any:
            here = place.child(0, key, place.tree)
            part = self._without.gone(place.component, here.keys)
            if part is None:
                return raw
            node = here.parse(raw)
            return Gone(here.path, part, node.size if isinstance(node, FileNode) else 0, raw)

        runs = []
        for run in folder.runs:
            if folder.shape == "fields":
                entries: Any = {key: kept(key, raw) for key, raw in run.raw.items()}
            else:
                entries = [[key, kept(parse_key(key), raw)] for key, raw in run.raw]
            runs.append(replace(run, raw=entries))
        return replace(folder, runs=tuple(runs))

    def _tree(self, ref: BlobRef, place: Place) -> Any:
        if self._watch is not None:
            self._watch.met.append((place, ref))
        if ref.size > MAX_TREE_BYTES:
            place.refuse(f"expected trees of at most {MAX_TREE_BYTES} bytes, found tree {ref.id} of {ref.size}")
        self._spent += ref.size
        if self._spent > MAX_EXPANDED_BYTES:
            place.refuse(f"expected at most {MAX_EXPANDED_BYTES} bytes of trees in a commit, found more")
        data = self._read_tree(ref)
        if len(data) != ref.size:
            place.refuse(f"expected tree {ref.id} to have {ref.size} bytes, found {len(data)}")
        return canonical.decode(data, f"tree {ref.id} at {place.path}")

    def _parts_of(self, raw: Any, place: Place, level: int) -> tuple[BlobRef, ...]:
        """The parts of a container, whose list may itself be in parts."""
        if type(raw) is dict and list(raw) == ["$list"] and level < _MAX_LEVELS:
            runs, _ = self._runs(self._parts_of(raw["$list"], place, level + 1), "parts", place)
            return place.checked(lambda: parse_refs([item for run in runs for item in run.raw]))
        return place.checked(lambda: parse_refs(raw))

    def _runs(self, refs: tuple[BlobRef, ...], shape: str, place: Place) -> tuple[tuple[Run, ...], bool]:
        """The entries of the parts, and whether some part was left out."""
        if sum(ref.size for ref in refs) - len(refs) + 1 <= SPLIT_BYTES:
            place.refuse(f"expected up to {SPLIT_BYTES} bytes to stand whole, found a container in {len(refs)} parts")
        runs: list[Run] = []
        start = before = 0
        left_out = False
        for ref in refs:
            known = self._known(ref, shape, place)
            if known is None:
                try:
                    raw = self._part(ref, shape, place, start, before)
                except Damaged as error:
                    if self._watch is None or shape in ("parts", "slices"):
                        raise
                    self._watch.lose(place, error)
                    left_out, before = True, 0
                    if shape == "fields":
                        continue
                    break  # How many entries were lost is not known, so what follows has no place.
                runs.append(Run(ref.id, start, raw))
                start += len(raw)
            else:
                left_out = True
                start += known
            before = ref.size
        return tuple(runs), left_out

    def _known(self, ref: BlobRef, shape: str, place: Place) -> int | None:
        if self._watch is None or self._watch.seen is None or shape == "slices":
            return None
        known = self._watch.seen.get((ref.id, shape))
        if known is not None:
            self._watch.met.append((place, ref))
        return known

    def _part(self, ref: BlobRef, shape: str, place: Place, start: int, before: int) -> Any:
        raw = self._tree(ref, place)
        part = Place(place.component, place.steps, place.keys, ref.id)
        part.checked(partial(_check_part, raw, shape, start, before, ref.size))
        return raw


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
