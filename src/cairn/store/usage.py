"""du: what commits weigh, what they share, and what dropping one would free.

One walk over what is kept besides the commits that were asked for, which reads each tree once, then one over each of
those. What is known of a blob stands in columns beside the catalogue's; nothing is held for a commit but its numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from cairn.history.commit import Commit
from cairn.ids import BlobRef
from cairn.state.walk import Seen, walk
from cairn.store.core import Core
from cairn.store.gc import pack_bytes
from cairn.store.reach import Root, read_tree, roots, take_stock

_NOBODY, _SEVERAL, _ELSEWHERE = 0, -1, -2
"""Whose a blob is, where that is not one commit or component with a number."""


@dataclass(frozen=True, slots=True)
class CommitUsage:
    """What one commit weighs, in bytes."""

    commit: Commit
    raw: int
    """All its blobs, shared or not."""
    own: int
    """Blobs that no other kept commit needs."""
    shared: int
    freed_now: int
    """Packs that gc would delete if only this commit were dropped."""
    freed_compacted: int
    """What dropping it would free once its packs were rewritten, too: second copies go with or without the drop."""


@dataclass(frozen=True, slots=True)
class ComponentUsage:
    """What the components of one name weigh in the commits that were measured, in bytes; `manifest` is their roots."""

    name: str
    raw: int
    """The sum over the commits as if each stood alone."""
    own: int
    """Blobs that neither another component nor any other kept commit needs, each once."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What commits weigh, in bytes, and all packs of the store."""

    commits: tuple[CommitUsage, ...]
    components: tuple[ComponentUsage, ...]
    raw: int
    """The sum over these commits as if each stood alone."""
    needed: int
    """Each blob that one of them needs, once."""
    stored: int
    """All packs, headers and unneeded blobs included."""


def measure(core: Core, commits: Iterable[Commit] | None) -> Usage:
    """Measure the commits asked for, or all that are kept, newest first."""
    tally = _Tally(core)
    asked = None if commits is None else {commit.id: commit for commit in commits}
    kept: dict[str, tuple[Commit, set[str]]] = {}
    seen: Seen = {}
    for root in roots(core.entries()):
        commit = root.commit
        if asked is None or commit.id in asked:
            # What is kept twice needs what either needs.
            kept[commit.id] = (
                commit,
                set(root.skip).intersection(kept[commit.id][1] if commit.id in kept else root.skip),
            )
        else:
            tally.elsewhere(root, seen)
    if asked is None:
        newest = sorted(kept.values(), key=lambda item: item[0].time, reverse=True)
        asked = {commit.id: commit for commit, _ in newest}
    found = [commit for commit in asked.values() if commit.id in kept]
    raws = [tally.count(*kept[commit.id]) for commit in found]
    weights = {commit.id: each for commit, *each in zip(found, raws, tally.own(), tally.freed(), strict=True)}
    rows = []
    for commit in asked.values():
        raw, own, freed = weights.get(commit.id, (0, 0, 0))
        rows.append(CommitUsage(commit, raw, own, raw - own, freed, own))
    return Usage(tuple(rows), tally.components(), sum(raws), tally.needed(), pack_bytes(core))


class _Tally:
    """Whose each blob is. Commits and components have numbers from 1, in the order in which they came."""

    def __init__(self, core: Core) -> None:
        self._catalogue = take_stock(core)
        self._read_tree = partial(read_tree, core, self._catalogue)
        self._lost: dict[str, int] = {}
        self._sizes = array("Q", self._catalogue.lengths)
        self._commit = array("i", bytes(4 * len(self._sizes)))
        """Of each blob, the only commit that needs it."""
        self._component = self._commit[:]
        """Of each blob, the only component that needs it."""
        self._counted = self._commit[:]
        """Of each blob, the last commit that it was counted for."""
        self._counted_in = self._commit[:]
        """Of each blob, the last component of a commit that it was counted for."""
        self._commits = self._parts = 0
        self._raws: dict[str, int] = {}

    def elsewhere(self, root: Root, seen: Seen) -> None:
        """Count what a commit needs that is not measured."""
        for node in walk(root.commit.root, self._read_tree, root.skip, seen=seen):
            self._commit[self._number(node.ref)] = _ELSEWHERE

    def count(self, commit: Commit, skip: Collection[str]) -> int:
        """Count what a commit needs; return what that weighs."""
        self._commits += 1
        raw = component = 0
        name = ""
        for node in walk(commit.root, self._read_tree, skip):
            if node.path.partition("/")[0] != name:
                name = node.path.partition("/")[0]
                self._raws.setdefault(name, 0)
                component = list(self._raws).index(name) + 1
                self._parts += 1
            blob = self._number(node.ref)
            if self._counted[blob] != self._commits:
                self._counted[blob] = self._commits
                self._commit[blob] = _joined(self._commit[blob], self._commits)
                raw += node.ref.size
            if self._counted_in[blob] != self._parts:
                self._counted_in[blob] = self._parts
                self._component[blob] = _joined(self._component[blob], component)
                self._raws[name] += node.ref.size
        return raw

    def needed(self) -> int:
        """The bytes of all blobs that were counted, each once."""
        return sum(size for size, counted in zip(self._sizes, self._counted, strict=True) if counted)

    def own(self) -> list[int]:
        """Of each commit, the bytes of the blobs that are its alone."""
        owns = [0] * self._commits
        for size, commit in zip(self._sizes, self._commit, strict=True):
            if commit > _NOBODY:
                owns[commit - 1] += size
        return owns

    def components(self) -> tuple[ComponentUsage, ...]:
        """What the components weigh."""
        owns = [0] * len(self._raws)
        for size, component, commit in zip(self._sizes, self._component, self._commit, strict=True):
            if component > _NOBODY and commit != _ELSEWHERE:
                owns[component - 1] += size
        return tuple(ComponentUsage(name, raw, own) for (name, raw), own in zip(self._raws.items(), owns, strict=True))

    def freed(self) -> list[int]:
        """Of each commit, the bytes of the packs that only it needs."""
        freed = [0] * self._commits
        table = self._catalogue
        for pack, size in enumerate(table.sizes):
            users = {self._commit[table.blob_of[copy]] for copy in table.copies_in(pack)} - {_NOBODY}
            if len(users) == 1 and (commit := users.pop()) > _NOBODY:
                freed[commit - 1] += size
        return freed

    def _number(self, ref: BlobRef) -> int:
        """A blob's place in the columns; behind the catalogue's for what is in no pack."""
        number = self._catalogue.number(ref.id)
        if number is None:
            number = self._lost.get(ref.id)
        if number is None:
            number = self._lost[ref.id] = len(self._sizes)
            self._sizes.append(ref.size)
            for column in (self._commit, self._component, self._counted, self._counted_in):
                column.append(0)
        return number


def _joined(owner: int, also: int) -> int:
    """Whose a blob is that one more needs."""
    if owner in (_NOBODY, also):
        return also
    return owner if owner == _ELSEWHERE else _SEVERAL
