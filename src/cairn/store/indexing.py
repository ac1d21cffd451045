"""Filling the index from packs and entries: what is new after each commit, or everything anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cairn.errors import Damaged
from cairn.history.commit import Commit
from cairn.history.run import Run
from cairn.ids import is_id
from cairn.io.log import Entry, Log
from cairn.objects.pack import Header
from cairn.objects.reader import read_header
from cairn.state.walk import read_manifest
from cairn.store.core import Core


def catch_up(core: Core) -> None:
    """Enter what entries say that the index has not seen: packs, so that no blob is written again, and commits."""
    core.blobs.fill_index()
    positions = core.index.positions()
    runs = core.journal.runs()
    logs = [("run", name, run.log) for name, run in runs.items()]
    logs += [("tag", name, log) for name, log in core.journal.tag_logs().items()]
    packs: set[str] = set()
    rows: list[dict[str, Any]] = []
    for kind, name, log in logs:
        new = _entries_after(log, *positions.get((kind, name), (0, "")))
        if not new:
            continue
        packs.update(pack for entry in new for pack in _named_packs(entry))
        rows.append(_position(kind, name, log))
        if kind == "run":
            _enter_new(core, runs[name], new)
    enter_packs(core, core.index.lacks(packs))
    core.index.insert("logs", rows)


def rebuild(core: Core) -> int:
    """Empty the index and fill it; return the number of packs."""
    core.index.clear()
    core.blobs.fill_index()
    catch_up(core)
    return core.index.count_packs()


def _named_packs(entry: Entry) -> list[str]:
    """The packs that an entry names; what makes no sense names none."""
    packs = entry.document.get("packs")
    return [pack for pack in packs if is_id(pack)] if isinstance(packs, list) else []


def enter_packs(core: Core, pack_ids: Iterable[str]) -> None:
    """Enter packs; those that are gone or unreadable are left out."""
    headers: list[Header] = []
    for pack_id in pack_ids:
        try:
            headers.append(read_header(core.disk, core.layout.pack(pack_id), pack_id))
        except (Damaged, OSError):
            continue
    core.index.add_packs(headers)


def _enter_new(core: Core, run: Run, entries: list[Entry]) -> None:
    """Enter the commits that entries brought; all of the run's when something else happened to it."""
    commits = list(run.state.commits.values()) if run.exists else []
    if all(entry.document.get("op") == "commit" for entry in entries):
        seqs = {entry.seq for entry in entries}
        fresh = {move.commit for move in run.moves if move.seq in seqs}
        commits = [commit for commit in commits if commit.id in fresh]
    enter_commits(core, run, commits)


def _entries_after(log: Log, seq: int, seal: str) -> list[Entry]:
    """The entries that the index has not seen; all of them when it saw another log."""
    if seq and any(entry.seq == seq and entry.seal == seal for entry in log.entries):
        return [entry for entry in log.entries if entry.seq > seq]
    return log.entries


def _position(kind: str, name: str, log: Log) -> dict[str, Any]:
    return {"kind": kind, "name": name, "seq": log.entries[-1].seq, "seal": log.entries[-1].seal}


def enter_commits(core: Core, run: Run, commits: list[Commit]) -> None:
    """Enter commits in the tables that a person would query."""
    numbers = {move.commit: move.seq for move in run.moves if move.op in ("commit", "create")}
    core.index.insert("commits", [_row(commit, numbers.get(commit.id)) for commit in commits])
    core.index.insert(
        "metrics",
        [
            {"commit": commit.id, "name": name, "value": float(value)}
            for commit in commits
            for name, value in commit.metrics.items()
        ],
    )
    core.index.insert("components", [row for commit in commits for row in _components(core, commit)])


def _row(commit: Commit, seq: int | None) -> dict[str, Any]:
    return {
        "id": commit.id,
        "run": commit.run,
        "seq": seq,
        "step": commit.step,
        "epoch": commit.epoch,
        "time": commit.time,
        "message": commit.message,
        "manifest": commit.manifest,
        "dropped": int(commit.is_dropped),
    }


def _components(core: Core, commit: Commit) -> list[dict[str, Any]]:
    try:
        components = read_manifest(commit.root, core.tree).components
    except Damaged:
        return []  # Dropped and freed, or damaged: verify tells which.
    return [{"commit": commit.id, "name": name, "tree": ref.id, "bytes": ref.size} for name, ref in components.items()]
