"""Verification of what is not in packs: the store's own file, the entries of runs and tags, and files of nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from cairn.errors import CairnError, Damaged
from cairn.history.journal import Journal, tag_of
from cairn.history.settings import rules_of
from cairn.io.entry import Entry
from cairn.io.layout import pack_id_of
from cairn.io.log import Log
from cairn.store import config
from cairn.store.core import Core
from cairn.store.findings import Finding, finding
from cairn.store.rules import parse


class LogsCheck:
    """One reading of all logs, from the first entry on."""

    def __init__(self, core: Core, journal: Journal) -> None:
        self._core, self._journal = core, journal
        self.findings: list[Finding] = []
        self.entries = 0
        self.commits = 0

    def run(self) -> LogsCheck:
        """Read everything that is not in packs."""
        self._config()
        journal = self._journal
        for name, run in journal.runs().items():
            before = len(self.findings)
            self._log(f"run {name}", run.log)
            self.commits += len(run.state.commits)
            for entry, error in run.bad:
                self._nonsense(f"entry {entry.seq} of run {name}", entry.file, error)
            if run.damage(after=run.deleted_at) is None:
                # The run was deleted after its damage: nothing depends on what cannot be read.
                self.findings[before:] = [replace(each, level="warning") for each in self.findings[before:]]
        for name in journal.tag_logs():
            self._log(f"tag {name}", self._read(self._core.layout.tags / name, partial(self._tag, name)))
        self._log("the settings", self._read(self._core.layout.settings, self._setting))
        self.findings += map(self._stranger, self._strangers_in_packs())
        return self

    def _read(self, folder: Path, take: Callable[[Entry], None]) -> Log:
        log = Log(self._core.disk, folder, take)
        log.refresh()
        return log

    def _tag(self, name: str, entry: Entry) -> None:
        try:
            tag_of(name, entry)
        except Damaged as error:
            self._nonsense(f"entry {entry.seq} of tag {name}", entry.file, error)

    def _setting(self, entry: Entry) -> None:
        try:
            for each in rules_of(entry):
                parse(each.rule)
        except CairnError as error:
            what = f"entry {entry.seq} of the settings"
            self._add("entry", what, entry.file, "rules that this version knows", str(error))

    def _config(self) -> None:
        path, own = self._core.layout.config, self._core.config
        try:
            found = config.read(self._core.disk, self._core.layout)
        except CairnError as error:
            self._add("config", "cairn.json", path, "the store's own file", str(error))
            return
        if found != own:
            self._add("config", "cairn.json", path, f"store {own.store_id}", f"store {found.store_id}")

    def _log(self, whose: str, log: Log) -> None:
        self.entries += log.count
        for wound in log.wounds:
            self._add("entry", f"entry {wound.seq} of {whose}", wound.file, wound.expected, wound.found)
        self.findings += map(self._stranger, log.strangers)

    def _strangers_in_packs(self) -> Iterator[Path]:
        disk, packs = self._core.disk, self._core.layout.packs
        for folder in disk.names(packs):
            for name in disk.names(packs / folder):
                pack_id = pack_id_of(name)
                if pack_id is None or not pack_id.startswith(folder):
                    yield packs / folder / name

    def _nonsense(self, what: str, file: Path, error: Damaged) -> None:
        self._add("entry", what, file, "an entry that makes sense", str(error))

    def _stranger(self, file: Path) -> Finding:
        return finding("stranger", "a file", self._name(file), "only files that the format names", "another file")

    def _add(self, code: str, what: str, file: Path, expected: str, found: str) -> None:
        self.findings.append(finding(code, what, self._name(file), expected, found))

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._core.layout.root))
