"""The manifest: which components a commit has, and which of their tensors are one memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from cairn.ids import BlobRef
from cairn.state.reader import Reader
from cairn.state.syntax import Body, Malformed, Steps, members, parse_ref, parse_steps
from cairn.state.trees import COMPONENT_NAME


class Spot(NamedTuple):
    """A place in a state: a component and the steps from its value."""

    component: str
    steps: Steps


@dataclass(frozen=True, slots=True)
class Tie:
    """The tensor at `at` is the memory of the one at `of`, which is in an earlier component."""

    at: Spot
    of: Spot


@dataclass(frozen=True, slots=True)
class Manifest:
    """The trees of the components, in the order of the state, and the ties between components."""

    components: dict[str, BlobRef]
    ties: tuple[Tie, ...]


def read(ref: BlobRef, reader: Reader) -> Manifest:
    """Read a manifest. Raises Damaged."""
    place, raw = reader.root(ref, "")
    named, listed = place.checked(lambda: members(raw, "components", "ties"))
    components = place.checked(lambda: _components(named))
    opened = reader.open(place.checked(lambda: _ties_body(listed)), place)
    order = {name: at for at, name in enumerate(components)}
    ties: list[Tie] = []
    seen: set[Spot] = set()
    roots: set[Spot] = set()
    for step, key, node, tree in opened.entries():
        tie = place.child(step, key, tree).checked(partial(_tie, node))
        later = order.get(tie.at.component, -1)
        if not -1 < order.get(tie.of.component, -1) < later or (ties and later < order[ties[-1].at.component]):
            place.refuse(f"expected ties from a component to an earlier one, in order, found {node!r:.90}")
        if tie.at in seen or tie.at in roots or tie.of in seen:
            place.refuse(f"expected ties to the first place of a memory, each once, found {node!r:.90}")
        seen.add(tie.at)
        roots.add(tie.of)
        ties.append(tie)
    return Manifest(components, tuple(ties))


def _components(raw: Any) -> dict[str, BlobRef]:
    if type(raw) is not dict:
        raise Malformed(f"expected components by name, found {raw!r:.60}")
    for name in raw:
        if COMPONENT_NAME.fullmatch(name) is None:
            raise Malformed(f"expected the name of a component, found {name!r:.60}")
    return {name: parse_ref(item) for name, item in raw.items()}


def _ties_body(raw: Any) -> Body:
    if type(raw) is list:
        return Body("list", "items", raw, False)
    return Body("list", "items", members(raw, "$list")[0], True)


def _tie(raw: Any) -> Tie:
    at, of = members(raw, "at", "of")
    return Tie(_spot(at), _spot(of))


def _spot(raw: Any) -> Spot:
    if type(raw) is list and len(raw) == 2 and type(raw[0]) is str:
        return Spot(raw[0], parse_steps(raw[1]))
    raise Malformed(f"expected a component and the steps inside it, found {raw!r:.60}")
