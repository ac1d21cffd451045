"""Where a node of a tree stands, so that every error can say it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

from cairn.errors import Damaged
from cairn.state import paths
from cairn.state.nodes import Gone
from cairn.state.syntax import Malformed, Steps, parse

T = TypeVar("T")


class Place(NamedTuple):
    """The component, the steps to the node, the keys that people read, and the id of the tree it is in."""

    component: str
    """Empty for the manifest."""
    steps: Steps
    keys: tuple[object, ...]
    tree: str

    def child(self, step: str | int, key: object, tree: str) -> Place:
        """The place of an entry."""
        steps = (*self.steps, step)
        keys = steps if self.keys is self.steps and key is step else (*self.keys, key)
        return Place(self.component, steps, keys, tree)

    @property
    def path(self) -> str:
        """The path for people."""
        return paths.readable(self.component, self.keys) if self.component else "the manifest"

    def parse(self, raw: Any) -> object:
        """Read the node that stands here. Raises Damaged."""
        if type(raw) is Gone:
            return raw
        try:
            return parse(raw)
        except Malformed as error:
            self.refuse(str(error))

    def checked(self, check: Callable[[], T]) -> T:
        """Do a check of what stands here; what it finds malformed becomes a Damaged."""
        try:
            return check()
        except Malformed as error:
            self.refuse(str(error))
        except RecursionError:
            self.refuse("expected less nesting, found more than can be followed from here")

    def refuse(self, reason: str) -> NoReturn:
        """Raise Damaged: what stands here is not what the format allows."""
        raise Damaged(
            f"tree {self.tree} at {self.path}: {reason}; it has the bytes its id names, so it was written wrongly "
            "or by a newer version: read it with a newer cairn, or drop the commit"
        )
