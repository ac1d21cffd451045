"""Verification of what some commits need, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cairn.errors import Damaged
from cairn.history.commit import Commit
from cairn.ids import BlobRef
from cairn.state.walk import Node, walk
from cairn.store.core import Core
from cairn.store.findings import Finding, Report, finding
from cairn.store.needs import step_of, way_out
from cairn.store.reach import gone, is_kept


class CommitsCheck:
    """One look at some commits: every blob is read, or, when `quick`, looked up and only trees are read."""

    def __init__(self, core: Core, *, quick: bool, advance: Callable[[int], None] = lambda nbytes: None) -> None:
        self._core, self._quick, self._advance = core, quick, advance
        self._findings: list[Finding] = []
        self._known: set[str] = set()
        self._bad: set[str] = set()
        self._bytes = self._read = 0
        self._tips = {run.state.tip for run in core.journal.live_runs().values() if run.state.tip}

    def run(self, commits: Iterable[Commit]) -> Report:
        """Look at what these commits need. Raises Dropped when some of it is gone that nothing keeps."""
        count = 0
        for commit in commits:
            count += 1
            before = len(self._findings)
            self._commit(commit)
            if len(self._findings) > before and not is_kept(self._core, commit):
                raise gone(commit)
        level = "quick" if self._quick else "full"
        findings = tuple(self._findings)
        return Report(findings, 0, count, 0, len(self._known), self._bytes, level, self._read)

    def _commit(self, commit: Commit) -> None:
        before = len(self._findings)
        unread: list[tuple[str, Damaged]] = []
        try:
            for node in walk(
                commit.root,
                self._core.tree,
                commit.dropped,
                damaged=lambda path, error: unread.append((path, error)),
            ):
                if node.ref.id not in self._known:
                    self._known.add(node.ref.id)
                    self._blob(commit, node)
        except Damaged as error:
            unread.append(("manifest", error))
        # A tree whose bytes are wrong was reported as a blob; one whose bytes are right may still be no tree.
        if len(self._findings) == before and commit.manifest not in self._bad:
            for path, found in unread:
                expected = "trees as the format spells them"
                self._findings.append(finding("tree", f"{commit} {path}", "packs", expected, str(found)))

    def _blob(self, commit: Commit, node: Node) -> None:
        ref = node.ref
        self._bytes += ref.size
        try:
            self._look(ref, is_tree=node.is_tree)
        except Damaged as error:
            self._bad.add(ref.id)
            reader = self._core.blobs.find(ref.id, everywhere=True)
            code = "blob" if reader else "missing"
            file = str(reader.path.relative_to(self._core.layout.root)) if reader else "packs"
            steps, out = [f"{commit.run} {step_of(commit)} {node.path}"], way_out(commit, self._tips)
            expected = f"{ref.size} bytes that hash to it"
            self._findings.append(finding(code, f"blob {ref.id}", file, expected, str(error), steps, out))

    def _look(self, ref: BlobRef, *, is_tree: bool) -> None:
        if self._quick and not is_tree:
            reader = self._core.blobs.find(ref.id, everywhere=True)
            if reader is None or reader.header.places[ref.id].size != ref.size:
                raise Damaged(f"blob {ref.id}: expected {ref.size} bytes in some pack, found none")
            return
        self._core.blobs.read(ref)
        self._read += ref.size
        self._advance(ref.size)
