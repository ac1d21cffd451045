"""The stores that the races start from, the operations that race, and what a store is seen to hold.

The content of a commit follows from its message, so whoever reads it can tell whether it is whole. `"a"` is a state of
its own; `"a+b"` has the model of `a` and the optimizer of `b`, and so shares blobs with both.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.races.harness import Operation, StagedDisk, Turn, before, interleaved, perform

import cairn
from cairn.errors import Conflict, Dropped
from cairn.history.commit import Commit
from cairn.store import content
from cairn.store.collecting import Collection

Builder = Callable[[Path], None]


def state(key: str) -> dict[str, Any]:
    """Make the state that a message names: two components with bytes of their own and some that all states share."""
    model, _, optimizer = key.partition("+")
    return {
        "model": {"shared": np.arange(16, dtype="<f4"), "own": _noise(f"model {model}")},
        "optimizer": {"shared": np.ones(9), "own": _noise(f"optimizer {optimizer or model}")},
    }


def _noise(key: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(zlib.crc32(key.encode())).integers(0, 255, 24, dtype="u1")


def equal(found: dict[str, Any], key: str) -> bool:
    """Whether a loaded state, or some components of one, is bit for bit the one that a message names."""
    expected = state(key)
    return all(
        list(values) == list(expected[name])
        and all(
            (value.dtype, value.shape, value.tobytes())
            == (expected[name][part].dtype, expected[name][part].shape, expected[name][part].tobytes())
            for part, value in values.items()
        )
        for name, values in found.items()
    )


# Operations. Each opens nothing itself: it is given a store that was opened for it.


def commit(key: str, step: int, run: str = "main") -> Operation:
    """Commit a state to a run."""
    return lambda store: store.run(run).commit(state(key), step=step, message=key)


def gc(keep_last: int | None = None, patience: float = 0, keep: tuple[str, ...] = ()) -> Operation:
    """Free space, by default without waiting for anybody; with rules, drop first."""
    run = "main" if keep_last or keep else None
    return lambda store: store.gc(keep=keep, keep_last=keep_last, run=run, patience=patience)


def keep(*rules: str) -> Operation:
    """Store rules."""
    return lambda store: store.keep(rules)


def apply_rules(store: cairn.Store) -> None:
    """Apply the stored rules to main, as a training loop does."""
    store.run("main").apply_rules(gc=True)


def compact(patience: float = 0) -> Operation:
    """Free space inside packs, too: every pack of these small stores is rewritten."""
    return lambda store: store.gc(compact=True, patience=patience)


def tag(name: str, revision: str) -> Operation:
    """Set a tag."""
    return lambda store: store.tag(name, revision)


def untag(name: str) -> Operation:
    """Delete a tag."""
    return lambda store: store.delete_tag(name)


def rewind(revision: str, run: str = "main") -> Operation:
    """Move the tip of a run back."""
    return lambda store: store.rewind(revision, run=run)


def drop(revision: str, run: str = "main", only: set[str] | None = None) -> Operation:
    """Drop a commit, or some components of it."""
    return lambda store: store.drop([revision], run=run, only=only)


def undrop(revision: str, run: str = "main") -> Operation:
    """Keep again what was dropped."""
    return lambda store: store.undrop([revision], run=run)


def create(name: str, revision: str) -> Operation:
    """Start a run from a commit."""
    return lambda store: store.create_run(name, revision)


def rename(old: str, new: str) -> Operation:
    """Give a run another name."""
    return lambda store: store.rename_run(old, new)


def delete(name: str) -> Operation:
    """End a run."""
    return lambda store: store.delete_run(name)


def load(revision: str) -> Operation:
    """Read a commit of main whole and compare it."""

    def check(store: cairn.Store) -> None:
        message = store.commit(revision, "main").message
        assert equal(store.load(revision, run="main"), str(message)), f"{revision} came back changed"

    return check


def verify(store: cairn.Store) -> None:
    """Read everything and find nothing wrong."""
    report = store.verify()
    assert not report.findings, [str(finding) for finding in report.findings]


def after(*operations: Operation) -> Operation:
    """One operation after the other in one process; a refusal of one does not stop the next."""

    def run(store: cairn.Store) -> None:
        refused = None
        for operation in operations:
            try:
                operation(store)
            except (Conflict, Dropped) as error:
                refused = error
        if refused is not None:
            raise refused

    return run


def anew(operation: Operation) -> Operation:
    """An operation that must make the index from the packs that are there."""

    def run(store: cairn.Store) -> object:
        for path in store.path.glob("index.sqlite*"):
            path.unlink()
        return operation(store)

    return run


# Stores.

DEAD, FIRST, TIP, SIDE = "dead", "first", "tip", "side"
"""The states of `build`."""


def build(root: Path) -> None:
    """Make a store whose races matter.

    Run main has steps 0 to 3. Step 1 (`dead`) was dropped, and a pack holds only what it alone needed. Step 2 goes when
    a rule keeps the last one. Run side starts from step 0 and has a commit of its own. Tag kept is step 0.
    """
    with cairn.init(root, disk=StagedDisk()) as store:
        main = store.run("main")
        for step, key in enumerate(("ground", DEAD, FIRST, TIP)):
            main.commit(state(key), step=step, message=key)
        store.create_run("side", "main@0").commit(state(SIDE), step=3, message=SIDE)
        store.tag("kept", "main@0")
        store.drop(["main@1"], run="main")
    _settle(root)


def build_with_trash(root: Path) -> None:
    """As `build`, and the dropped commit's pack lies in the trash, left there by a gc that could not wait."""
    build(root)
    with cairn.open(root, disk=StagedDisk()) as store, reader(root):
        plan = store.gc(patience=0)
        assert plan.waiting_for
        assert len(list((root / "trash").iterdir())) == 1
    _settle(root)


def build_with_needed_trash(root: Path) -> None:
    """As `build`, and a pack that the newest commit of main needs lies in the trash, until the next gc.

    The commit had looked the pack up before gc moved it, and was published when gc had given up waiting.
    """
    build(root)

    def collect(number: int) -> None:
        if disk.points[number].name == "link":
            assert perform(root, gc()).succeeded

    disk = StagedDisk(collect)
    assert perform(root, commit(DEAD, 10), disk).succeeded
    assert len(list((root / "trash").iterdir())) == 1
    _settle(root)


TWIN = "twin"


def build_with_copies(root: Path) -> None:
    """As `build`, and two packs have the same blobs: two commits of one state wrote them at the same time."""
    build(root)
    turns = [Turn("main", before("rename", "packs")), Turn("side", None)]
    interleaved(root, {"main": commit(TWIN, 10), "side": commit(TWIN, 20, "side")}, turns)
    assert len(twins(root)) == 2


def twins(root: Path) -> list[str]:
    """The packs that have the same blobs."""
    with cairn.open(root, disk=StagedDisk()) as store:
        blobs = {pack: frozenset(header.places) for pack, header in store._core.blobs.headers()}  # type: ignore[union-attr]
    return [pack for pack, found in blobs.items() if list(blobs.values()).count(found) > 1]


def taking(pack: Callable[[Path], str]) -> Operation:
    """A gc that has found one pack to be the one that goes, from there on."""

    def run(store: cairn.Store) -> None:
        round_ = Collection(store._core)
        round_.trash([pack(store.path)])
        assert not round_.wait(0)
        round_.restore()
        round_.settle()
        round_.delete()

    return run


def grown(*operations: Operation) -> Builder:
    """A store as `build` makes it, and then some operations."""

    def more(root: Path) -> None:
        build(root)
        for operation in operations:
            outcome = perform(root, operation)
            assert outcome.succeeded, repr(outcome.error)
        with suppress(FileNotFoundError):
            _settle(root)

    return more


def _settle(root: Path) -> None:
    # 1 MiB less to copy for each try; gc sets it aside again.
    (root / "reserve").unlink()


@contextmanager
def reader(root: Path) -> Iterator[None]:
    """Somebody who reads all the time, for whom gc would have to wait."""
    from cairn.io.layout import Layout
    from cairn.io.leases import reading

    with reading(StagedDisk(), Layout(root), "reading"):
        yield


class Scene:
    """A store that was built once and is copied for each try."""

    def __init__(self, folder: Path, builder: Builder) -> None:
        self._folder = folder
        self._built = folder / "built"
        self._count = 0
        builder(self._built)

    def copy(self) -> Path:
        """Return a fresh copy; the one before is removed."""
        shutil.rmtree(self._folder / f"try-{self._count}", ignore_errors=True)
        self._count += 1
        root = self._folder / f"try-{self._count}"
        shutil.copytree(self._built, root)
        return root


# What is seen.


@dataclass(frozen=True)
class View:
    """What a store holds: each run's tip, commits and what was dropped of them, and each tag."""

    runs: dict[str, tuple[str, dict[str, tuple[str, ...]]]]
    tags: dict[str, str]

    def keeps(self, label: str, run: str = "main") -> bool:
        """Whether a run has a commit whole."""
        return self.runs[run][1].get(label) == ()


def label(made: Commit) -> str:
    """Name a commit in a view."""
    return f"{made.step} {made.message}"


def look(store: cairn.Store, *, load: bool = True) -> View:
    """Say what a store holds; load all that is kept and compare it, bit for bit, to what was committed."""
    journal = store._core.journal
    runs: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {}
    for name, run in journal.live_runs().items():
        commits = {}
        for made in run.state.commits.values():
            commits[label(made)] = made.dropped
            if load and not made.is_dropped:
                check(store, made)
        runs[name] = (label(run.tip) if run.tip else "", commits)
    tags = journal.tags()
    for tagged in tags.values():
        if load:
            check(store, store.commit(tagged.name))
    return View(runs, {name: label(tagged.commit) for name, tagged in tags.items()})


def check(store: cairn.Store, made: Commit) -> None:
    """Load what is kept of a commit."""
    only = [name for name in state(str(made.message)) if name not in made.dropped]
    found = content.load(store._core, made, only, copy=False)
    assert equal(found, str(made.message)), f"{made} came back changed"
