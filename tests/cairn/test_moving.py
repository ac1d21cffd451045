"""A store is a folder like any other: it moves, is copied, and is read where nothing can be written."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe

import cairn
from cairn.io.disk import Disk

ODD = "a b#c?d%20é"
"""A name that a URL, a shell or SQLite could take for something else."""

STATES = {step: {"model": {"w": np.arange(50.0) * step}, "rng": {"step": step}} for step in (1, 2)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that was used and closed, under an odd name, with a tag and a drop."""
    root = tmp_path / ODD / "store"
    root.parent.mkdir()
    with cairn.init(root) as store:
        for step, state in STATES.items():
            store.run().commit(state, step=step, metrics={"loss": step})
        store.tag("good", "step:2")
        store.drop(["step:1"], only={"rng"})
        store.gc()
    return root


def use(store: cairn.Store) -> str:
    """Read all there is to read, and say it."""
    lines = [repr(commit) for commit in store.log()]
    lines += [describe(store.load("good")), describe(store.load("step:1", only={"model"}))]
    lines += [describe(store.open("latest")["model"]), describe(store.run().load(copy=True))]
    lines += [repr(store.ls("latest", "model/w")), describe(store.cat("latest", "rng/step")), repr(store.tags())]
    lines += [
        repr(store.du()),
        repr(store.verify()),
        repr(store.gc(dry_run=True)),
        repr(store.plan_retention(keep_last=1)),
    ]
    return "\n".join(lines)


def checked_out(store: cairn.Store, out: Path) -> list[tuple[str, bytes]]:
    """Write the newest commit as files and read them."""
    return [(path.name, path.read_bytes()) for path in store.checkout("latest", out)]


def test_a_store_that_was_moved_goes_on(root: Path, tmp_path: Path) -> None:
    """MOVE-01: After a move every answer is the same and commits continue the run; the index needs no rebuild."""
    with cairn.open(root) as store:
        expected = use(store)
    moved = tmp_path / "elsewhere"
    root.rename(moved)
    with cairn.open(moved) as store:
        assert use(store) == expected
        store.run().commit(STATES[1], step=3)
        assert store.run().last is None
        assert [commit.step for commit in store.log()] == [3, 2, 1]
        assert store.verify().ok


def test_a_copy_is_a_store_of_its_own(root: Path, tmp_path: Path) -> None:
    """MOVE-01: A copied folder has the same id and content; what happens to one does not happen to the other."""
    twin = Path(shutil.copytree(root, tmp_path / "twin"))
    with cairn.open(root) as store, cairn.open(twin) as other:
        assert other.id == store.id
        other.run().commit({"model": np.arange(3)}, step=9)
        assert [commit.step for commit in store.log()] == [2, 1]
        assert [commit.step for commit in other.log()] == [9, 2, 1]
        assert store.verify().ok
        assert other.verify().ok


def test_nothing_in_a_store_holds_its_path(root: Path, tmp_path: Path) -> None:
    """MOVE-01: No file of a store, derived ones included, holds the place where it lies, nor its caller's."""
    needles = [str(tmp_path).encode(), ODD.encode(), str(Path.cwd()).encode(), sys.executable.encode()]
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [needle for needle in needles if needle in data], path


def test_a_store_travels_in_an_archive_and_is_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    """MOVE-01: unpacked from a tar elsewhere, and opened through a link, everything works with no repair."""
    with tarfile.open(tmp_path / "store.tar", "w") as archive:
        archive.add(root, "store")
    with tarfile.open(tmp_path / "store.tar") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (tmp_path / "link").symlink_to(tmp_path / "unpacked" / "store")
    with cairn.open(root) as store, cairn.open(tmp_path / "link") as other:
        assert [commit.id for commit in other.log()] == [commit.id for commit in store.log()]
        assert describe(other.load("good")) == describe(STATES[2])
        assert checked_out(other, tmp_path / "out") == checked_out(store, tmp_path / "here")
        other.run().commit(STATES[1], step=3)
        other.gc()
        assert other.verify().findings == ()


def test_a_clone_without_empty_folders_and_modes_works(root: Path, tmp_path: Path) -> None:
    """What version control keeps of a store is enough: no empty folders, no index, no reserve, files writable."""
    clone = tmp_path / "clone"
    for name, data in folders.files(root).items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_bytes(data)
    with cairn.open(clone) as store:
        assert store.verify().findings == ()
        assert describe(store.load("good")) == describe(STATES[2])
        store.run().commit(STATES[1], step=3)
        store.gc()
        assert store.verify().ok


class ReadOnlyDisk(Disk):
    """A disk on which every durable step fails as on a read-only file system."""

    def step(self, name: str, path: Path) -> NoReturn:
        raise OSError(errno.EROFS, f"Read-only file system (at {name})", str(path))

    def can_write(self, path: Path) -> bool:
        return False


def test_reading_takes_no_durable_step(root: Path, tmp_path: Path) -> None:
    """RO-01: Every reading call gives the same on a disk that cannot be written, and touches nothing."""
    with cairn.open(root) as store:
        expected = use(store)
    before = folders.listing(root)
    with cairn.open(root, disk=ReadOnlyDisk()) as store:
        assert use(store) == expected
    assert folders.listing(root) == before


WRITES = """
for write in (
    lambda: store.run().commit({"model": np.arange(3)}, step=9),
    lambda: store.tag("t", "latest"),
    lambda: store.rewind("step:1"),
    lambda: store.gc(),
    lambda: store.drop(["step:1"]),
    lambda: store.delete_run("main"),
    lambda: store.verify(repair=True),
):
    try:
        write()
    except cairn.ReadOnly as error:
        assert "cannot be written" in str(error)
    else:
        raise AssertionError("written")
"""


def test_writing_to_a_read_only_disk_is_refused_in_words(root: Path) -> None:
    """RO-01: Every writing call raises ReadOnly, says what works and what to do, and touches nothing."""
    before = folders.listing(root)
    with cairn.open(root, disk=ReadOnlyDisk()) as store:
        exec(WRITES, {"store": store, "cairn": cairn, "np": np})  # noqa: S102 - the same text runs in another process
    assert folders.listing(root) == before


@pytest.mark.parametrize("index", ["whole", "missing", "with -wal"])
def test_a_store_on_a_read_only_file_system_is_read(root: Path, tmp_path: Path, index: str) -> None:
    """RO-01: On a file system mounted read-only all reading works, writing is refused, and nothing changes."""
    with cairn.open(root) as store:
        expected = use(store) + repr(checked_out(store, tmp_path / "here"))
    if index == "missing":
        (root / "index.sqlite").unlink()
    elif index == "with -wal":
        (root / "index.sqlite-wal").write_bytes(b"\x37\x7f\x06\x82" * 100)
    before = folders.listing(root)
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\n"
        "import pathlib, cairn, numpy as np\n"
        "from tests.cairn.test_moving import checked_out, use\n"
        "store = cairn.open(sys.argv[1])\n"
        "said = use(store) + repr(checked_out(store, pathlib.Path(sys.argv[3])))\n"
        "pathlib.Path(sys.argv[2]).write_text(said)\n" + WRITES
    )
    mounted = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" "$3" "$1" "$4" "$5"'
    answer = tmp_path / "answer"
    arguments = [root, sys.executable, script, answer, tmp_path / "out"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted, "sh", *map(str, arguments)], capture_output=True, text=True
    )
    if not answer.exists() and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"this process may not mount, and a read-only mount is the subject: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert answer.read_text() == expected
    assert folders.listing(root) == before


def test_a_database_with_a_log_beside_it_is_not_read_where_it_cannot_be_recovered(root: Path) -> None:
    """On read-only media an index with a -wal may be half of the truth, so it is rebuilt in memory instead."""
    index = root / "index.sqlite"
    (root / "index.sqlite-wal").write_bytes(b"")
    before = folders.listing(root)
    with cairn.open(root, disk=ReadOnlyDisk()) as store:
        store.load("latest")
        store.du()
        (main,) = [row for row in store._core.index._open().execute("PRAGMA database_list") if row[1] == "main"]
        assert main[2] == ""
    assert folders.listing(root) == before
    assert index.exists()


def test_a_store_is_found_again_after_the_caller_went_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store opened by a relative path stays the same store when the process changes its folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with cairn.init("store") as store:
        store.run().commit(STATES[1], step=1)
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.run().commit(STATES[2], step=2)
        assert describe(store.load("latest")) == describe(STATES[2])
        assert store.verify().ok
    assert list((tmp_path / "elsewhere").iterdir()) == []
