"""du: what commits weigh, what they share, and what dropping one would free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cairn.history.commit import Commit
from cairn.store.core import Core
from cairn.store.gc import pack_bytes
from cairn.store.reach import blobs_of, roots


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
    """What dropping it would free once its packs were rewritten, too."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What commits and the whole store weigh, in bytes."""

    commits: tuple[CommitUsage, ...]
    raw: int
    """The sum over all kept commits as if each stood alone."""
    needed: int
    """Each blob that some kept commit needs, once."""
    stored: int
    """All packs, headers and unneeded blobs included."""


def measure(core: Core, commits: Iterable[Commit] | None) -> Usage:
    """Measure the commits asked for, or all that are kept, newest first."""
    kept: dict[str, Commit] = {}
    needs: dict[str, dict[str, int]] = {}
    for root in roots(core.journal):
        if root.commit.id not in needs:
            kept[root.commit.id] = root.commit
            needs[root.commit.id] = {ref.id: ref.size for ref in blobs_of(core, root.commit.root, root.skip)}
    users: dict[str, list[str]] = {}
    for commit_id, blobs in needs.items():
        for blob in blobs:
            users.setdefault(blob, []).append(commit_id)
    freed = _freed(core, users)
    asked = sorted(kept.values(), key=lambda commit: commit.time, reverse=True) if commits is None else list(commits)
    rows = []
    for commit in asked:
        blobs = needs.get(commit.id, {})
        raw = sum(blobs.values())
        own = sum(size for blob, size in blobs.items() if users[blob] == [commit.id])
        rows.append(CommitUsage(commit, raw, own, raw - own, freed.get(commit.id, 0), own))
    sizes = {blob: size for blobs in needs.values() for blob, size in blobs.items()}
    return Usage(tuple(rows), sum(map(_total, needs.values())), sum(sizes.values()), pack_bytes(core))


def _freed(core: Core, users: dict[str, list[str]]) -> dict[str, int]:
    """Bytes of the packs that only one commit needs, by commit."""
    freed: dict[str, int] = {}
    for _, header in core.blobs.headers():
        if isinstance(header, Exception):
            continue
        needing = {commit_id for blob in header.places for commit_id in users.get(blob, ())}
        if len(needing) == 1:
            commit_id = needing.pop()
            freed[commit_id] = freed.get(commit_id, 0) + header.size
    return freed


def _total(blobs: dict[str, int]) -> int:
    return sum(blobs.values())
