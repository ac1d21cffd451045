"""What the kept commits need and the packs do not have: each such blob with the steps and paths that it hits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cairn.errors import Damaged
from cairn.history.commit import Commit
from cairn.ids import BlobRef, blob_id
from cairn.state.walk import Node, Seen, walk
from cairn.store.findings import MOST_STEPS, Finding, finding
from cairn.store.reach import Root
from cairn.store.sources import Good
from cairn.store.stock import Stock

_SHORT = 12


@dataclass
class Hit:
    """A blob that is needed and not to be had."""

    ref: BlobRef
    is_tree: bool
    commit: Commit
    """The first commit that needs it."""
    steps: list[str] = field(default_factory=list)


class _Unread(Damaged):
    """A tree of which there is no good copy; it is reported as a blob."""


class Needs:
    """One walk over all that is needed.

    Trees are hash-checked as they are read, and read once, however many commits share them; only those above something
    that is missing are read for each commit, to name every step that is hit.
    """

    def __init__(self, stock: Stock, found: Mapping[str, Good]) -> None:
        """Take blobs in `found` for being in place."""
        self._stock, self._found = stock, found
        self._seen: Seen = {}
        self.hits: dict[BlobRef, Hit] = {}
        self.findings: list[Finding] = []
        """Trees whose hash is right and whose text is none: no cairn wrote them."""

    def walk(self, roots: Iterable[Root]) -> Needs:
        """Look at everything that these commits need."""
        for root in roots:
            before = len(self._seen)
            if self._walk_one(root):
                while len(self._seen) > before:
                    self._seen.popitem()
        return self

    def _walk_one(self, root: Root) -> bool:
        """Look at one commit; say whether a later one that shares its trees should look at them again."""
        again = False
        for node in self._nodes(root):
            if node.ref.id not in self._found and next(self._stock.good(node.ref), None) is None:
                hit = self.hits.setdefault(node.ref, Hit(node.ref, node.is_tree, root.commit))
                if len(hit.steps) < MOST_STEPS:
                    hit.steps.append(f"{root.commit.run} {step_of(root.commit)} {node.path}")
                    again = True
        return again

    def _nodes(self, root: Root) -> Iterator[Node]:
        """The nodes of a commit, each when the walk has gone on: a tree has been read by then."""

        def damaged(path: str, error: Damaged) -> None:
            if not isinstance(error, _Unread):
                what, expected = f"{root.commit} {path}", "trees as the format spells them"
                self.findings.append(finding("tree", what, "packs", expected, str(error)))

        last: Node | None = None
        try:
            for node in walk(root.commit.root, self._tree, root.skip, seen=self._seen, damaged=damaged):
                if last is not None:
                    yield last
                last = node
        except Damaged as error:
            damaged("manifest", error)
        if last is not None:
            yield last

    def _tree(self, ref: BlobRef) -> bytes:
        data = self._stock.prove(ref, self._stock.good(ref))
        if data is None and ref.id in self._found:
            data = bytes(self._found[ref.id].fetch() or b"")
        if data is None or blob_id(data) != ref.id:
            raise _Unread(f"tree {ref.id}")
        return data


def step_of(commit: Commit) -> str:
    """The words for a commit within its run."""
    return f"commit {commit.id[:_SHORT]}" if commit.step is None else f"step {commit.step}"


def way_out(commit: Commit, tips: Iterable[str]) -> str:
    """Say how to give up what a commit needs."""
    drop = f"`cairn drop {commit.id[:_SHORT]}` gives the step up"
    if commit.id in tips:
        return f"`cairn rewind {commit.run}~1` goes back to the step before, and then {drop}"
    return f"else {drop}"
