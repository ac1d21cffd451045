"""A place that may differ, made into the words of the answer: how it differs, and what stood and stands there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cairn.files.formats import TensorInfo
from cairn.state import dtypes
from cairn.state.manifest import Spot
from cairn.state.nodes import Link as FileLink
from cairn.state.opened import Opened
from cairn.state.paths import Scalar
from cairn.state.stored import StoredFile
from cairn.state.syntax import Long, Tensor
from cairn.store import file_diff
from cairn.store.core import Core
from cairn.store.diff import Change, Numbers, Side
from cairn.store.extents import Elements, of_blobs
from cairn.store.tensor_diff import tensor_kinds
from cairn.store.tree_diff import Found, Half, Pair


@dataclass(frozen=True, slots=True)
class Judge:
    """Says of pairs whether and how they differ."""

    core: Core
    before: Half
    after: Half
    between: tuple[dict[Spot, Spot], dict[Spot, Spot]]
    """Ties between components, before and after."""
    equal: Counter[str]
    """Counts the equal tensors of a component."""
    values: bool
    """Whether to read tensors and files for numbers; else trees alone decide."""
    advance: Callable[[int], None]

    def changes(self, pair: Pair, *, retied: bool) -> list[Change]:
        """The change of a place, and those of tensors inside a changed file; nothing where the sides are equal."""
        before, after = pair.before, pair.after
        numbers = None
        if before is None or after is None:
            kinds = ["added" if before is None else "removed"]
        else:
            kinds, numbers = self._kinds(before, after, reordered=pair.reordered, retied=retied)
        if not kinds:
            return []
        change = Change(
            path=pair.path,
            component=str(pair.keys[0]),
            kinds=tuple(kinds),
            before=self._side(self.before, before, self.between[0]) if before else None,
            after=self._side(self.after, after, self.between[1]) if after else None,
            numbers=numbers,
        )
        return [change, *self._inside(pair, change)]

    def _inside(self, pair: Pair, change: Change) -> list[Change]:
        """The changes of the tensors in a file whose bytes changed."""
        before, after = pair.before and pair.before.node, pair.after and pair.after.node
        if not (self.values and "changed" in change.kinds):
            return []
        if not (isinstance(before, StoredFile) and isinstance(after, StoredFile)):
            return []
        changes, equal = file_diff.inside(before, after, change, self.advance)
        self.equal[change.component] += equal
        return changes

    def _kinds(self, before: Found, after: Found, *, reordered: bool, retied: bool) -> tuple[list[str], Numbers | None]:
        a, b = before.node, after.node
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            kinds, numbers = self._tensor_kinds(a, b)
            return ["retied"] * retied + kinds, numbers
        if isinstance(a, Opened) and isinstance(b, Opened):
            return _container_kinds(a, b, reordered), None
        if isinstance(a, StoredFile) and isinstance(b, StoredFile):
            return _file_kinds(a, b), None
        if _kind(a) != _kind(b):
            return ["replaced"], None
        return ["changed" if _type(a) == _type(b) else "retyped"], None

    def _tensor_kinds(self, a: Tensor, b: Tensor) -> tuple[list[str], Numbers | None]:
        kinds = ["byteswapped"] if a.big != b.big and a.dtype == b.dtype else []
        if a.kind != b.kind and a.dtype == b.dtype:
            kinds.append("retyped")
        found, numbers = tensor_kinds(self._elements(a), self._elements(b), self.advance if self.values else None)
        return kinds + found, numbers

    def _elements(self, node: Tensor) -> Elements:
        packed = node.dtype in dtypes.PACKED
        dtype, shape = ("U8", (node.nbytes,)) if packed else (node.dtype, node.shape)
        return Elements(TensorInfo("", dtype, shape, 0, node.nbytes), of_blobs(self.core, node.blobs))

    def _side(self, half: Half, found: Found, between: dict[Spot, Spot]) -> Side:
        node = found.node
        if isinstance(node, Tensor):
            order = "big" if node.big else "little"
            tie = _tie(half, found, between)
            dtype = node.dtype if node.kind is None else f"{node.dtype} ({node.kind})"
            return Side("tensor", dtype, node.shape, order, node.nbytes, tie=tie)
        if isinstance(node, StoredFile):
            return Side("file", bytes=node.size, mode=node.mode, hash=node.hash)
        if isinstance(node, Opened):
            return Side(_kind(node), _type(node), mode=node.mode if node.kind == "folder" else None)
        if isinstance(node, Long):
            return Side("value", node.kind, bytes=node.nbytes)
        return Side(_kind(node), _type(node), value=node.target if isinstance(node, FileLink) else node)


def _container_kinds(a: Opened, b: Opened, reordered: bool) -> list[str]:
    kinds = ["retyped"] if a.kind != b.kind else []
    return kinds + ["reordered"] * reordered + ["mode"] * (a.kind == b.kind and a.mode != b.mode)


def _file_kinds(a: StoredFile, b: StoredFile) -> list[str]:
    kinds = []
    if (a.size, a.hash) != (b.size, b.hash):
        kinds.append("changed")
    elif a.refs != b.refs:
        kinds.append("recut")
    return kinds + ["mode"] * (a.mode != b.mode)


def _kind(node: object) -> str:
    if isinstance(node, Tensor):
        return "tensor"
    if isinstance(node, StoredFile):
        return "file"
    if isinstance(node, FileLink):
        return "link"
    if isinstance(node, Opened):
        return "folder" if node.kind == "folder" else "container"
    return "value"


def _type(node: object) -> str | None:
    if isinstance(node, Opened | Long):
        return node.kind
    if isinstance(node, Scalar):
        return node.dtype
    return None if isinstance(node, FileLink) else type(node).__name__


def _tie(half: Half, found: Found, between: dict[Spot, Spot]) -> str | None:
    """The first place of a tensor's memory, where that is another."""
    if found.memory is None:
        return None
    first = between.get(found.memory, found.memory)
    if first == Spot(found.place.component, found.place.steps):
        return None
    return half.tensor(first, found.place).place.path
