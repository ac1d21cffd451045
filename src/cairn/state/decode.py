"""Trees back to a live state: plain containers, tensors, and one tensor wherever the state had one memory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from cairn.errors import NotFound, UsageError
from cairn.ids import BlobRef
from cairn.state import manifest as manifests
from cairn.state.filesyntax import FileNode
from cairn.state.make import Live, Make, data_of, scalar
from cairn.state.manifest import Manifest, Spot, Tie
from cairn.state.nodes import Folder
from cairn.state.opened import Opened
from cairn.state.parts import Parts
from cairn.state.paths import Scalar
from cairn.state.place import Place
from cairn.state.reader import Reader
from cairn.state.stored import StoredFile
from cairn.state.syntax import Body, Link, Long, Steps, Tensor
from cairn.state.trees import METADATA, stands_for_itself

__all__ = ["Manifest", "Source", "Tie", "load", "read_manifest"]


class Source(Protocol):
    """Where blobs come from; every byte it returns was checked against its id."""

    def tree(self, ref: BlobRef) -> bytes:
        """The bytes of a tree. Raises Damaged."""
        ...

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        """The bytes of the pieces one after the other, read-only. Raises Damaged."""
        ...


def read_manifest(ref: BlobRef, source: Source) -> Manifest:
    """Read a manifest. Raises Damaged."""
    return manifests.read(ref, Reader(source.tree))


def load(
    manifest_ref: BlobRef,
    source: Source,
    only: Collection[str] | None,
    copy: bool = False,
    *,
    as_numpy: bool = False,
    make: Make | None = None,
    without: Collection[str] = (),
) -> dict[str, object]:
    """Load a state, or the components in `only`, in the order it had; arrays are read-only views unless `copy`.

    With `as_numpy` torch's and jax's are numpy's, too; `make` makes something else of every tensor. In folders, what
    was dropped, as `without` says, is Gone. Raises NotFound for a component that is not there, and Damaged.
    """
    reader = Reader(source.tree, None, Parts(without))
    manifest = manifests.read(manifest_ref, reader)
    wanted = choose(manifest, only)
    tensors = _Known(source, manifest, make or Live(copy, as_numpy))
    state: dict[str, object] = {}
    for component in wanted:
        place, raw = reader.root(manifest.components[component], component)
        state[component] = Decoder(reader, source, tensors).value(raw, place)
        tensors.check_ties(place)
    return state


def choose(manifest: Manifest, only: Collection[str] | None) -> list[str]:
    """The components to load, in the order of the state. Raises NotFound."""
    if only is None:
        return list(manifest.components)
    if isinstance(only, str):
        raise UsageError(f"only: expected a set of component names, found the str {only!r}; write {{{only!r}}}")
    for name in only:
        if name not in manifest.components:
            raise NotFound(f"component {name!r}: expected one of {', '.join(manifest.components)}; none has this name")
    return [name for name in manifest.components if name in only]


class Tensors(Protocol):
    """Gives what a tensor is loaded as, one and the same for one memory."""

    def tensor(self, node: Tensor, place: Place) -> Any:
        """What the tensor at a place is loaded as."""
        ...

    def tied(self, node: Link, place: Place) -> Any:
        """What the tensor that a tie leads to is loaded as."""
        ...


class Decoder:
    """Builds values from the nodes of a tree."""

    def __init__(self, reader: Reader, source: Source, tensors: Tensors) -> None:
        """Read trees with `reader`, long strings from `source`, tensors from `tensors`."""
        self._reader = reader
        self._source = source
        self._tensors = tensors

    def value(self, raw: Any, place: Place) -> object:
        """Build the value of a node. Raises Damaged."""
        node = place.parse(raw)
        if isinstance(node, Tensor):
            return self._tensors.tensor(node, place)
        if isinstance(node, Body):
            return self.container(self._reader.open(node, place), place)
        if isinstance(node, Link):
            return self._tensors.tied(node, place)
        if isinstance(node, Scalar):
            return scalar(node, place)
        if isinstance(node, FileNode):
            return StoredFile(node.mode, self._reader.file(node, place), self._source, place.path)
        return self._long(node, place) if isinstance(node, Long) else node

    def container(self, opened: Opened, place: Place) -> object:
        """Build a container with all that is in it. Raises Damaged."""
        entries = opened.entries()
        if opened.shape == "items":
            items = [self.value(node, place.child(step, key, tree)) for step, key, node, tree in entries]
            return tuple(items) if opened.kind == "tuple" else items
        if opened.kind == "folder":
            return Folder(
                opened.mode,
                {
                    key: self.value(node, place.child(step, key, tree))
                    for step, key, node, tree in entries
                    if isinstance(key, str | bytes)  # All are: the names were checked.
                },
            )
        found: dict[Any, Any] = _MAPPINGS.get(opened.kind, dict)()
        for step, key, node, tree in entries:
            here = place.child(step, key, tree)
            found[live_key(key, here)] = self.value(node, here)
        if len(found) != len(opened):
            place.refuse("expected keys that differ, found two that are equal")
        if opened.metadata:
            vars(found)[METADATA] = self.metadata(opened, place)
        return found

    def metadata(self, opened: Opened, place: Place) -> object:
        """Build the attribute of an OrderedDict that has one. Raises Damaged."""
        step, key, node, tree = opened.attribute()
        return self.value(node, place.child(step, key, tree))

    def _long(self, node: Long, place: Place) -> str | bytes:
        data = bytes(data_of(node, self._source, place))
        if node.kind == "bytes":
            return data
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            place.refuse("expected UTF-8, found other bytes")
        if stands_for_itself(text):
            place.refuse("expected a text that cannot stand for itself, found one that can")
        return text


def live_key(key: object, place: Place) -> object:
    """The key of a mapping as Python has it: numpy scalars made, also inside tuples. Raises Damaged."""
    if isinstance(key, Scalar):
        made = scalar(key, place)
        try:
            hash(made)
        except (TypeError, ValueError):
            place.refuse(f"expected a key that can be hashed, found {key}")
        return made
    if type(key) is tuple:
        return tuple([live_key(item, place) for item in key])
    return key


_MAPPINGS: dict[str, type[dict[Any, Any]]] = {"OrderedDict": OrderedDict, "Counter": Counter}


class _Known:
    """The tensors of a state being loaded in order, so a tie always finds what it leads to."""

    def __init__(self, source: Source, manifest: Manifest, make: Make) -> None:
        self._source = source
        self._make = make
        self._component = ""
        self._here: dict[Steps, Any] = {}
        self._of = {tie.at: tie.of for tie in manifest.ties}
        self._missing = set(self._of) | set(self._of.values())
        self._shared: dict[Spot, tuple[Tensor, Any]] = {}

    def tensor(self, node: Tensor, place: Place) -> Any:
        if place.component != self._component:
            self._component, self._here = place.component, {}
        spot = Spot(place.component, place.steps)
        if spot not in self._missing:
            made = self._make(node, self._source, place)
        else:
            self._missing.discard(spot)
            made = self._memory(node, self._of.get(spot, spot), place)
        if node.nbytes:
            self._here[place.steps] = made
        return made

    def tied(self, node: Link, place: Place) -> Any:
        if place.component != self._component or node.steps not in self._here:
            place.refuse(f"expected a tie to an earlier tensor, found the steps {list(node.steps)}")
        return self._here[node.steps]

    def check_ties(self, place: Place) -> None:
        """Refuse ties of the manifest to what is no tensor of the component that was just loaded."""
        for spot in self._missing:
            if spot.component == place.component:
                place.refuse(f"expected the tensor of a tie of the manifest, found none at {list(spot.steps)}")

    def _memory(self, node: Tensor, root: Spot, place: Place) -> Any:
        known = self._shared.get(root)
        if known is None:
            known = self._shared[root] = (node, self._make(node, self._source, place))
        if known[0] != node or not node.nbytes:
            place.refuse("expected the tensors of a tie to be the same and not empty, found two that differ")
        return known[1]
