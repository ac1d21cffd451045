"""Folders out of the store: complete or as before, whatever stood there, and never in the way of the store."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.files import trees

import cairn
from cairn.io.disk import Disk


def content(place: Path) -> Path:
    """A folder with all that a folder may hold, the lot not to be written."""
    (place / "sub" / "empty").mkdir(parents=True)
    (place / "model.npz").write_bytes(trees.npz(w=np.arange(50_000.0), v=np.arange(3)))
    (place / "sub" / "config.json").write_text("{}")
    (place / "sub" / "config.json").chmod(0o400)
    (place / "link").symlink_to("../elsewhere")
    (place / "sub").chmod(0o555)
    return place


def used(place: Path) -> Path:
    """A folder in use, with other files and some of the same names."""
    (place / "sub" / "deep").mkdir(parents=True)
    (place / "sub" / "deep" / "old.bin").write_bytes(b"old")
    (place / "model.npz").write_bytes(b"other")
    (place / "link").mkdir()
    (place / "sub" / "deep").chmod(0o500)
    return place


class Broken(Exception):
    """What a broken disk raises."""


class BreakingDisk(Disk):
    """A disk of which one step fails, with an error that nobody expects."""

    def __init__(self) -> None:
        self.at = -1
        self.count = 0

    def step(self, name: str, path: Path) -> None:
        self.count += 1
        if self.count == self.at:
            raise Broken(f"{name} {path}")

    def arm(self, at: int) -> None:
        """Let a step from here on fail."""
        self.count, self.at = 0, at


class PlainDisk(BreakingDisk):
    """A disk on which two folders cannot be exchanged, and no parent of a target be written."""

    def can_write(self, path: Path) -> bool:
        return path.name != "parent"


Prepare = Callable[[Path], object]


def nothing(place: Path) -> None:
    """A target that is not there, nor the folder above it."""
    place.parent.rmdir()


def empty(place: Path) -> None:
    """A target that is an empty folder."""
    place.mkdir()


@pytest.mark.parametrize("prepare", [nothing, empty, used], ids=lambda prepare: str(prepare.__name__))
@pytest.mark.parametrize("disk", [BreakingDisk(), PlainDisk()], ids=["beside", "within"])
def test_a_checkout_that_fails_leaves_what_was_there(tmp_path: Path, disk: BreakingDisk, prepare: Prepare) -> None:
    """Each durable step fails once: the target is as before or whole, and nothing is left over."""
    source = content(tmp_path / "source")
    expected = trees.told(source)
    with cairn.init(tmp_path / "store", disk=disk) as store:
        store.run().commit({"files": cairn.folder(source)}, step=1)
        for at in range(1, 100):
            place = tmp_path / str(at)
            (place / "parent").mkdir(parents=True)
            target = place / "parent" / "out"
            prepare(target)
            before = trees.told(place)
            # The lease comes before, and goes after.
            disk.arm(at)
            try:
                store.checkout("latest", target, force=True)
            except (Broken, cairn.CairnError):
                after = trees.told(place)
                if after != before:
                    assert trees.told(target) == expected
                    assert sorted(os.listdir(target.parent)) == ["out"]
            else:
                disk.arm(-1)
                assert trees.told(target) == expected
                assert os.listdir(target.parent) == ["out"]
                break
            disk.arm(-1)
        assert at > 20
        assert store.verify().ok


def test_only_what_was_committed_is_there_afterwards(store: cairn.Store, tmp_path: Path) -> None:
    """--force replaces a folder in use: no file of before is left, and links in it lead nowhere for cairn."""
    source, target = content(tmp_path / "source"), used(tmp_path / "target")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config.json").write_text("keep me")
    (target / "linked").symlink_to(outside)
    store.run().commit({"files": cairn.folder(source)}, step=1)
    with pytest.raises(cairn.Conflict, match="--force"):
        store.checkout("latest", target)
    store.checkout("latest", target, force=True)
    assert trees.told(target) == trees.told(source)
    assert (outside / "config.json").read_text() == "keep me"


def test_a_link_in_the_place_of_the_target_is_refused(store: cairn.Store, tmp_path: Path) -> None:
    """Nothing is written through a link, and no file is replaced by a folder."""
    store.run().commit({"files": cairn.folder(content(tmp_path / "source"))}, step=1)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("x")
    for name in ("link", "file"):
        with pytest.raises(cairn.Conflict, match="expected a folder to write to"):
            store.checkout("latest", tmp_path / name, force=True)
    assert os.listdir(tmp_path / "real") == []


@pytest.mark.parametrize("where", [".", "store", "store/packs", "store/new", "link", "../run"])
def test_a_checkout_never_replaces_the_store(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's folder holds the store: neither it nor anything in the store is replaced, with --force or without."""
    place = tmp_path / "run"
    place.mkdir()
    (place / "link").symlink_to(".")
    monkeypatch.chdir(place)
    with cairn.init("store") as store:
        store.run().commit({"files": cairn.folder(content(tmp_path / "source"))}, step=1)
        with pytest.raises(cairn.Conflict):
            store.checkout("latest", where, force=True)
        assert store.verify().ok
        assert sorted(os.listdir(place)) == ["link", "store"]


@pytest.mark.parametrize("force", [True, False])
def test_the_folder_one_stands_in_stays_that_folder(
    store: cairn.Store, tmp_path: Path, force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever checks out to `.` sees the files, not a folder that was removed under the shell."""
    source = content(tmp_path / "source")
    store.run().commit({"files": cairn.folder(source)}, step=1)
    here = tmp_path / "here"
    used(here) if force else here.mkdir()
    monkeypatch.chdir(here)
    paths = store.checkout("latest", ".", force=force)
    assert paths == [Path("link"), Path("model.npz"), Path("sub")]
    assert trees.told(Path()) == trees.told(here) == trees.told(source)


def test_a_part_of_a_folder(store: cairn.Store, tmp_path: Path) -> None:
    """--only takes files and folders, as they are called or as listings show them, and refuses what is not there."""
    source = content(tmp_path / "source")
    (source / "new\nline").write_text("x")
    store.run().commit({"files": cairn.folder(source), "model": {"w": np.ones(3)}}, step=1)
    store.checkout("latest", tmp_path / "one", only=["sub/config.json", '"new\\nline"'])
    assert trees.only_files(tmp_path / "one") == {b"sub/config.json": b"{}", b"new\nline": b"x"}
    assert stat.S_IMODE((tmp_path / "one" / "sub").stat().st_mode) == 0o555
    store.checkout("latest", tmp_path / "two", only=["files/model.npz", "model"])
    assert sorted(os.listdir(tmp_path / "two")) == ["files", "model.json", "model.safetensors"]
    for wrong, message in (("sub/nothing", r"expected one of config\.json, empty"), ("link/x", "link is no folder")):
        with pytest.raises(cairn.NotFound, match=message):
            store.checkout("latest", tmp_path / "three", only=[wrong])
    assert not (tmp_path / "three").exists()


def test_folders_inside_a_component_stand_beside_it(store: cairn.Store, tmp_path: Path) -> None:
    """A dict may hold folders, files and links; its JSON says which is which."""
    source = cairn.folder(content(tmp_path / "source"))
    state = {"run": {"a/b": source, "it": source.entries["model.npz"], "n": 1, "..": source.entries["link"]}}
    store.run().commit(state, step=1)
    assert [item.kind for item in store.ls("latest", "run")].count("file") == 3
    store.checkout("latest", tmp_path / "out")
    text = (tmp_path / "out" / "run.json").read_text()
    assert text.count('"$file"') == text.count('"$dir"') == text.count('"$link"') == 1
    names = sorted(os.listdir(tmp_path / "out" / "run.files"))
    assert len(names) == 3
    assert "it" in names
    assert trees.told(tmp_path / "out" / "run.files" / names[0]) == trees.told(tmp_path / "source")


class FullDisk(Disk):
    """A disk on which no file outside the store has room."""

    def step(self, name: str, path: Path) -> None:
        if name == "write" and "store" not in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_full_disk_is_named_as_the_targets(tmp_path: Path) -> None:
    """The sentence is about the place that is full, not about the store."""
    with cairn.init(tmp_path / "store", disk=FullDisk()) as store:
        store.run().commit({"files": cairn.folder(content(tmp_path / "source"))}, step=1)
        with pytest.raises(
            cairn.CairnError, match=r"out cannot be written \(no space left.*what was there is untouched"
        ):
            store.checkout("latest", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_whose_parent_may_not_be_written(plain_user: Path) -> None:
    """A mount point or a folder that somebody else made can still be checked out to."""
    source = content(plain_user / "source")
    target = used(plain_user / "parent" / "out")
    with cairn.init(plain_user / "store") as store:
        store.run().commit({"files": cairn.folder(source)}, step=1)
        (plain_user / "parent").chmod(0o555)
        store.checkout("latest", target, force=True)
        assert trees.told(target) == trees.told(source)
        with pytest.raises(cairn.CairnError, match="cannot be written"):
            store.checkout("latest", plain_user / "parent" / "new")
