"""Trees back to a live state: plain containers, tensors, and one tensor wherever the state had one memory."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from cairn.errors import NotFound, UsageError
from cairn.ids import BlobRef
from cairn.state import manifest as manifests
from cairn.state.filesyntax import FileNode
from cairn.state.into import Filling
from cairn.state.known import Known
from cairn.state.make import Live, Make, data_of, live_key, scalar
from cairn.state.manifest import Manifest, Tie
from cairn.state.nodes import Folder
from cairn.state.opened import Opened
from cairn.state.parts import Parts
from cairn.state.paths import Scalar
from cairn.state.place import Place
from cairn.state.reader import Reader
from cairn.state.source import Fetch, Source
from cairn.state.stored import StoredFile
from cairn.state.syntax import Body, Link, Long, Tensor
from cairn.state.trees import METADATA, stands_for_itself

__all__ = ["Manifest", "Source", "Tie", "load", "read_manifest"]


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
    into: Mapping[str, object] | None = None,
    threads: int | None = None,
) -> dict[str, object]:
    """Load a state, or the components in `only`, in the order it had; arrays are read-only views unless `copy`.

    With `as_numpy` torch's and jax's are numpy's, too; `make` makes something else of every tensor; those of `into` are
    filled instead. In folders, what was dropped, as `without` says, is Gone. Raises NotFound for a component that is
    not there, UsageError where `into` does not fit, and Damaged.
    """
    reader = Reader(source.tree, None, Parts(without))
    manifest = manifests.read(manifest_ref, reader)
    wanted = choose(manifest, only)

    def build(fetch: Fetch) -> dict[str, object]:
        reader.restart()
        tensors: Known | Filling
        if into is None:
            tensors = Known(fetch, manifest, make or Live(copy, as_numpy))
        else:
            tensors = Filling(into, only, fetch, manifest)
        state: dict[str, object] = {}
        for component in wanted:
            place, raw = reader.root(manifest.components[component], component)
            state[component] = Decoder(reader, source, tensors).value(raw, place)
            tensors.check_ties(place)
        if isinstance(tensors, Filling):
            tensors.check()
        return state

    return source.fetched(build, threads)


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


_MAPPINGS: dict[str, type[dict[Any, Any]]] = {"OrderedDict": OrderedDict, "Counter": Counter}
