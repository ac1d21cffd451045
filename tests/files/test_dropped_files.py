"""Files of a committed folder that are given up alone: what is left comes back, and nobody takes it for the whole."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.files import trees

import cairn
from cairn.state.walk import walk

SECRETS = {step: bytes([step]) * 5000 for step in (1, 2, 3)}


def folder(place: Path, step: int, *, many: int = 0) -> object:
    """Make a checkpoint folder: two files that each step has for itself and some that all share."""
    (place / "sub").mkdir(parents=True)
    (place / "optimizer.pt").write_bytes(SECRETS[step])
    (place / "sub" / "scheduler.pt").write_bytes(SECRETS[step][::-1] + b"s")
    (place / "model.bin").write_bytes(b"m%d" % step * 2000)
    (place / "config.json").write_text("{}")
    for number in range(many):
        (place / "sub" / f"shard-{number:05}.bin").write_bytes(b"%d" % number)
    return cairn.folder(place)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[cairn.Store]:
    """A store with three steps of a folder, each in a pack of its own."""
    with cairn.init(tmp_path / "store") as made:
        for step in SECRETS:
            made.run().commit({"files": folder(tmp_path / f"in-{step}", step), "extra": [step]}, step=step)
        yield made


def names(store: cairn.Store, revision: str) -> dict[str, str]:
    """What `ls` says of a commit's files."""
    return {item.path: item.kind for item in store.ls(revision, "files")}


def test_what_is_left_comes_back_and_the_whole_does_not(store: cairn.Store, tmp_path: Path) -> None:
    """Every way to the folder, or to the file, says what was dropped; the rest is read as ever."""
    (dropped,) = store.drop(["step:1"], only=["files:optimizer.pt"])
    assert dropped.dropped == ("files:optimizer.pt",)
    store.gc()
    for read in (
        lambda: store.load("step:1"),
        lambda: store.load("step:1", only={"files"}),
        lambda: store.open("step:1")["files"],
        lambda: store.run().resume(step=1),
        lambda: store.checkout("step:1", tmp_path / "all"),
        lambda: store.checkout("step:1", tmp_path / "all", only=["files"]),
        lambda: store.checkout("step:1", tmp_path / "all", only=["optimizer.pt", "config.json"]),
        lambda: store.cat("step:1", "optimizer.pt"),
        lambda: store.cat("step:1", "files"),
        lambda: store.ls("step:1", "optimizer.pt/weight"),
        lambda: store.diff("step:1", "step:2"),
        lambda: store.diff("step:1", "step:2", "optimizer.pt"),
    ):
        with pytest.raises(cairn.Dropped, match=r"optimizer\.pt"):
            read()
    assert not (tmp_path / "all").exists()
    assert store.load("step:1", only={"extra"}) == {"extra": [1]}
    assert names(store, "step:1") == {
        "files/config.json": "file",
        "files/model.bin": "file",
        "files/optimizer.pt": "dropped",
        "files/sub/scheduler.pt": "file",
    }
    assert store.ls("step:1", "optimizer.pt")[0].bytes == 5000
    assert store.cat("step:1", "sub/scheduler.pt").read() == SECRETS[1][::-1] + b"s"
    store.checkout("step:1", tmp_path / "part", only=["model.bin", "sub"])
    assert sorted(path.name for path in (tmp_path / "part").rglob("*")) == ["model.bin", "scheduler.pt", "sub"]
    assert [change.path for change in store.diff("step:1", "step:2", "model.bin").changes] == ["files/model.bin"]
    assert store.diff("step:1", "step:1").same
    assert store.verify().ok
    assert store.verify(["step:1"]).ok
    assert store.load("step:2")["files"].entries["optimizer.pt"].read() == SECRETS[2]


def test_a_folder_goes_with_all_that_is_in_it(store: cairn.Store) -> None:
    """Patterns name folders, too, and several parts of one commit add up."""
    store.drop(["step:1"], only=["files:sub/"])
    store.drop(["step:1"], only=["files:*.json", "extra"])
    assert store.commit("step:1").dropped == ("files:sub", "extra", "files:*.json")
    assert names(store, "step:1") == {
        "files/config.json": "dropped",
        "files/model.bin": "file",
        "files/optimizer.pt": "file",
        "files/sub": "dropped",
    }
    store.gc()
    assert store.verify().ok
    assert not store.drop(["step:1"], only=["files:sub", "extra"])


def test_a_pattern_that_names_nothing_is_not_found(store: cairn.Store) -> None:
    """On request each commit must have the part, else nothing of the call is recorded; rules pass over it."""
    for part, found in (
        ("files:absent.pt", "nothing in 'files' that is called like 'absent.pt'"),
        ("files:scheduler.pt", "nothing in 'files'"),
        ("absent:x", "no component 'absent': expected one of files, extra"),
        ("extra:0", "nothing in 'extra'"),
    ):
        with pytest.raises(cairn.NotFound, match=found):
            store.drop(["step:1", "step:2"], only=[part])
    with pytest.raises(cairn.UsageError, match="expected a component"):
        store.drop(["step:1"], only=["files:../x"])
    with pytest.raises(cairn.UsageError, match="found the str"):
        store.drop(["step:1"], only="files")
    store.keep(["files:absent.pt:1", "files:*.pt:1"])
    applied = store.run().apply_rules()
    assert [(each.commit.step, each.parts) for each in applied.reduced] == [(2, ("files:*.pt",)), (1, ("files:*.pt",))]
    assert store.run().apply_rules().drops_nothing


def test_a_drop_of_files_is_taken_back_while_the_bytes_are_there(
    store: cairn.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After gc only what is still there can be kept again."""
    monkeypatch.setattr("cairn.objects.gather.OWN_PACK_BYTES", 1)
    (tmp_path / "in-3" / "model.bin").write_bytes(b"new" * 5000)
    store.run().commit({"files": cairn.folder(tmp_path / "in-3"), "extra": [4]}, step=4)
    store.run().commit({"extra": [5]}, step=5)
    store.drop(["step:1"], only=["files:**/*.pt"])
    store.undrop(["step:1"])
    assert store.load("step:1")["files"].entries["optimizer.pt"].read() == SECRETS[1]
    store.drop(["step:1"], only=["files:**/*.pt"])
    store.drop(["step:4"], only=["files:model.bin"])
    needed = store.du().needed
    store.gc()
    assert store.du().needed == needed
    assert store.du(["step:1"]).commits[0].raw < store.du(["step:3"]).commits[0].raw
    # The first pack holds what others need, so its bytes are there; that of the last model is gone.
    store.undrop(["step:1"])
    with pytest.raises(cairn.Dropped, match="cannot be kept again"):
        store.undrop(["step:4"])
    assert store.commit("step:4").dropped == ("files:model.bin",)
    assert store.cat("step:4", "optimizer.pt").read() == SECRETS[3]
    with pytest.raises(cairn.Dropped, match=r"model\.bin"):
        store.checkout("step:4", tmp_path / "out", only=["files"])


def test_a_run_that_starts_from_what_is_left_stays_readable(store: cairn.Store) -> None:
    """A tag and a new run keep what is kept of a commit, and no more."""
    store.drop(["step:1"], only=["files:optimizer.pt"])
    store.tag("good", "step:1")
    store.create_run("side", "main@1")
    store.drop(["main@1"], only=["files:sub"])
    store.gc()
    assert store.commit("side").dropped == ("files:optimizer.pt",)
    assert store.cat("side", "sub/scheduler.pt").read() == SECRETS[1][::-1] + b"s"
    assert store.verify().ok


def blobs(store: cairn.Store, revisions: list[str]) -> set[str]:
    """What a gc that walks commits in this order finds to be needed."""
    seen: dict[tuple[str, str], int] = {}
    found = set()
    for revision in revisions:
        commit = store.commit(revision)
        nodes = walk(commit.root, store._core.tree, commit.dropped, seen=seen)
        found |= {node.ref.id for node in nodes}
    return found


@pytest.mark.parametrize("many", [0, 900])
def test_a_walk_without_files_hides_none_from_a_walk_that_needs_them(tmp_path: Path, many: int) -> None:
    """The same folder in several commits, of which two dropped files: in any order all that is needed is found.

    With many files the folder's tree is in parts, which walks over other commits pass over once they were walked.
    """
    with cairn.init(tmp_path / "store") as store:
        content = folder(tmp_path / "in", 1, many=many)
        for step in range(4):
            store.run().commit({"files": content, "step": [step]}, step=step)
        whole = blobs(store, ["step:0"])
        store.drop(["step:0"], only=["files:optimizer.pt"])
        store.drop(["step:1"], only=["files:sub/shard-000*", "files:sub/*.pt"] if many else ["files:sub"])
        orders = list(permutations([f"step:{step}" for step in range(3)]))
        assert all(whole <= blobs(store, list(order)) for order in orders)
        both = blobs(store, ["step:0"]) | blobs(store, ["step:1"])
        assert blobs(store, ["step:0", "step:1"]) == blobs(store, ["step:1", "step:0"]) == both
        assert len(blobs(store, ["step:0"])) == len(whole) - 1
        store.gc()
        assert store.verify().ok
        store.checkout("step:2", tmp_path / "out")
        assert (tmp_path / "out/files/optimizer.pt").read_bytes() == SECRETS[1]
        # What no commit keeps any more goes, and the rest of the folder stays.
        store.drop(["step:1", "step:2"])
        store.drop(["step:3"], only=["files:optimizer.pt"])
        store.gc()
        assert store.verify().ok
        with pytest.raises(cairn.Dropped):
            store.load("step:3")
        store.checkout("step:3", tmp_path / "part", only=["sub"])
        assert len(list((tmp_path / "part/sub").iterdir())) == many + 1


def test_only_the_dropped_file_is_freed(tmp_path: Path) -> None:
    """A file in a pack of its own is gone from the disk after gc, and the walk over the trees is what says so."""
    with cairn.init(tmp_path / "store") as store:
        content = folder(tmp_path / "in", 1)
        (tmp_path / "in/optimizer.pt").unlink()
        store.run().commit({"files": cairn.folder(tmp_path / "in")}, step=1)
        (tmp_path / "in/optimizer.pt").write_bytes(SECRETS[1])
        store.run().commit({"files": content}, step=2)
        blob = store.ls("step:2", "optimizer.pt")[0].blobs[0].id
        store.drop(["step:2"], only=["files:optimizer.pt"])
        assert blob not in blobs(store, ["step:1", "step:2"])
        plan = store.gc(dry_run=True)
        assert plan.partly_dead_bytes >= 5000
        store.gc()
        assert store.verify().ok


def leftover(plan: trees.Plan, pattern: list[bytes], above: tuple[bytes, ...] = ()) -> trees.Plan:
    """What is left of a folder, told by a reading of the pattern that knows nothing of cairn's."""
    left: trees.Plan = {}
    for name, what in plan.items():
        path = (*above, name)
        if re.fullmatch(b"/".join(pattern), b"/".join(path), re.DOTALL):
            continue
        inside = what[0] if isinstance(what, tuple) else None
        left[name] = (leftover(inside, pattern, path), what[1]) if isinstance(inside, dict) else what  # type: ignore[index] # a folder
    return left


WORDS = {"*": b"[^/]*", "?*": b"[^/]+", "a": b"a", "[!a-z]*": b"[^a-z/][^/]*"}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=trees.plans(2), words=st.lists(st.sampled_from(list(WORDS)), min_size=1, max_size=3))
def test_what_is_needed_are_the_blobs_of_what_is_left(plan: trees.Plan, words: list[str]) -> None:
    """For any folder and any pattern: no blob of another file is missed, and none is kept that only these need."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        trees.make(os.fsencode(place / "whole"), plan)
        trees.make(os.fsencode(place / "left"), leftover(plan, [WORDS[word] for word in words]))
        with cairn.init(place / "store") as store:
            for step in (1, 2):
                store.run().commit({"files": cairn.folder(place / "whole"), "step": [step]}, step=step)
            store.run().commit({"files": cairn.folder(place / "left"), "step": [3]}, step=3)
            with suppress(cairn.NotFound):
                store.drop(["step:1"], only=[f"files:{'/'.join(words)}"])
            needed, expected = (
                {node.ref.id for node in walk(made.root, store._core.tree, made.dropped) if not node.is_tree}
                for made in map(store.commit, ("step:1", "step:3"))
            )
            assert needed == expected
            store.gc()
            assert store.verify().ok
            store.checkout("step:2", place / "out", only=["files"])
            assert trees.told(place / "out") == trees.told(place / "whole")
        for above, _, _ in os.walk(place):
            Path(above).chmod(0o700)
