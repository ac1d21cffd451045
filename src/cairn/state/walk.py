"""What a commit is made of, without decoding a tensor: its blobs, and its values as listings show them.

Only trees are read, and numpy is not imported, so listings start fast and gc needs no memory for tensors.
Whether the target of a tie is there is judged by `leaves` and by loading, not by `walk`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from cairn.ids import BlobRef
from cairn.state import manifest as manifests
from cairn.state.manifest import Manifest
from cairn.state.paths import Scalar
from cairn.state.reader import Opened, Place, Reader, ReadTree
from cairn.state.syntax import Body, Link, Long, Steps, Tensor

__all__ = ["Entry", "Node", "leaves", "read_manifest", "walk"]

_EMPTY: dict[str, Callable[[], object]] = {"dict": dict, "OrderedDict": dict, "list": list, "tuple": tuple}


@dataclass(frozen=True, slots=True)
class Node:
    """A blob that a commit needs, and the first words for it: `manifest`, `model`, `model/embed.weight`."""

    path: str
    ref: BlobRef
    is_tree: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of a commit as listings show it.

    `path` is the component and the keys. `kind` is "tensor"; "tie", a tensor whose memory stands at the path `tie`
    of the same component; or "value". A tensor with a `tie` is the memory of a tensor of an earlier component. A
    value has its `value`, an empty container included; that of a long str or bytes is None and stands in `blobs`. A
    numpy scalar, as value or in a path, is a `Scalar`. `within` says what the containers around it are.
    """

    path: tuple[object, ...]
    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    nbytes: int
    blobs: tuple[BlobRef, ...]
    value: object
    tie: tuple[object, ...] | None
    within: tuple[str, ...]


def read_manifest(ref: BlobRef, read_tree: ReadTree) -> Manifest:
    """Read a manifest. Raises Damaged."""
    return manifests.read(ref, Reader(read_tree))


def walk(manifest_ref: BlobRef, read_tree: ReadTree, skip: Collection[str] = ()) -> Iterator[Node]:
    """Every blob a commit needs, the manifest first, without the components in `skip`; one used twice comes twice.

    `read_tree` returns hash-checked bytes. Raises Damaged for trees that cannot be read or say what no tree says.
    """
    reader = Reader(read_tree)
    yield Node("manifest", manifest_ref, True)
    manifest = manifests.read(manifest_ref, reader)
    for ref in manifest.trees:
        yield Node("manifest", ref, True)
    for component, ref in manifest.components.items():
        if component in skip:
            continue
        yield Node(component, ref, True)
        for place, node, _ in _scan(reader, *reader.root(ref, component)):
            if isinstance(node, Opened):
                for tree in node.trees:
                    yield Node(place.path, tree, True)
            elif isinstance(node, Tensor | Long):
                for blob in node.blobs:
                    yield Node(place.path, blob, False)


def leaves(manifest_ref: BlobRef, read_tree: ReadTree, only: Collection[str] | None = None) -> Iterator[Entry]:
    """The values of a commit in the order of the state, or of the components in `only`. Raises Damaged."""
    reader = Reader(read_tree)
    manifest = manifests.read(manifest_ref, reader)
    ties = {tie.at: (tie.of.component, *tie.of.steps) for tie in manifest.ties}
    for component, ref in manifest.components.items():
        if only is not None and component not in only:
            continue
        tensors: dict[Steps, tuple[Tensor, tuple[object, ...]]] = {}
        for place, node, within in _scan(reader, *reader.root(ref, component)):
            path = (component, *place.keys)
            if isinstance(node, Tensor):
                tensors[place.steps] = (node, path)
                tie = ties.get((component, place.steps)) if ties else None  # type: ignore[call-overload]
                yield _tensor_entry("tensor", path, node, node.blobs, tie, within)
            elif isinstance(node, Link):
                if node.steps not in tensors:
                    place.refuse(f"expected a tie to an earlier tensor, found the steps {list(node.steps)}")
                tensor, target = tensors[node.steps]
                yield _tensor_entry("tie", path, tensor, (), target, within)
            elif not isinstance(node, Opened) or len(node) == 0:
                yield _value_entry(path, node, within)


def _tensor_entry(
    kind: str,
    path: tuple[object, ...],
    tensor: Tensor,
    blobs: tuple[BlobRef, ...],
    tie: tuple[object, ...] | None,
    within: tuple[str, ...],
) -> Entry:
    return Entry(path, kind, tensor.dtype, tensor.shape, tensor.nbytes, blobs, None, tie, within)


def _value_entry(path: tuple[object, ...], node: object, within: tuple[str, ...]) -> Entry:
    if isinstance(node, Long):
        return Entry(path, "value", node.kind, None, node.nbytes, node.blobs, None, None, within)
    if isinstance(node, Opened):
        return Entry(path, "value", node.kind, None, 0, (), _EMPTY[node.kind](), None, within)
    dtype = node.dtype if isinstance(node, Scalar) else type(node).__name__
    return Entry(path, "value", dtype, None, 0, (), node, None, within)


def _scan(reader: Reader, place: Place, raw: object) -> Iterator[tuple[Place, object, tuple[str, ...]]]:
    """Every node of a component, a container as Opened before its entries, with the containers around it."""
    node = place.parse(raw)
    if not isinstance(node, Body):
        yield place, node, ()
        return
    opened = reader.open(node, place)
    yield place, opened, ()
    stack: list[tuple[Place, Iterator[tuple[str | int, object, object, str]], tuple[str, ...]]]
    stack = [(place, opened.entries(), (opened.kind,))]
    while stack:
        parent, entries, within = stack[-1]
        for step, key, raw_entry, tree in entries:
            here = parent.child(step, key, tree)
            node = here.parse(raw_entry)
            if isinstance(node, Body):
                opened = reader.open(node, here)
                yield here, opened, within
                stack.append((here, opened.entries(), (*within, opened.kind)))
                break
            yield here, node, within
        else:
            stack.pop()
