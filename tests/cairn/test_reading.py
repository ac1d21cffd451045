"""What a load reads of packs, on how many threads, into whose memory; and what it does about damage."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe

import cairn
from cairn.ids import blob_id
from cairn.io.disk import Disk
from cairn.io.handles import OpenFile
from cairn.objects import sweep
from cairn.state.encode import cut

MIB = 1 << 20


class Counting(Disk):
    """A disk that notes which bytes of which file are read or asked for."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, int, int]] = []
        self.asked: list[tuple[str, int, int]] = []

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        """Note what is read."""
        self.reads.append((path.stem, offset, size))
        return super().read_at(path, offset, size)

    def read_ahead(self, path: Path, offset: int, size: int) -> None:
        """Note what is asked for."""
        self.asked.append((path.stem, offset, size))
        super().read_ahead(path, offset, size)

    def open_file(self, path: Path | bytes) -> OpenFile:
        """Note what is read of the file."""
        file = super().open_file(path)
        read_into = file.read_into
        stem = Path(str(path)).stem

        def noted(offset: int, targets: list[memoryview]) -> None:
            self.reads.append((stem, offset, sum(target.nbytes for target in targets)))
            read_into(offset, targets)

        file.read_into = noted  # type: ignore[assignment,method-assign]
        return file


def state(seed: int, count: int = 6, size: int = 1 << 18) -> dict[str, Any]:
    """Make a state of arrays of 2 MiB that share nothing."""
    generator = np.random.default_rng(seed)
    return {name: {f"w{n}": generator.random(size) for n in range(count)} for name in ("model", "optimizer")}


def counted(store: cairn.Store, *, mapped: bool = True) -> tuple[Counting, cairn.Store]:
    """Open a store anew on a disk that counts."""
    disk = Counting()
    again = cairn.open(store.path)
    for holder in (again._core.blobs, again._core):
        object.__setattr__(holder, "_disk" if holder is again._core.blobs else "disk", disk)
    again._core.blobs.mapped = mapped
    return disk, again


def test_touching_one_tensor_reads_nothing_else(store: cairn.Store) -> None:
    """Of an opened commit, only the trees on the way and the tensor's own bytes are read or asked for."""
    store.run().commit(state(1), step=1)
    for mapped in (True, False):
        disk, again = counted(store, mapped=mapped)
        with again:
            lazy = again.open("latest")
            assert lazy["model"]["w3"].nbytes == 2 * MIB
        read = sum(size for _, _, size in disk.reads)
        assert read < MIB // 2 + (0 if mapped else 2 * MIB)
        assert sum(size for _, _, size in disk.asked) <= 2 * MIB
        assert len({pack for pack, _, size in disk.asked if size}) <= 1


def test_what_is_left_out_is_not_read(store: cairn.Store) -> None:
    """only= reads the packs of the components that it names."""
    store.run().commit(state(2, size=1 << 19), step=1)
    disk, again = counted(store)
    with again:
        again.load("latest", only={"model"}, copy=True)
    assert 24 * MIB <= sum(size for _, _, size in disk.reads) < 25 * MIB


def test_bytes_are_asked_for_before_they_are_used(store: cairn.Store) -> None:
    """All that is loaded is asked for once, so that a disk has many reads to do at a time."""
    store.run().commit(state(3), step=1)
    disk, again = counted(store)
    with again:
        again.load("latest")
    assert 24 * MIB <= sum(size for _, _, size in disk.asked) < 25 * MIB


def peak_of(do: Callable[[], object]) -> int:
    """Return how much memory something takes at most, as far as Python and numpy know."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read, as on a network file system"])
def test_a_copy_is_the_only_one(store: cairn.Store, *, mapped: bool) -> None:
    """copy=True, and any load that cannot map packs, reads each tensor straight into its array, pieces included."""
    large = np.arange(10 << 20, dtype="f8")
    assert len(cut(large.nbytes)) > 1
    store.run().commit({"model": {"large": large, "small": [np.arange(n, dtype="f4") for n in range(300)]}}, step=1)
    _, again = counted(store, mapped=mapped)
    with again:
        peak = peak_of(lambda: again.load("latest", copy=True))
        assert large.nbytes < peak < 1.1 * large.nbytes
        peak = peak_of(lambda: again.load("latest"))
        assert peak < (0.1 if mapped else 1.1) * large.nbytes
        assert np.array_equal(again.load("latest")["model"]["large"], large)
        target: dict[str, Any] = {
            "model": {"large": np.zeros_like(large), "small": [np.zeros(n, "f4") for n in range(300)]}
        }
        assert peak_of(lambda: again.load("latest", into=target)) < 0.1 * large.nbytes
        assert np.array_equal(target["model"]["large"], large)


def test_threads_bound_the_cores_of_a_load(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With threads=1 the caller's thread does everything; hashes take no more, either."""
    store.run().commit(state(4), step=1)
    seen: set[tuple[str, int | None]] = set()
    real = blob_id

    def noted(data: memoryview, threads: int | None = None) -> str:
        seen.add((threading.current_thread().name, threads))
        return real(data, threads)

    monkeypatch.setattr(sweep, "blob_id", noted)
    with cairn.open(store.path) as again:
        assert describe(again.load("latest", threads=1)) == describe(state(4))
    assert seen == {(threading.current_thread().name, 1)}


def damage(pack: Path) -> None:
    """Flip a bit in the first blob of a pack."""
    data = bytearray(pack.read_bytes())
    data[folders.head(pack)[2]] ^= 1
    folders.write(pack, bytes(data))


HOW: list[dict[str, Any]] = [{}, {"copy": True}, {"into": True}]


@pytest.mark.parametrize("how", HOW, ids=["view", "copy", "into"])
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read"])
def test_of_two_copies_the_good_one_is_loaded(store: cairn.Store, how: dict[str, Any], *, mapped: bool) -> None:
    """A damaged blob is taken from another pack that has it; where there is none, the error names blob and pack."""
    run = store.run()
    run.commit(state(5), step=1)
    (bad,) = [pack for pack in folders.packs(store.path) if pack.stat().st_size > MIB][:1]
    whole = bad.read_bytes()
    damage(bad)
    _, again = counted(store, mapped=mapped)
    options = {**how, "into": state(6)} if "into" in how else how
    with again, pytest.raises(cairn.Damaged, match=rf"blob [0-9a-f]{{64}} in .*{bad.name}: expected bytes that hash"):
        again.load("latest", **options)
    run.commit(state(7), step=2)
    with cairn.open(store.path) as writer:
        # Noted as damaged, so a commit of the same state writes the blob anew.
        with pytest.raises(cairn.Damaged):
            writer.load("step:1")
        writer.run().commit(state(5), step=3)
    assert bad.read_bytes() != whole
    _, again = counted(store, mapped=mapped)
    with again:
        assert describe(again.load("step:1", **options)) == describe(state(5))


@pytest.mark.parametrize("how", HOW, ids=["view", "copy", "into"])
def test_a_pack_that_moves_while_it_is_loaded_is_found_in_the_trash(
    store: cairn.Store, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """Between the look at its header and the reading of its bytes, gc may have taken a pack away."""
    store.run().commit(state(8), step=1)
    real = sweep.sweep
    moved: list[Path] = []

    def late(*arguments: Any) -> set[str]:
        if not moved:
            for pack in folders.packs(store.path):
                moved.append(store.path / "trash" / f"{'0' * 32}.{pack.name}")
                pack.rename(moved[-1])
        return real(*arguments)

    monkeypatch.setattr("cairn.objects.fetch.sweep", late)
    options = {**how, "into": state(9)} if "into" in how else how
    with cairn.open(store.path) as again:
        assert describe(again.load("latest", **options)) == describe(state(8))
    assert moved


def test_a_load_needs_no_thread(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system starts no thread, the caller's does everything; so does that of a checkout."""
    store.run().commit(state(10), step=1)

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with cairn.open(store.path) as again:
        assert describe(again.load("latest")) == describe(state(10))
        assert describe(again.load("latest", copy=True)) == describe(state(10))
        again.checkout("latest", store.path.parent / "out")


def test_an_error_in_one_thread_ends_the_work_of_all() -> None:
    """The first error is raised, and what was not begun is left."""
    begun: list[int] = []

    def work(at: int) -> int:
        begun.append(at)
        if at == 3:
            raise KeyboardInterrupt
        return at

    assert sweep.in_threads([partial(work, at) for at in range(3)], 2) == [0, 1, 2]
    with pytest.raises(KeyboardInterrupt):
        sweep.in_threads([partial(work, at) for at in range(9)], 2)
    begun.clear()
    with pytest.raises(KeyboardInterrupt):
        sweep.in_threads([partial(work, at) for at in range(9)], 1)
    assert begun == [0, 1, 2, 3]
