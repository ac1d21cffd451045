"""Folders into the store: what is kept, what it costs, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from safetensors.numpy import save, save_file
from tests.cairn import folders
from tests.files import trees

import cairn
from cairn.io.disk import Disk
from cairn.io.handles import OpenFile

TREE_BYTES = 700
"""More than an entry of a folder takes in a tree, its share of everything else included."""
SLICE_BYTES = 250
"""More than a slice takes in trees and headers."""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=trees.plans())
def test_any_folder_comes_back_as_it_was(plan: trees.Plan) -> None:
    """Bytes, permissions, the text of links, empty folders; and the store holds little more than the content."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        trees.make(os.fsencode(place / "source"), plan)
        expected = trees.told(place / "source")
        with cairn.init(place / "store") as store:
            run = store.run()
            run.commit({"files": cairn.folder(place / "source")}, step=1)
            assert trees.told(place / "source") == expected
            store.checkout("latest", place / "out")
            assert trees.told(place / "out") == expected
            assert store.verify().ok
            content = sum(len(data) for kind, _, data in expected.values() if kind == "file")
            assert store.du().stored <= content + TREE_BYTES * len(expected) + 8 * SLICE_BYTES * len(expected) + 4096
            again = run.plan({"files": cairn.folder(place / "out")}, step=1)
            assert again.exists is not None
            assert again.new_bytes == 0
        for folder, _, _ in os.walk(place):
            Path(folder).chmod(0o700)


def some_folder(place: Path, seed: int = 0) -> Path:
    """A folder with files of several formats."""
    place.mkdir()
    weights = np.random.default_rng(seed).standard_normal((64, 300)).astype(np.float32)
    save_file({"w": weights, "v": weights[0]}, place / "model.safetensors")
    (place / "optimizer.npz").write_bytes(trees.npz(w=weights))
    (place / "config.json").write_text('{"a": 1}')
    (place / "broken.npz").write_bytes(trees.npz(w=weights)[:-1])
    (place / "latest").symlink_to("model.safetensors")
    return place


def test_a_plan_says_what_the_commit_then_does_and_writes_nothing(store: cairn.Store, tmp_path: Path) -> None:
    """New and shared bytes, blobs, formats, files kept as bytes, and the manifest."""
    place = some_folder(tmp_path / "ck")
    run = store.run()
    run.plan({"files": cairn.folder(place)}, step=1)
    before = folders.listing(store.path)
    plan = run.plan({"files": cairn.folder(place)}, step=1)
    after = folders.listing(store.path)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed <= {"leases", "tmp", *(name for name in after if name.startswith("index.sqlite"))}
    made = run.commit({"files": cairn.folder(place)}, step=1)
    assert run.last is not None
    assert (plan.manifest, plan.new_bytes, plan.shared_bytes) == (
        made.manifest,
        run.last.new_bytes,
        run.last.shared_bytes,
    )
    assert plan.files == run.last.files == {"npz": 1, "opaque": 2, "safetensors": 1}
    assert [file.path for file in plan.opaque] == ["broken.npz"]
    assert plan.opaque == run.last.opaque
    blobs = sum(len(folders.head(pack)[1]) for pack in folders.packs(store.path))
    assert (plan.new_blobs, plan.exists, plan.conflict) == (blobs, None, None)


def test_a_plan_names_the_conflict_that_a_commit_would_meet(store: cairn.Store, tmp_path: Path) -> None:
    """The same content is no conflict; other content is."""
    run = store.run()
    first, second = cairn.folder(some_folder(tmp_path / "one")), cairn.folder(some_folder(tmp_path / "two", 1))
    made = run.commit({"files": first}, step=1)
    assert run.plan({"files": first}, step=1).exists == made
    conflict = run.plan({"files": second}, step=1).conflict
    with pytest.raises(cairn.Conflict) as raised:
        run.commit({"files": second}, step=1)
    assert str(raised.value) == conflict
    assert run.plan({"files": second}, step=2).conflict is None


def test_new_and_shared_bytes_are_all_bytes(store: cairn.Store, tmp_path: Path) -> None:
    """Equal files in one commit are shared, too; a commit that was there has nothing new."""
    place = some_folder(tmp_path / "ck")
    shutil.copy(place / "model.safetensors", place / "copy.safetensors")
    content = sum(map(len, trees.only_files(place).values()))
    run = store.run()
    run.commit({"files": cairn.folder(place)}, step=1)
    first = run.last
    assert first is not None
    assert content <= first.new_bytes + first.shared_bytes <= content + 5 * TREE_BYTES
    assert first.shared_bytes > (place / "copy.safetensors").stat().st_size
    run.commit({"files": cairn.folder(place)}, step=2)
    assert run.last is not None
    assert (run.last.new_bytes, run.last.shared_bytes) == (0, first.new_bytes + first.shared_bytes)
    run.commit({"files": cairn.folder(place)}, step=2)
    assert (run.last.new_bytes, run.last.is_new) == (0, False)


def test_live_state_and_files_share_their_tensors(store: cairn.Store, tmp_path: Path) -> None:
    """The same numbers in memory, in safetensors and in npz are one blob."""
    weights = np.arange(100_000, dtype=np.float32)
    run = store.run()
    run.commit({"model": {"w": weights}}, step=1)
    (tmp_path / "ck").mkdir()
    save_file({"other.name": weights}, tmp_path / "ck" / "m.safetensors")
    (tmp_path / "ck" / "o.npz").write_bytes(trees.npz(w=weights))
    run.commit({"files": cairn.folder(tmp_path / "ck")}, step=2)
    assert run.last is not None
    assert run.last.new_bytes < 3000


def test_many_tensors_make_few_packs(store: cairn.Store, tmp_path: Path) -> None:
    """A file with more tensors than anybody foresaw does not fall into a pack for every few."""
    (tmp_path / "ck").mkdir()
    rng = np.random.default_rng(0)
    tensors = {str(at): rng.standard_normal(1024).astype(np.float32) for at in range(8000)}
    save_file(tensors, tmp_path / "ck" / "m.safetensors")
    store.run().commit({"files": cairn.folder(tmp_path / "ck")})
    assert len(folders.packs(store.path)) <= 3


def test_a_store_inside_the_folder_is_left_out_and_named(tmp_path: Path) -> None:
    """Most people have their store in the folder of the run."""
    some_folder(tmp_path / "run")
    with cairn.init(tmp_path / "run" / "sub" / "store") as store:
        run = store.run()
        run.commit({"files": cairn.folder(tmp_path / "run")}, step=1)
        assert run.last is not None
        assert run.last.left_out == ("sub/store",)
        store.checkout("latest", tmp_path / "out")
        assert os.listdir(tmp_path / "out" / "sub") == []
        with pytest.raises(cairn.UnsupportedValue, match="found a store"):
            cairn.folder(store.path)


def test_a_folder_that_only_looks_like_a_store_is_kept(store: cairn.Store, tmp_path: Path) -> None:
    """Any file may be called cairn.json."""
    (tmp_path / "ck" / "a").mkdir(parents=True)
    (tmp_path / "ck" / "a" / "cairn.json").write_text('{"format": "other"}')
    (tmp_path / "ck" / "b" / "cairn.json").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    assert sorted(cairn.folder(tmp_path / "ck").entries) == ["a", "b"]
    assert cairn.folder(tmp_path / "ck").left_out == ()


def test_a_single_file_is_a_folder_of_one(store: cairn.Store, tmp_path: Path) -> None:
    """It has the name it was asked for by, a link's too, and the bytes that the link leads to."""
    (tmp_path / "blob-1").write_bytes(b"weights")
    (tmp_path / "model.bin").symlink_to("blob-1")
    store.run().commit({"files": cairn.folder(tmp_path / "model.bin")}, step=1)
    store.checkout("latest", tmp_path / "out")
    assert trees.only_files(tmp_path / "out") == {b"model.bin": b"weights"}
    assert not (tmp_path / "out" / "model.bin").is_symlink()


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    """A typo in a path says so."""
    with pytest.raises(cairn.NotFound, match=r"nothing: expected a folder or file to commit"):
        cairn.folder(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(cairn.CairnError, match="loop"):
        cairn.folder(tmp_path / "loop")


def test_a_relative_path_stays_what_it_was(store: cairn.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may change its folder between looking and committing."""
    some_folder(tmp_path / "ck")
    monkeypatch.chdir(tmp_path)
    folder = cairn.folder("ck")
    monkeypatch.chdir("/")
    store.run().commit({"files": folder}, step=1)


class Failing(OpenFile):
    """A file whose bytes cannot be read from some place on."""

    failed = threading.Event()

    def read_at(self, offset: int, size: int) -> bytes:
        if offset >= 1 << 20:
            self.failed.set()
            raise OSError(5, "Input/output error")
        return super().read_at(offset, size)


class FailingDisk(Disk):
    """A disk with one bad file, which counts what is opened; all other files wait for that one to fail."""

    def __init__(self) -> None:
        self.opened: list[bytes] = []

    def open_file(self, path: Path | bytes) -> OpenFile:
        self.opened.append(os.fsencode(path))
        if os.fsencode(path).endswith(b"bad"):
            return Failing(path)
        if b"/ck/f" in os.fsencode(path):
            Failing.failed.wait(10)
            time.sleep(0.01)
        return super().open_file(path)


def test_a_reader_that_fails_stops_the_others(tmp_path: Path) -> None:
    """The error names the file, nothing is published, and what is not yet read is not read."""
    disk = FailingDisk()
    place = tmp_path / "ck"
    place.mkdir()
    (place / "bad").write_bytes(save({"w": np.zeros(1 << 18, np.float32), "v": np.ones(1 << 18, np.float32)}))
    for number in range(200):
        (place / f"f{number:03}").write_bytes(os.urandom(2000))
    with cairn.init(tmp_path / "store", disk=disk) as store:
        with pytest.raises(cairn.CairnError, match=r"ck/bad cannot be read: Input/output error; nothing was published"):
            store.run().commit({"files": cairn.folder(place, disk=disk)}, step=1)
        assert len(disk.opened) < 20
        assert store.runs() == []
        store.run().commit({"files": cairn.folder(place)}, step=1)
        assert store.verify().ok


class FullDisk(Disk):
    """A disk without room for packs."""

    full = True

    def step(self, name: str, path: Path) -> None:
        if self.full and name == "write" and ".pack-" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_a_full_store_is_named_and_the_next_commit_is_whole(tmp_path: Path) -> None:
    """Nothing is published, nothing is left in the way, and no descriptor stays open."""
    disk = FullDisk()
    place = tmp_path / "ck"
    place.mkdir()
    for number in range(4):
        (place / str(number)).write_bytes(os.urandom(9 << 20))
    with cairn.init(tmp_path / "store", disk=disk) as store:
        store.run().plan({"model": 1})
        before = len(os.listdir("/dev/fd"))
        with pytest.raises(cairn.CairnError, match=r"no space left in .*store while committing"):
            store.run().commit({"files": cairn.folder(place)}, step=1)
        assert len(os.listdir("/dev/fd")) == before
        assert os.listdir(store.path / "tmp") == []
        disk.full = False
        store.run().commit({"files": cairn.folder(place)}, step=1)
        assert store.verify().ok


def test_progress_that_raises_stops_the_commit(store: cairn.Store, tmp_path: Path) -> None:
    """An interruption is one, whichever thread it comes to."""

    def advance(nbytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.run().commit({"files": cairn.folder(some_folder(tmp_path / "ck"))}, step=1, advance=advance)
    assert store.runs() == []


def test_progress_is_told_of_every_byte(store: cairn.Store, tmp_path: Path) -> None:
    """Reading and writing add up to what was announced."""
    place = some_folder(tmp_path / "ck")
    total = sum(map(len, trees.only_files(place).values()))
    read: list[int] = []
    store.run().commit({"files": cairn.folder(place)}, step=1, advance=read.append)
    assert sum(read) == total
    expected: list[int] = []
    written: list[int] = []
    store.checkout("latest", tmp_path / "out", expect=expected.append, advance=written.append)
    assert sum(expected) == sum(written) == total


MEASURED = """
import resource, sys
import numpy, cairn
from cairn.files import take
from cairn.state import encode
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
with cairn.init(sys.argv[2]) as store:
    before = peak()
    run = store.run()
    run.commit({"files": cairn.folder(sys.argv[1])}, step=1)
    print(peak() - before, run.last.new_bytes)
"""


def test_memory_does_not_grow_with_the_folder(tmp_path: Path) -> None:
    """Files of the size that is read at once, and a long one: 536 MB with fewer than 200 above the interpreter."""
    place = tmp_path / "ck"
    place.mkdir()
    for number, size in enumerate([64 << 20] * 4 + [280 << 20]):
        with (place / str(number)).open("wb") as file:
            file.write(b"%d" % number)
            file.truncate(size)
    command = [sys.executable, "-c", MEASURED, str(place), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, new = map(int, done.stdout.split())
    assert new > 256 << 20
    assert grown < 200 << 20
