"""The golden store is read as it was written, and written as it is: the format has not changed by accident."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.cairn import examples, folders, golden
from tests.cairn.describe import describe
from tests.cairn.golden import GOLDEN, PAGE

import cairn

COMMITS = {
    "main@100": (100, 0, {"loss": 2.5, "tokens": 4096}, "first\nlight"),
    "main@200": (200, 1, {"loss": 1.25, "best": float("inf")}, None),
    "main@300": (300, None, {"loss": 0.625}, None),
    "probe": (250, None, {}, None),
    "stable": (200, 1, {"loss": 1.25, "best": float("inf")}, None),
}
IDS = {
    "main@100": "fe53bc6f6b8f4cfe90d7a6458fc45e7e4635b0a3623d3ec85e48c81223d72b5c",
    "main@200": "628992fecbb704a6e3db1d629034cd4e8d41fe53421f0108ed5ab3782ae15132",
    "main@300": "06b889a24776907d700aaef846dadfd7f34c0a6ecbb9b81cf0f922bc9ac2c0a7",
    "main/attempt-1": "3de10c9a402c5dc4b4c47b9c07f4cba48e4109563a922eefff014fc8396972a2",
    "probe": "3f1931a996577419362861270aa86ecbdd9e27910a36928445768178f52a8016",
}
"""Ids are hashes of all that a commit says and holds; they are the same for ever."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The golden store as a fresh clone has it: no empty folders, and every file writable."""
    root = tmp_path / "clone"
    for name, data in folders.files(GOLDEN).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def test_the_golden_store_is_read(copy: Path) -> None:
    """Every value of every commit comes back, bit for bit, with what was said about it."""
    with cairn.open(copy) as store:
        assert store.id == "00000000000000000000000000000001"
        for revision, said in COMMITS.items():
            commit = store.commit(revision)
            assert (commit.step, commit.epoch, commit.metrics, commit.message) == said
            assert commit.provenance == golden.PROVENANCE
            state = golden.state(said[0])
            if revision == "probe":
                state["note"] = "halved"
            assert describe(store.load(revision, only=state)) == describe(state)
            assert describe(store.load(revision, only=state, copy=True)) == describe(state)


def test_its_files_are_checked_out(copy: Path, tmp_path: Path) -> None:
    """Files, folders, modes, the link and the odd name come back as they were."""
    expected = tmp_path / "expected"
    expected.mkdir()
    golden.write_files(expected)
    with cairn.open(copy) as store:
        store.checkout("main@100", tmp_path / "out", only=["files"])
        (found,) = [path for path in (tmp_path / "out", tmp_path / "out" / "files") if (path / "latest").is_symlink()]
    assert tree(found) == tree(expected)


def tree(root: Path) -> dict[bytes, tuple[int, bytes]]:
    """Return modes and contents of everything in a folder."""
    found = {}
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        content = bytes(path.readlink()) if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
        found[bytes(path.relative_to(root))] = (mode, content)
    return found


def test_its_ids_are_those_it_always_had(copy: Path) -> None:
    """Commit ids do not depend on the version that reads."""
    with cairn.open(copy) as store:
        assert {revision: store.commit(revision).id for revision in IDS} == IDS


def test_its_history_is_read(copy: Path) -> None:
    """Runs, the renamed one included, the attempt, the tag, the drops, and folded entries like others."""
    with cairn.open(copy) as store:
        assert store.runs() == ["main", "probe"]
        assert list(store.tags()) == ["stable"]
        assert [commit.step for commit in store.log("main")] == [300, 200, 100]
        assert [commit.step for commit in store.log("probe")][:2] == [250, 200]
        moves = [move.op for move in store.run("main").reflog()]
        assert moves == ["undrop", "drop", "drop", "commit", "rewind", "commit", "commit", "commit"]
        attempt = store.commit("main/attempt-1")
        assert (attempt.message, attempt.dropped) == ("diverged", ("*",))
        with pytest.raises(cairn.Dropped):
            store.load("main/attempt-1")
        assert store.commit("main@100").dropped == ()


def test_it_is_whole_and_goes_on(copy: Path) -> None:
    """verify finds nothing to say; commits, tags and gc work on it, and what was there stays as it was."""
    before = folders.files(copy)
    with cairn.open(copy) as store:
        assert store.verify().findings == ()
        run = store.run("main")
        run.commit(golden.state(400), step=400)
        store.tag("stable", "main")
        assert store.gc().deleted == ()
        assert store.verify().findings == ()
        assert run.last is not None
        # 48 bytes of weights, the count of updates, and new trees; all else was there.
        assert run.last.new_bytes < 3000
    after = folders.files(copy)
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 3


def test_it_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    """The same operations with the same clock and ids write the same files."""
    golden.build(tmp_path / "golden")
    assert folders.files(tmp_path / "golden") == folders.files(GOLDEN)


def test_version_control_has_all_of_it() -> None:
    """Every file of the golden store is tracked, so that a clone has it whole."""
    top = GOLDEN.parents[1]
    if not (top / ".git").exists():
        pytest.skip("not a working tree: an unpacked archive has no list of tracked files to compare with")
    listed = subprocess.run(["git", "ls-files", "store/golden"], cwd=top, capture_output=True, text=True, check=True)
    assert {name.removeprefix("store/golden/") for name in listed.stdout.split()} == set(folders.files(GOLDEN))


def test_the_example_in_the_format_shows_its_bytes() -> None:
    """Each block of `store/FORMAT.md` is what the files hold."""
    page = PAGE.read_text()
    assert len(examples.words(page)) > 15
    assert page == examples.render(page, GOLDEN)
