"""A container of a tree with its entries at hand, whether they stood in one tree or in many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cairn import canonical
from cairn.state.filesyntax import check_names
from cairn.state.paths import Attribute
from cairn.state.syntax import Malformed, parse_key
from cairn.state.trees import METADATA, SPLIT_BYTES, is_plain_key

_SURELY_SHORT = SPLIT_BYTES // 8
"""Characters that cannot become `SPLIT_BYTES` bytes of JSON."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive entries in one tree: a list of items or pairs, or a dict of fields."""

    tree: str
    start: int
    raw: Any


@dataclass(frozen=True, slots=True)
class Opened:
    """A container: its type, how its entries are spelled, and the entries."""

    kind: str
    shape: str
    runs: tuple[Run, ...]
    in_parts: bool = False
    """Whether each run is a tree of its own."""
    partial: bool = False
    """Whether some parts were left out: seen before or damaged."""
    mode: int = 0
    """The permission bits of a folder."""
    metadata: tuple[tuple[Any, str], ...] = ()
    """The node of an OrderedDict's attribute `_metadata`, if it has one, and the tree it stands in."""

    def children(self) -> Iterator[tuple[str | int, object, Any, str]]:
        """The entries, then the attribute in the same form."""
        yield from self.entries()
        if self.metadata:
            yield self.attribute()

    def attribute(self) -> tuple[str | int, object, Any, str]:
        """The attribute `_metadata` in the form of an entry, where there is one."""
        ((node, tree),) = self.metadata
        return METADATA, Attribute(METADATA), node, tree

    def entries(self) -> Iterator[tuple[str | int, object, Any, str]]:
        """Each entry as its step, its key, its node and the tree it stands in."""
        for run in self.runs:
            if self.shape == "fields":
                for key, node in run.raw.items():
                    yield key, key, node, run.tree
            elif self.shape == "items":
                for place, node in enumerate(run.raw, run.start):
                    yield place, place, node, run.tree
            else:
                for place, (key, node) in enumerate(run.raw, run.start):
                    yield place, parse_key(key), node, run.tree

    def entry(self, step: str | int) -> tuple[object, Any, str] | None:
        """The entry or attribute at a step as its key, its node and the tree it stands in."""
        if self.shape == "pairs" and step == METADATA:
            return self.attribute()[1:] if self.metadata else None
        for run in self.runs:
            if self.shape == "fields":
                if step in run.raw:
                    return step, run.raw[step], run.tree
            elif isinstance(step, int) and run.start <= step < run.start + len(run.raw):
                node = run.raw[step - run.start]
                return (step, node, run.tree) if self.shape == "items" else (parse_key(node[0]), node[1], run.tree)
        return None

    def __len__(self) -> int:
        return sum(len(run.raw) for run in self.runs)

    def check_keys(self) -> None:
        """Raise Malformed for keys that the encoder would have spelled otherwise, or that occur twice."""
        if self.shape == "fields":
            self._check_fields()
        elif self.shape == "pairs":
            self._check_pairs()
        if self.kind == "folder":
            check_names([key for _, key, _, _ in self.entries()])

    def _check_fields(self) -> None:
        seen: set[str] = set()
        for run in self.runs:
            for key in run.raw:
                if not is_plain_key(key):
                    raise Malformed(f"expected short keys without $ in front, found {key!r:.60}")
            if not seen.isdisjoint(run.raw):
                raise Malformed("expected every key once, found one in several parts")
            seen.update(run.raw)

    def _check_pairs(self) -> None:
        spelled: set[object] = set()
        plain = self.kind in ("dict", "folder") and not self.partial
        for run in self.runs:
            for pair in run.raw:
                if type(pair) is not list or len(pair) != 2:
                    raise Malformed(f"expected a pair of key and value, found {pair!r:.60}")
                key = parse_key(pair[0])
                plain = plain and is_plain_key(key)
                spelled.add(key if type(key) is str and len(key) < _SURELY_SHORT else _key_text(pair[0]))
        if len(spelled) != len(self):
            raise Malformed("expected every key once, found one again")
        if plain:
            raise Malformed("expected a dict with plain keys to stand for itself, found it as pairs")


def _key_text(raw: Any) -> bytes:
    text = canonical.encode(raw)
    if len(text) > SPLIT_BYTES:
        raise Malformed(f"expected keys of up to {SPLIT_BYTES} bytes, found one of {len(text)}")
    return text
