"""How new bytes get to the disk: hashed where they are written from, past the page cache, in bounded memory."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cairn
from cairn import ids
from cairn.ids import blob_id
from cairn.io import buffers
from cairn.io.buffers import BUFFER_BYTES
from cairn.io.disk import Disk
from cairn.io.handles import NewFile
from cairn.io.stream import Stream
from cairn.objects.gather import OWN_PACK_BYTES

SIZES = (0, 1, 4095, 4096, 4097, BUFFER_BYTES - 1, BUFFER_BYTES, 3 * BUFFER_BYTES + 12_345)


def bytes_of(size: int) -> memoryview:
    """Bytes that differ everywhere, at the start of a page."""
    padded = np.empty(size + 4096, np.uint8)
    start = -padded.__array_interface__["data"][0] % 4096
    data = padded[start : start + size]
    data[:] = np.arange(-(-size // 8), dtype=np.int64).view(np.uint8)[:size]
    return data.data


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that can be written past the cache, and one on one that cannot."""
    if request.param == "disk":
        yield tmp_path
        return
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("no /dev/shm, and a file system in memory is the subject")
    name = shared / f"cairn-test-{os.getpid()}"
    name.mkdir()
    yield name
    for left in name.iterdir():
        left.unlink()
    name.rmdir()


def written(path: Path, fill: Callable[[Stream], None], start: int = 4096) -> bytes:
    """What a file holds after its reserved start."""
    file = Disk().create(path)
    try:
        stream = Stream(file, start)
        fill(stream)
        stream.finish()
        file.sync()
    finally:
        file.close()
    return path.read_bytes()[start:]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("offset", [0, 1])
def test_what_is_written_is_there_whatever_its_size_and_place(folder: Path, size: int, offset: int) -> None:
    """Bytes that lie at the start of a page and beside it, at a place that can be written directly or not."""
    data = bytes_of(size + offset)[offset:]
    assert written(folder / "file", lambda stream: stream.write(data)) == data
    assert written(folder / "odd", lambda stream: stream.write(data), start=192) == data


def test_many_pieces_follow_one_another(folder: Path) -> None:
    """Copied and handed over in turns."""
    pieces = [bytes_of(size) for size in (*SIZES[1:], 100, *SIZES[::-1], 1 << 20, 2 << 20)]

    def fill(stream: Stream) -> None:
        for number, piece in enumerate(pieces):
            if number % 2:
                stream.write(piece)
            else:
                assert b"".join(stream.put(piece)) == piece
                stream.keep()

    assert written(folder / "file", fill) == b"".join(pieces)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_discarded_leaves_no_trace(folder: Path, size: int) -> None:
    """Neither between what is kept nor at the end."""

    def fill(stream: Stream) -> None:
        for piece in (b"before", bytes_of(size)):
            stream.put(memoryview(piece))
            stream.discard()
            stream.put(memoryview(piece))
            stream.keep()
        stream.put(bytes_of(size + 1))
        stream.discard()
        stream.write(memoryview(b"after"))

    assert written(folder / "file", fill) == b"before" + bytes_of(size) + b"after"


def test_a_device_that_refuses_a_direct_write_gets_it_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked once."""
    data = bytes_of(3 * BUFFER_BYTES)
    real, refused = os.pwrite, []

    def pwrite(descriptor: int, view: memoryview, offset: int) -> int:
        import fcntl

        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(offset)
            raise OSError(errno.EINVAL, "larger blocks")
        return real(descriptor, view, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    assert written(tmp_path / "file", lambda stream: stream.write(data)) == data
    assert len(refused) == 1


def test_short_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may write less than it was given."""
    data = bytes_of(2 * BUFFER_BYTES + 5)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, view, offset: real(descriptor, view[: 3 << 19], offset))
    assert written(tmp_path / "file", lambda stream: stream.write(data)) == data


class BrokenFile(NewFile):
    """A file of which some write fails."""

    writes = 0

    def write_at(self, offset: int, data: object) -> None:
        BrokenFile.writes += 1
        if BrokenFile.writes == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(offset, data)  # type: ignore[arg-type] # handed on as it came


class BrokenDisk(Disk):
    """A disk that is full after some writes."""

    def create(self, path: Path, mode: int = 0o444) -> NewFile:
        file = super().create(path, mode)
        if ".pack-" not in path.name:
            return file
        BrokenFile.writes = 0
        return BrokenFile(self, path, os.dup(file._descriptor))


def test_a_write_that_fails_in_the_background_fails_the_commit(store: cairn.Store, tmp_path: Path) -> None:
    """Nothing is left of it, no thread either, and the next one goes through."""
    state = {"model": {"w": np.arange(10 << 20, dtype=np.float64)}}
    with cairn.open(store.path, disk=BrokenDisk()) as broken, pytest.raises(cairn.CairnError, match="no space left"):
        broken.run("main").commit(state, step=1)
    assert not [*(store.path / "tmp").iterdir()]
    assert threading.active_count() == 1
    assert store.run("main").commit(state, step=1).step == 1
    assert store.verify().ok


def test_the_bytes_that_are_hashed_are_the_bytes_that_are_written(
    store: cairn.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays change before and after every single hash; each blob is some state of its array, and is its own."""
    arrays = {f"w{number}": np.full(3 << 20, number, np.float32) for number in range(4)}
    arrays |= {f"s{number}": np.full(5000, number, np.float32) for number in range(20)}
    hashes = 0

    def changing(original: Callable[..., str]) -> Callable[..., str]:
        def change(*arguments: object) -> str:
            nonlocal hashes
            hashes += 1
            for array in arrays.values():
                array += 0.5
            found = original(*arguments)
            for array in arrays.values():
                array += 0.5
            return found

        return change

    for name in ("intake.blob_id", "writer.blob_id", "writer.blob_id_of"):
        monkeypatch.setattr(f"cairn.objects.{name}", changing(getattr(ids, name.partition(".")[2])))
    for step in range(3):
        store.run("main").commit({"model": arrays}, step=step)
    monkeypatch.undo()
    assert hashes > 3 * len(arrays)
    assert store.verify().ok
    for step in range(3):
        for array in store.run("main").load(step=step)["model"].values():
            assert (array == array.flat[0]).all()


def test_a_commit_needs_no_thread(store: cairn.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system, or the end of the program, allows none, it takes longer."""

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    files = {f"{number}.bin": os.urandom(1 << 20) for number in range(5)}
    for name, data in files.items():
        (tmp_path / "files" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "files" / name).write_bytes(data)
    array = np.arange(5 << 20, dtype=np.float64)
    store.run("main").commit({"model": array, "files": cairn.folder(tmp_path / "files")}, step=1)
    monkeypatch.undo()
    assert np.array_equal(store.run("main").load(only={"model"})["model"], array)
    store.checkout("latest", tmp_path / "out", only={"files"})
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*.bin")} == files


@pytest.mark.parametrize("looks", range(1, 5))
def test_equal_arrays_that_change_after_they_were_looked_at_are_there(
    store: cairn.Store, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """The second of them is not taken for a copy of what the first was and is no more."""
    arrays = {name: np.zeros(5000) for name in "abcd"}
    seen = 0

    def look(*arguments: object) -> str:
        nonlocal seen
        found = blob_id(*arguments)  # type: ignore[arg-type] # handed on as they came
        seen += 1
        if seen == looks:
            for array in arrays.values():
                array += 1
        return found

    monkeypatch.setattr("cairn.objects.intake.blob_id", look)
    store.run("main").commit({"model": arrays}, step=1)
    monkeypatch.undo()
    assert seen >= looks
    assert store.verify().ok
    for array in store.run("main").load(step=1)["model"].values():
        assert array.flat[0] in (0, 1)


def test_a_component_of_many_small_values_shares_what_it_has(store: cairn.Store) -> None:
    """Known, new and equal values in one batch, in both guesses, come back as they were and cost only what is new."""
    rng = np.random.default_rng(1)
    before = {f"{number:05}": rng.random(300) for number in range(9000)}
    after = before | {name: rng.random(300) for name in list(before)[3000:6000]} | {"again": before["00000"].copy()}
    run = store.run("main")
    run.commit({"model": before}, step=1)
    run.commit({"model": after}, step=2)
    assert run.last is not None
    new = 3000 * 2400
    assert new < run.last.new_bytes < new + 2_000_000
    with cairn.open(store.path) as other:
        for step, state in ((1, before), (2, after)):
            found = other.run("main").load(step=step)["model"]
            assert found.keys() == state.keys()
            assert all(np.array_equal(found[name], state[name]) for name in state)
    assert store.verify().ok


def test_many_components_below_the_size_of_a_pack_do_not_gather_in_memory(store: cairn.Store) -> None:
    """Some packs are written before the last, which has the trees."""
    state = {f"part{number}": np.full(OWN_PACK_BYTES // 8 - 1000, number, np.float64) for number in range(10)}
    store.run("main").commit(state, step=1)
    packs = sorted(path.stat().st_size for path in (store.path / "packs").glob("*/*"))
    assert len(packs) == 3
    assert packs[-1] < 6 * OWN_PACK_BYTES
    assert store.verify().ok


def test_a_commit_needs_little_memory_beside_the_state(store: cairn.Store) -> None:
    """800 MiB in long, cut, turned and many short tensors, in a process of its own, cost less than 256 MiB more."""
    script = f"""
import resource, numpy as np, cairn
state = {{
    "long": {{str(n): np.full(8 << 20, n, np.float32) for n in range(8)}},
    "cut": np.arange(25 << 20, dtype=np.float64),
    "short": {{str(n): np.full(4000, n, np.float32) for n in range(4000)}},
    "middle": [np.full(1 << 20, n, np.float64) for n in range(10)],
    "turned": [np.full((100 << 10, 1 << 7), n, np.float64).T for n in range(2)],
}}
run = cairn.open({str(store.path)!r}).run("main")
run.commit({{"tiny": np.zeros(3)}})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run.commit(state, step=1)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert 0 <= int(done.stdout) < 256


def test_a_commit_whose_packs_are_lost_meanwhile_needs_little_memory(store: cairn.Store) -> None:
    """What it took for shared is written after all, counts as new, and is not gathered in memory first."""
    script = f"""
import pathlib, resource, numpy as np, cairn
store = cairn.open({str(store.path)!r})
run = store.run("main")
state = {{"long": [np.full(48 << 20, n, np.uint8) for n in range(8)]}}
run.commit(state, step=1)
run.plan(state)
for pack in pathlib.Path({str(store.path)!r}, "packs").glob("*/*"):
    pack.unlink()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run.commit(state, step=2)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
assert run.last.new_bytes > 384 << 20, run.last
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert 0 <= int(done.stdout) < 256
    assert store.verify(["step:2"]).ok


def test_buffers_are_private_to_a_process_and_few_are_kept() -> None:
    """What a forked child writes into one is not seen here."""
    taken = [buffers.take() for _ in range(buffers.KEPT_BUFFERS + 3)]
    taken[-1][:5] = b"older"
    child = os.fork()
    if child == 0:
        taken[-1][:5] = b"child"
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bytes(taken[-1][:5]) == b"older"
    while taken:
        buffers.give(taken.pop())
    assert len(buffers._free) == buffers.KEPT_BUFFERS


@pytest.mark.parametrize("threads", [1, 2, 100])
def test_a_hash_is_the_same_on_any_number_of_cores(threads: int) -> None:
    """Whether the bytes are long enough for several or not."""
    data = bytes_of(3 << 20)
    assert blob_id(data, threads) == blob_id(data) == blob_id(bytes(data))
