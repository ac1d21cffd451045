"""Filling the index from packs and entries: what is new after each commit, or everything anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from cairn.errors import Damaged
from cairn.history.commit import Commit, id_of
from cairn.history.run import Run
from cairn.ids import is_id
from cairn.io.entry import Entry
from cairn.io.log import Log
from cairn.objects.pack import Header
from cairn.state.walk import read_manifest
from cairn.store.core import Core

_T = TypeVar("_T")

_BATCH = 1000
"""Entries that are entered in one transaction."""


def catch_up(core: Core) -> None:
    """Enter what entries say that the index has not seen: packs, so that no blob is written again, and commits."""
    core.blobs.fill_index()
    positions = core.index.positions()
    runs = core.journal.runs()
    logs = [("run", name, run.log) for name, run in runs.items()]
    logs += [("tag", name, log) for name, log in core.journal.tag_logs().items()]
    for kind, name, log in logs:
        newest, position = log.newest, positions.get((kind, name), (0, ""))
        if newest is None or position == (newest.seq, newest.seal):
            continue
        new = log.entries(range(_begin(log, *position), newest.seq + 1), damaged=lambda error: None)
        is_whole = False
        for batch in _batches(new):
            packs = {pack for entry in batch for pack in _named_packs(entry)}
            enter_packs(core, core.index.lacks(packs))
            if kind == "run" and not is_whole:
                touched = _touched(batch)
                is_whole = touched is None
                _enter(core, runs[name], touched)
        core.index.insert("logs", [{"kind": kind, "name": name, "seq": newest.seq, "seal": newest.seal}])


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
            headers.append(core.blobs.header(pack_id))
        except (Damaged, OSError):
            continue
    core.index.add_packs(headers)


def _begin(log: Log, seq: int, seal: str) -> int:
    """The first entry that the index has not seen; 1 when it saw another log."""
    try:
        return seq + 1 if type(seq) is int and 0 < seq < log.last and log.entry(seq).seal == seal else 1
    except Damaged:
        return 1


def _touched(entries: Iterable[Entry]) -> set[str] | None:
    """The commits that entries brought or changed; None when it may be any of the run's."""
    touched: set[str] = set()
    for entry in entries:
        document = entry.document
        if document.get("op") == "commit":
            touched.add(id_of(document["commit"]))
        elif document.get("op") in ("drop", "undrop"):
            touched.update(filter(is_id, document.get("commits", ())))
        elif document.get("op") != "rewind":
            return None
    return touched


def _enter(core: Core, run: Run, touched: set[str] | None) -> None:
    """Enter commits of a run, all of them when it is not known which."""
    if not run.exists:
        return
    commits = run.state.commits
    rows: Iterable[int] = range(commits.begin, len(commits.rows))
    if touched is not None:
        rows = sorted(row for commit_id in touched if (row := commits.row_of(commit_id)) is not None)
    for batch in _batches(commits.values_at(rows)):
        enter_commits(core, batch)


def enter_commits(core: Core, commits: Sequence[Commit]) -> None:
    """Enter commits in the tables that a person would query."""
    core.index.insert("commits", map(_row, commits))
    core.index.insert(
        "metrics",
        [
            {"commit": commit.id, "name": name, "value": float(value)}
            for commit in commits
            for name, value in commit.metrics.items()
        ],
    )
    core.index.insert("components", [row for commit in commits for row in _components(core, commit)])


def _row(commit: Commit) -> dict[str, Any]:
    return {
        "id": commit.id,
        "run": commit.run,
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


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield batch
