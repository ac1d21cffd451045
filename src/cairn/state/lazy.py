"""A commit as a mapping that reads and checks a value when it is touched.

Dicts give mappings as lazy as the first; everything else is decoded whole on touch. Arrays are read-only views, torch's
and jax's fresh copies. A memory has one array or tensor as long as somebody holds it, however often and by whatever
name it is touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

from cairn.errors import Dropped
from cairn.ids import BlobRef
from cairn.state import manifest as manifests
from cairn.state.decode import Decoder, load
from cairn.state.make import Live, live_key
from cairn.state.manifest import Manifest, Spot
from cairn.state.opened import Opened
from cairn.state.parts import Parts
from cairn.state.place import Place
from cairn.state.reader import Reader
from cairn.state.source import Source
from cairn.state.syntax import Body, Link, Steps, Tensor

__all__ = ["LazyMapping", "LazyState"]


class LazyState(Mapping[str, object]):
    """The components of a commit by name; only the manifest is read at first."""

    def __init__(
        self, manifest_ref: BlobRef, source: Source, dropped: Collection[str] = (), *, as_numpy: bool = False
    ) -> None:
        """Open a commit, without the components of which anything was dropped. Raises Damaged for its manifest."""
        self._ref = manifest_ref
        self._source = source
        self._as_numpy = as_numpy
        self._pool = Pool(manifest_ref, source, as_numpy=as_numpy)
        self._dropped = {part.partition(":")[0]: part for part in dropped}
        self._names = [name for name in self._pool.manifest.components if name not in self._dropped]

    def __getitem__(self, name: str) -> object:
        if name not in self._pool.manifest.components:
            raise KeyError(name)
        if name in self._dropped:
            raise Dropped(f"component {name!r}: {self._dropped[name]} was dropped: it is no longer kept")
        return self._pool.touch(*self._pool.root(name))

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def load(self, *, copy: bool = False) -> dict[str, object]:
        """Read everything, as `cairn.state.decode.load` does. Raises Damaged."""
        return load(self._ref, self._source, self._names, copy, as_numpy=self._as_numpy)


class LazyMapping(Mapping[object, object]):
    """A dict, OrderedDict or Counter of a commit; its keys are known, its values are read when touched."""

    def __init__(self, pool: Pool, opened: Opened, place: Place) -> None:
        """Stand for a container that the pool opened."""
        self._pool = pool
        self._opened = opened
        self._place = place
        self._entries: dict[object, tuple[Place, Any]] = {}
        for step, key, raw, tree in opened.entries():
            here = place.child(step, key, tree)
            self._entries[live_key(key, here)] = (here, raw)
        if len(self._entries) != len(opened):
            place.refuse("expected keys that differ, found two that are equal")

    def __getitem__(self, key: object) -> object:
        place, raw = self._entries[key]
        return self._pool.touch(place, raw)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[object]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def _metadata(self) -> object:
        """The attribute that torch's state_dict() gives its OrderedDict and load_state_dict() looks for."""
        if not self._opened.metadata:
            raise AttributeError("_metadata")
        self._pool.reader.restart()
        return self._pool.decoder.metadata(self._opened, self._place)

    def load(self) -> object:
        """Read everything in it, as a container of the type it had. Raises Damaged."""
        self._pool.reader.restart()
        return self._pool.decoder.container(self._opened, self._place)

    def __repr__(self) -> str:
        return f"<lazy {self._opened.kind} {self._place.path} of {len(self)}>"


class Pool:
    """What the lazy mappings of a commit share: its trees as far as they were read, and the arrays in use."""

    def __init__(
        self, manifest_ref: BlobRef, source: Source, *, as_numpy: bool = False, without: Collection[str] = ()
    ) -> None:
        """Read the manifest. Raises Damaged."""
        self.reader = Reader(source.tree, None, Parts(without))
        self.manifest: Manifest = manifests.read(manifest_ref, self.reader)
        self.decoder = Decoder(self.reader, source, self)
        self._source = source
        self._make = Live(as_numpy=as_numpy)
        self._of = {tie.at: tie.of for tie in self.manifest.ties}
        self._roots: dict[str, tuple[Place, Any]] = {}
        self._opened: dict[Spot, Opened] = {}
        self._nodes: dict[Spot, Tensor] = {}
        self._arrays: WeakValueDictionary[Spot, Any] = WeakValueDictionary()

    def root(self, component: str) -> tuple[Place, Any]:
        """The place and the node of a component. Raises Damaged."""
        if component not in self._roots:
            self._roots[component] = self.reader.root(self.manifest.components[component], component)
        return self._roots[component]

    def touch(self, place: Place, raw: Any) -> object:
        """What a node gives: a lazy mapping for a dict, else its value. Raises Damaged."""
        self.reader.restart()
        node = place.parse(raw)
        if isinstance(node, Body) and node.shape != "items":
            return LazyMapping(self, self.open(node, place), place)
        return self.decoder.value(raw, place)

    def tensor(self, node: Tensor, place: Place) -> Any:
        """The array or tensor of a node, the same as long as it is held. Raises Damaged."""
        spot = Spot(place.component, place.steps)
        spot = self._of.get(spot, spot)
        if self._nodes.setdefault(spot, node) != node:
            place.refuse("expected the tensors of a tie to be the same, found two that differ")
        made = self._arrays.get(spot)
        if made is None:
            made = self._source.fetched(lambda fetch: self._make(node, fetch, place))
            self._arrays[spot] = made
        return made

    def tied(self, node: Link, place: Place) -> Any:
        """The array or tensor that a tie leads to. Raises Damaged."""
        target = self.find(place.component, node.steps)
        if target is None or not isinstance(target[1], Tensor) or not target[1].nbytes:
            place.refuse(f"expected a tie to an earlier tensor, found the steps {list(node.steps)}")
        return self.tensor(target[1], target[0])

    def find(self, component: str, steps: Steps) -> tuple[Place, object] | None:
        """The place that steps lead to and the node there, or None. Raises Damaged."""
        place, raw = self.root(component)
        node = place.parse(raw)
        for step in steps:
            if not isinstance(node, Body):
                return None
            found = self.open(node, place).entry(step)
            if found is None:
                return None
            key, raw, tree = found
            place = place.child(step, key, tree)
            node = place.parse(raw)
        return place, node

    def open(self, body: Body, place: Place) -> Opened:
        """Gather the entries of a container, once. Raises Damaged."""
        spot = Spot(place.component, place.steps)
        if spot not in self._opened:
            self._opened[spot] = self.reader.open(body, place)
        return self._opened[spot]
