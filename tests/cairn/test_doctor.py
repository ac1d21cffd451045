"""doctor says what the file system lacks and what was left behind, and leaves nothing itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from tests.cairn import folders
from tests.cairn.small import build

import cairn
from cairn.io.disk import Disk
from cairn.io.layout import Layout
from cairn.io.leases import reading
from cairn.store.doctor import Check


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small store."""
    return build(tmp_path / "store")


def doctor(root: Path, disk: Disk | None = None) -> dict[str, Check]:
    """Ask the doctor of a store, by the name of each check."""
    with cairn.open(root, disk=disk) as store:
        return {check.name: check for check in store.doctor()}


def problems(found: dict[str, Check]) -> set[str]:
    """The names of the checks that are problems."""
    return {name for name, check in found.items() if check.status == "problem"}


def test_a_store_in_order_has_nothing_to_complain_of(root: Path) -> None:
    """Each check says what it found, and hints only where there is something to do."""
    found = doctor(root)
    bad = {
        name: check for name, check in found.items() if check.status != "ok" and name not in ("space", "file system")
    }
    assert bad == {}
    assert len(found) >= 15
    assert all(check.found for check in found.values())
    assert "numpy" in found["versions"].found


def test_what_is_tried_out_leaves_nothing(root: Path) -> None:
    """No file, and no change to one; the folders' times apart."""
    before = folders.files(root)
    doctor(root)
    assert folders.files(root) == before
    assert list((root / "tmp").iterdir()) == []
    assert {path.name for path in (root / "leases").iterdir()} <= {"gc.lock"}


class ReadOnlyDisk(Disk):
    """A disk on which every durable step fails as on a read-only file system."""

    def step(self, name: str, path: Path) -> NoReturn:
        raise OSError(errno.EROFS, f"Read-only file system (at {name})", str(path))

    def can_write(self, path: Path) -> bool:
        return False


def test_a_store_that_cannot_be_written_is_only_looked_at(root: Path) -> None:
    """It says so, tries nothing out, and that is no problem: reading works."""
    before = folders.listing(root)
    found = doctor(root, ReadOnlyDisk())
    assert problems(found) == set()
    assert found["writing"].status == "warning"
    assert "not tried" in found["abilities"].found
    assert folders.listing(root) == before


class NoLinks(Disk):
    """A file system without hard links."""

    def link(self, source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted", str(target))


class ReplacingLinks(Disk):
    """A file system whose links replace what is there."""

    def link(self, source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())


class NoLocks(Disk):
    """A file system whose locks keep nobody out."""

    def is_locked(self, path: Path) -> bool | None:
        return False


class NoMaps(Disk):
    """A file system that cannot map files."""

    def map(self, path: Path) -> memoryview:
        raise OSError(errno.ENODEV, "No such device", str(path))


class NoFolderSync(Disk):
    """A file system that cannot make names durable."""

    def sync_folder(self, path: Path) -> None:
        raise OSError(errno.EINVAL, "Invalid argument", str(path))


class WrongClock(Disk):
    """A host whose clock is an hour behind."""

    def now(self) -> datetime:
        return datetime.now(UTC) - timedelta(hours=1)


@pytest.mark.parametrize(
    ("disk", "name", "status"),
    [
        (NoLinks(), "links", "problem"),
        (ReplacingLinks(), "links", "problem"),
        (NoLocks(), "locks", "warning"),
        (NoMaps(), "mapping", "problem"),
        (NoFolderSync(), "folder sync", "warning"),
        (WrongClock(), "clock", "warning"),
    ],
)
def test_what_the_file_system_lacks_is_named_with_what_to_do(root: Path, disk: Disk, name: str, status: str) -> None:
    """Only that check says so, and nothing is left in tmp."""
    found = doctor(root, disk)
    assert found[name].status == status
    assert found[name].hint
    others = {check.name for check in found.values() if check.status != "ok"} - {name, "space", "file system"}
    assert others == set()
    assert list((root / "tmp").iterdir()) == []


@contextmanager
def somebody(root: Path) -> Iterator[None]:
    """A reader at work in the store."""
    with reading(Disk(), Layout(root), "a long read"):
        yield


def test_who_is_at_work_and_who_died_is_told(root: Path) -> None:
    """Live leases with their purpose, process and host; dead ones and their files as leftovers."""
    with somebody(root):
        found = doctor(root)
        assert "a long read by process" in found["leases"].found
        assert found["leases"].status == "ok"
    (root / "leases" / f"{'1' * 32}.json").write_bytes(b"")
    (root / "tmp" / f"{'1' * 32}.pack-1").write_bytes(b"12345")
    for path in (root / "leases" / f"{'1' * 32}.json", root / "tmp" / f"{'1' * 32}.pack-1"):
        os.utime(path, (0, 0))
    found = doctor(root)
    assert "1 of dead processes" in found["leases"].found
    assert found["leftovers"].found == "1 file, 5 bytes"
    with cairn.open(root) as store:
        store.gc()
    assert doctor(root)["leftovers"].status == "ok"


def test_what_lies_around_is_counted(root: Path) -> None:
    """The trash, what a repair set aside, a missing reserve, names that are nobody's."""
    pack = folders.packs(root)[0]
    (root / "trash" / f"{'0' * 32}.{pack.name}").write_bytes(pack.read_bytes())
    (root / "damaged").mkdir()
    (root / "damaged" / "x").write_bytes(b"123")
    (root / "reserve").unlink()
    (root / "notes.txt").write_text("mine")
    (root / "runs" / "Main").mkdir()
    found = doctor(root)
    assert found["trash"].found.startswith("1 file")
    assert found["set aside"].found == "1 file, 3 bytes"
    assert found["reserve"].status == "warning"
    assert "notes.txt" in found["names"].found
    assert "runs/main" in found["names"].found or "runs/Main" in found["names"].found
    assert problems(found) == set()


def test_the_state_of_the_index_is_told(root: Path) -> None:
    """Missing is in order, broken and incomplete are said; nothing is lost by either."""
    assert "complete" in doctor(root)["index"].found
    index = root / "index.sqlite"
    index.write_bytes(b"nonsense" * 100)
    assert doctor(root)["index"].status == "warning"
    for file in root.glob("index.sqlite*"):
        file.unlink()
    assert "none yet" in doctor(root)["index"].found
    assert not index.exists()


def test_a_folder_that_another_user_closed_is_a_problem(root: Path) -> None:
    """It is named, with the way out."""

    class Closed(Disk):
        def can_write(self, path: Path) -> bool:
            return path.name != "main"

    found = doctor(root, Closed())
    assert found["writing"].status == "problem"
    assert "runs/main" in found["writing"].found
    assert "chmod" in found["writing"].hint
