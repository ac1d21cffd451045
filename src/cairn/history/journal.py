"""All runs and tags of a store, read from their entries and kept up to date."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from cairn.errors import Conflict, Damaged, NotFound
from cairn.history import names, snapshot
from cairn.history.commit import Commit, read
from cairn.history.replay import ALL, Move
from cairn.history.run import MAX_RENAMES, Run
from cairn.io.disk import Disk
from cairn.io.entry import Entry
from cairn.io.layout import Layout
from cairn.io.leases import Lease
from cairn.io.log import Log

SNAPSHOT_ENTRIES = 256
"""After so many entries a snapshot is worth its place; a log that is shorter is read as fast."""
SNAPSHOT_SHARE = 512
"""A snapshot is written anew after a 512th more, so that it costs every commit the same little."""

_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Tag:
    """A name that does not move by itself, and the commit it stands for."""

    name: str
    commit: Commit
    time: str


class Snapshots(Protocol):
    """Where snapshots of runs are kept; what is lost there is made again."""

    def snapshot(self, run: str, part: str) -> bytes | None:
        """Return a part of a run's snapshot."""

    def keep_snapshot(self, run: str, parts: Mapping[str, bytes]) -> None:
        """Keep a snapshot of a run instead of the one before."""


class Journal:
    """Reads and extends the logs of one store.

    Without `snapshots` everything is read from entries.
    """

    def __init__(self, disk: Disk, layout: Layout, snapshots: Snapshots | None = None) -> None:
        self._disk, self._layout, self._snapshots = disk, layout, snapshots
        self._runs: dict[str, Run] = {}
        self._tags: dict[str, Log] = {}
        self._tries = 0
        self._guard = threading.RLock()

    # Runs.

    def run(self, name: str) -> Run:
        """Return a run as its entries are now, whether it exists or not."""
        with self._guard:
            run = self._run(name).refresh()
            self._keep_snapshot(run)
            return run

    def moves(self, name: str) -> list[Move]:
        """Return what a run's entries did, oldest first."""
        moves: list[Move] = []
        Run(name, self._disk, self._layout.runs, self.run, note=moves.append).refresh()
        return moves

    def runs(self) -> dict[str, Run]:
        """Return all runs that have entries, deleted ones included, by name."""
        return {
            name: self.run(name) for name in self._disk.names(self._layout.runs, strict=True) if names.is_name(name)
        }

    def live_runs(self) -> dict[str, Run]:
        """Return the runs that exist.

        One that gets another name while the names are read is found under that: the new name is there before the
        old one ends.
        """
        runs = self.runs()
        for run in list(runs.values()):
            for _ in range(MAX_RENAMES):
                name = run.state.renamed_to
                if run.exists or not names.is_name(name):
                    break
                run = runs[str(name)] = self.run(str(name))
        return {name: runs[name] for name in sorted(runs) if runs[name].exists}

    def existing(self, name: str) -> Run:
        """Return a run that exists. Raises NotFound with the names there are, Damaged when it cannot be known."""
        run = self.run(name)
        if run.exists:
            return run
        error = run.damage()
        if error is not None:
            raise error
        live = sorted(self.live_runs())
        if run.state.renamed_to in live:
            raise NotFound(f"run {name!r} was renamed to {run.state.renamed_to!r}")
        if not live:
            raise NotFound(f"run {name!r}: expected a run with commits, found no runs yet; its first commit makes it")
        raise NotFound(f"run {name!r}: expected one of {', '.join(live)}")

    def with_prefix(self, prefix: str) -> Iterator[Commit]:
        """Yield the commits whose ids begin with hex digits, those of runs that exist last; some come twice."""
        for run in sorted(self.runs().values(), key=lambda run: run.exists):
            yield from run.with_prefix(prefix)

    def by_id(self, commit_id: str) -> Commit | None:
        """Return a commit of any run, of an existing one if possible."""
        found = None
        for run in self.runs().values():
            commit = run.state.commits.get(commit_id)
            if commit is not None:
                if run.exists:
                    return commit
                found = commit
        return found

    def forget(self) -> None:
        """Read every log anew from now on: entries were put back that could not be read."""
        with self._guard:
            self._runs.clear()
            self._tags.clear()

    # Tags.

    def tags(self) -> dict[str, Tag]:
        """Return the tags that are set, by name; those that cannot be read are left out."""
        found = {}
        for name in self._disk.names(self._layout.tags, strict=True):
            with contextlib.suppress(Damaged):
                tag = self.tag(name)
                if tag is not None:
                    found[name] = tag
        return found

    def tag(self, name: str) -> Tag | None:
        """Return a tag, or None when it is not set. Raises Damaged when that cannot be known."""
        log = self.tag_log(name) if names.is_name(name) else None
        newest = log.newest.seq if log and log.newest else 0
        for wound in log.wounds if log else ():
            if wound.seq > newest:
                raise Damaged(
                    f"tag {name!r} is damaged: {wound.file}: expected {wound.expected}, found {wound.found}; restore "
                    f"that file from a copy of the store, or move it away and the tag stands where it stood before"
                )
        tag = tag_of(name, log.newest) if log and log.newest else None
        return self._as_kept(tag) if tag else None

    def _as_kept(self, tag: Tag) -> Tag:
        """A tag with its commit as its run says now; the tag keeps it even where the run dropped the whole."""
        home = self.run(tag.commit.run).last_known(tag.commit.id) if names.is_name(tag.commit.run) else None
        parts = tuple(part for part in (home or tag.commit).dropped if part != ALL)
        return replace(tag, commit=replace(self.by_id(tag.commit.id) or tag.commit, dropped=parts))

    def tag_logs(self) -> dict[str, Log]:
        """Return the log of every tag, deleted ones included."""
        logs = {}
        for name in self._disk.names(self._layout.tags, strict=True):
            if names.is_name(name):
                logs[name] = self.tag_log(name)
        return logs

    def tag_log(self, name: str) -> Log:
        """Return a tag's log as it is now."""
        with self._guard:
            log = self._tags.get(name)
            if log is None:
                log = self._tags[name] = Log(self._disk, self._layout.tags / name)
            log.refresh()
            return log

    # Writing.

    def append(
        self, log: Log, lease: Lease, op: str, fields: Mapping[str, Any], still: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Create the next entry of a log and return its document.

        `still` is asked whether the operation still makes sense right after the newest entry: it raises the Conflict
        to report, or returns. When another entry takes the number, it is asked again, and the next number is tried.
        """
        for _ in range(_ATTEMPTS):
            log.refresh()
            newest = log.last
            still()
            if log.last != newest:
                continue  # An entry that came while `still` looked may be one that it did not see.
            document = log.next_document(op, lease.write_id, dict(fields))
            lease.renew()
            # Each try has a name of its own: one that could not be removed is in nobody's way.
            self._tries += 1
            try:
                log.append(document, self._layout.temporary(lease.write_id, f"entry-{self._tries}"))
            except FileExistsError:
                continue
            log.refresh()
            return document
        raise Conflict(f"{log.folder}: {_ATTEMPTS} other entries came first; try again when it is quieter")

    def _run(self, name: str) -> Run:
        run = self._runs.get(name)
        if run is None:
            run = self._runs[name] = Run(name, self._disk, self._layout.runs, self.run)
            if self._snapshots is not None and run.log.has(SNAPSHOT_ENTRIES):
                run.begin_from(partial(self._snapshots.snapshot, name))
        return run

    def _keep_snapshot(self, run: Run) -> None:
        """Keep a snapshot once there is enough to spare the next reader."""
        enough = max(SNAPSHOT_ENTRIES, len(run.state.commits.rows) // SNAPSHOT_SHARE)
        if self._snapshots is None or run.replayed < enough or run.log.is_reading:
            return
        run.replayed = 0
        made = run.snapshot()
        if made is not None:
            self._snapshots.keep_snapshot(run.name, snapshot.write(made))


def tag_of(name: str, entry: Entry) -> Tag | None:
    """Read what a tag's newest entry says: a commit, or None after a deletion. Raises Damaged."""
    document = entry.document
    if document.get("op") == "delete":
        return None
    run = document.get("run")
    if document.get("op") != "set" or not isinstance(run, str):
        raise Damaged(f"{entry.file}: expected a tag to be set or deleted, found {document!r:.100}")
    commit = read(document.get("commit"), run=run, what=str(entry.file), packs=document.get("packs", ()))
    return Tag(name, commit, str(document.get("time")))
