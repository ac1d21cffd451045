"""The tensors of a state while it is loaded: one for each memory that the state had."""

from __future__ import annotations

from typing import Any

from cairn.state.make import Make
from cairn.state.manifest import Manifest, Spot
from cairn.state.place import Place
from cairn.state.source import Fetch
from cairn.state.syntax import Link, Steps, Tensor


class Known:
    """The tensors of a state being loaded in order, so a tie always finds what it leads to."""

    def __init__(self, fetch: Fetch, manifest: Manifest, make: Make) -> None:
        """Make tensors with `make`, each once."""
        self._fetch = fetch
        self._make = make
        self._component = ""
        self._here: dict[Steps, Any] = {}
        self._of = {tie.at: tie.of for tie in manifest.ties}
        self._missing = set(self._of) | set(self._of.values())
        self._shared: dict[Spot, tuple[Tensor, Any]] = {}

    def tensor(self, node: Tensor, place: Place) -> Any:
        """Make the tensor at a place, or return the one whose memory it is. Raises Damaged."""
        if place.component != self._component:
            self._component, self._here = place.component, {}
        spot = Spot(place.component, place.steps)
        if spot not in self._missing:
            made = self._make(node, self._fetch, place)
        else:
            self._missing.discard(spot)
            made = self._memory(node, self._of.get(spot, spot), place)
        if node.nbytes:
            self._here[place.steps] = made
        return made

    def tied(self, node: Link, place: Place) -> Any:
        """Return the tensor that a tie leads to. Raises Damaged."""
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
            known = self._shared[root] = (node, self._make(node, self._fetch, place))
        if known[0] != node or not node.nbytes:
            place.refuse("expected the tensors of a tie to be the same and not empty, found two that differ")
        return known[1]
