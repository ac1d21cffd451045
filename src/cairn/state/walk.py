"""What a commit is made of, without decoding a tensor: its blobs, and its values as listings show them.

Only trees are read, and numpy is not imported, so listings start fast and gc needs no memory for tensors.
Whether the target of a tie is there is judged by `leaves` and by loading, not by `walk`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from cairn.errors import Damaged
from cairn.ids import BlobRef
from cairn.state import manifest as manifests
from cairn.state.filesyntax import FileNode
from cairn.state.manifest import Manifest, Spot
from cairn.state.nodes import FileRefs, Gone
from cairn.state.nodes import Link as FileLink
from cairn.state.opened import Opened
from cairn.state.parts import Part, Parts
from cairn.state.paths import Scalar
from cairn.state.place import Place
from cairn.state.reader import Reader, ReadTree, Seen, Watch
from cairn.state.syntax import Body, Link, Long, Steps, Tensor

__all__ = ["Entry", "Node", "Seen", "has", "leaves", "read_manifest", "walk"]

_LOST = object()
_EMPTY: dict[str, Callable[[], object]] = {
    "dict": dict,
    "OrderedDict": dict,
    "Counter": dict,
    "list": list,
    "tuple": tuple,
    "folder": dict,
}


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
    of the same component; "file", whose `value` says how it is stored; "link", whose `value` is its text; "dropped", an
    entry of a folder that is no longer kept, whose `value` is the part that was dropped; or "value".
    A tensor with a `tie` is the memory of a tensor of an earlier component; if that component is not listed, `tie` has
    steps where it would have keys. A value has its `value`, an empty container included; that of a long str or bytes
    is None and stands in `blobs`. A numpy scalar, as value or in a path, is a `Scalar`. `within` says what the
    containers around it are.
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


def walk(
    manifest_ref: BlobRef,
    read_tree: ReadTree,
    skip: Collection[str] = (),
    *,
    seen: Seen | None = None,
    damaged: Callable[[str, Damaged], None] | None = None,
) -> Iterator[Node]:
    """Every blob a commit needs, the manifest first, without the parts in `skip`; one used twice comes twice.

    `read_tree` returns hash-checked bytes. Trees in `seen`, kept between the walks over many commits, come without
    what is below them; those walked to their end are added, but none of a component of which files are left out: a
    walk that needs these files must not pass over it. Raises Damaged for trees that cannot be read or say
    what no tree says. With `damaged`, that is told the path and the error instead, and the walk goes on beside the
    tree, which comes like any other; only damage to the manifest is still raised.
    """
    watch = Watch(seen, damaged)
    without = Parts(skip)
    reader = Reader(read_tree, watch, without)
    yield Node("manifest", manifest_ref, True)
    manifest = manifests.read(manifest_ref, reader)
    yield from [Node("manifest", ref, True) for _, ref in watch.met[1:]]
    watch.met.clear()
    for component, ref in manifest.components.items():
        if component not in without.components:
            yield from _walk_component(component, ref, reader, watch, without.patterns(component))


def _walk_component(
    component: str, ref: BlobRef, reader: Reader, watch: Watch, patterns: Collection[str]
) -> Iterator[Node]:
    # Without the same files it is the same again; with them it is another.
    known = (ref.id, f"value without {sorted(patterns)}" if patterns else "value")
    if watch.seen is not None and ((ref.id, "value") in watch.seen or known in watch.seen):
        yield Node(component, ref, True)
        return
    watch.is_whole = not patterns
    losses = watch.losses
    try:
        for place, node, _ in _scan(reader, *reader.root(ref, component), watch):
            yield from _trees(watch)
            if isinstance(node, Tensor | Long | FileRefs):
                for blob in node.blobs:
                    yield Node(place.path, blob, False)
    except Damaged as error:
        yield from _trees(watch)
        watch.lose(Place(component, (), (), ref.id), error)
    yield from _trees(watch)
    if watch.seen is not None and watch.losses == losses:
        watch.seen[known] = 1


def _trees(watch: Watch) -> list[Node]:
    """The trees met since the last call."""
    nodes = [Node(place.path, ref, True) for place, ref in watch.met]
    watch.met.clear()
    return nodes


def has(manifest_ref: BlobRef, read_tree: ReadTree, part: Part) -> bool:
    """Whether a commit has a part: the component and, where there is a pattern, anything that it names."""
    reader = Reader(read_tree, None, Parts([str(part)]))
    component = manifests.read(manifest_ref, reader).components.get(part.component)
    if component is None or part.pattern is None:
        return component is not None
    pending: list[tuple[Place, object]] = [reader.root(component, part.component)]
    while pending:
        place, raw = pending.pop()
        node = place.parse(raw)
        if isinstance(node, Gone):
            return True
        if isinstance(node, Body) and node.kind == "folder":
            pending += [
                (place.child(step, key, tree), inner) for step, key, inner, tree in reader.open(node, place).entries()
            ]
    return False


def leaves(
    manifest_ref: BlobRef, read_tree: ReadTree, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Iterator[Entry]:
    """The values of a commit in the order of the state, or of the components in `only`. Raises Damaged.

    Files that were dropped, as `without` says, come as what they were, without blobs.
    """
    reader = Reader(read_tree, None, Parts(without))
    manifest = manifests.read(manifest_ref, reader)
    ties = {tie.at: tie.of for tie in manifest.ties}
    targets: dict[Spot, tuple[object, ...]] = {spot: (spot.component, *spot.steps) for spot in ties.values()}
    for component, ref in manifest.components.items():
        if only is not None and component not in only:
            continue
        tensors: dict[Steps, tuple[Tensor, tuple[object, ...]]] = {}
        for place, node, within in _scan(reader, *reader.root(ref, component)):
            path = (component, *place.keys)
            if isinstance(node, Tensor):
                if node.nbytes:
                    tensors[place.steps] = (node, path)
                spot = Spot(component, place.steps)
                if spot in targets:
                    targets[spot] = path
                tie = targets[ties[spot]] if spot in ties else None
                yield _tensor_entry("tensor", path, node, node.blobs, tie, within)
            elif isinstance(node, FileRefs):
                yield Entry(path, "file", None, None, node.size, node.blobs, node, None, within)
            elif isinstance(node, Gone):
                yield Entry(path, "dropped", None, None, node.size, (), node.part, None, within)
            elif isinstance(node, FileLink):
                yield Entry(path, "link", None, None, 0, (), node.target, None, within)
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


@dataclass(frozen=True, slots=True)
class _Frame:
    """A container whose entries are being walked."""

    opened: Opened
    place: Place
    entries: Iterator[tuple[str | int, object, object, str]]
    within: tuple[str, ...]
    losses: int


def _scan(
    reader: Reader, place: Place, raw: object, watch: Watch | None = None
) -> Iterator[tuple[Place, object, tuple[str, ...]]]:
    """Every node of a component, a container as Opened before its entries, with the containers around it."""
    stack: list[_Frame] = []
    pending: tuple[Place, object, tuple[str, ...]] | None = (place, raw, ())
    while pending is not None:
        here, raw, within = pending
        losses = 0 if watch is None else watch.losses
        node = _visit(reader, here, raw, watch)
        if node is not _LOST:
            yield here, node, within
        if isinstance(node, Opened):
            stack.append(_Frame(node, here, node.children(), (*within, node.kind), losses))
        pending = _next(stack, watch)


def _next(stack: list[_Frame], watch: Watch | None) -> tuple[Place, object, tuple[str, ...]] | None:
    while stack:
        frame = stack[-1]
        for step, key, raw, tree in frame.entries:
            return frame.place.child(step, key, tree), raw, frame.within
        stack.pop()
        if watch is not None and watch.losses == frame.losses and frame.opened.in_parts:
            _note_seen(watch, frame.opened)
    return None


def _note_seen(watch: Watch, opened: Opened) -> None:
    """Note the parts of a container that was walked to its end."""
    if watch.seen is not None and watch.is_whole:
        watch.seen.update({(run.tree, opened.shape): len(run.raw) for run in opened.runs})


def _visit(reader: Reader, place: Place, raw: object, watch: Watch | None) -> object:
    try:
        node = place.parse(raw)
        if isinstance(node, FileNode):
            return reader.file(node, place)
        return reader.open(node, place) if isinstance(node, Body) else node
    except Damaged as error:
        if watch is None:
            raise
        watch.lose(place, error)
        return _LOST
