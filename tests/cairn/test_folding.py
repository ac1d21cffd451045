"""Old entries are folded by gc: a long history is a few files, and every answer is the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn
from cairn.io import folding
from cairn.io.disk import Disk
from cairn.io.entries import Entries
from cairn.io.folds import FoldedFile
from cairn.store.store import open_store


def state(step: int) -> dict[str, Any]:
    """Make a small state."""
    return {"model": {"w": np.arange(4.0) + step}}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold from four entries on, and keep snapshots from the second on."""
    monkeypatch.setattr("cairn.io.folds.SIZES", (4, 16, 64))
    monkeypatch.setattr("cairn.history.journal.SNAPSHOT_ENTRIES", 2)


@pytest.fixture
def long(store: cairn.Store, small_blocks: None) -> cairn.Store:
    """A store whose run has 40 commits, an attempt, a drop and a tag."""
    run = store.run()
    for step in range(1, 31):
        run.commit(state(step), step=step, epoch=step // 10, metrics={"loss": 1 / step, "odd": step % 2})
    run.resume(step=20)
    for step in range(21, 31):
        run.commit(state(100 + step), step=step, epoch=step // 10, metrics={"loss": 2 / step})
    store.drop(["step:3", "step:4"])
    store.tag("kept", "step:7")
    return store


def names(store: cairn.Store) -> list[str]:
    """Return the files of the run's log."""
    return sorted(path.name for path in (store.path / "runs" / "main").iterdir())


def answers(store: cairn.Store) -> dict[str, object]:
    """Ask for everything that entries tell."""
    return {
        "log": list(store.log()),
        "reflog": store.run().reflog(),
        "steps": [store.commit(f"step:{step}") for step in range(1, 31)],
        "epoch": store.commit("epoch:1"),
        "best": store.commit("best:loss"),
        "odd": store.commit("best:odd:max"),
        "attempt": store.commit("main/attempt-1"),
        "ids": [store.commit(commit.id[:10]) for commit in store.log()],
        "tag": store.tags(),
        "back": store.commit("latest~15"),
    }


def test_folded_entries_give_the_same_answers(long: cairn.Store) -> None:
    """With and without index, and to a handle that was open before, which then goes on committing."""
    before, run = answers(long), long.run()
    with cairn.open(long.path) as other:
        plan = other.gc(dry_run=True)
        assert (plan.foldable, plan.folded) == (40, 0)
        assert other.gc().folded == 40
    assert names(long) == [
        "00000001-00000016.jsonl",
        "00000017-00000032.jsonl",
        "00000033-00000036.jsonl",
        "00000037-00000040.jsonl",
        "00000041.json",
    ]
    assert answers(long) == before
    for _ in range(2):
        with cairn.open(long.path) as store:
            assert answers(store) == before
            assert store.verify().ok
        for path in long.path.glob("index.sqlite*"):
            path.unlink()
    run.commit(state(31), step=31)
    assert [commit.step for commit in long.log()][:2] == [31, 30]


def test_folding_goes_on_and_joins_blocks(long: cairn.Store) -> None:
    """Short blocks become parts of longer ones, so a long log stays a few files."""
    long.gc()
    run = long.run()
    for step in range(31, 60):
        run.commit(state(step), step=step)
    before = answers(long)
    assert long.gc().folded == 28
    assert names(long) == ["00000001-00000064.jsonl", "00000065-00000068.jsonl", "00000069.json", "00000070.json"]
    assert answers(long) == before
    assert long.gc().folded == 0


def test_a_run_of_some_hundred_commits_folds_by_itself(store: cairn.Store) -> None:
    """With the real sizes: 128 entries in one file, each as it was."""
    run = store.run()
    for step in range(130):
        run.commit({"model": step % 2}, step=step)
    folder = store.path / "runs" / "main"
    lines = [path.read_bytes() for path in sorted(folder.iterdir())]
    assert store.gc().folded == 128
    assert names(store) == ["00000001-00000128.jsonl", "00000129.json", "00000130.json"]
    assert (folder / "00000001-00000128.jsonl").read_bytes() == b"".join(lines[:128])
    assert [commit.step for commit in store.log()] == list(range(129, -1, -1))


def test_damage_in_a_folded_file_is_named_and_contained(long: cairn.Store) -> None:
    """The entry and the file are named; what does not depend on it is readable; gc stops."""
    long.gc()
    path = long.path / "runs" / "main" / "00000001-00000016.jsonl"
    data = bytearray(path.read_bytes())
    lines = data.split(b"\n")
    place = sum(len(line) + 1 for line in lines[:5]) + 200
    data[place] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with cairn.open(long.path) as store:
        assert store.commit("step:30").step == 30
        with pytest.raises(cairn.Damaged, match=r"00000001-00000016\.jsonl.*entry 6"):
            list(store.log())
        report = store.verify()
        assert (report.findings[0].code, report.findings[0].object) == ("entry", "entry 6 of run main")
        with pytest.raises(cairn.Damaged, match="gc stops"):
            store.gc()


def test_who_has_read_half_of_a_folded_file_reads_on_in_it(long: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever numbers it has: what is open shows no old state, and the next commit gets the next number."""
    half = open_store(long.path)
    assert len(list(half.log())) == 30
    for step in range(31, 41):
        long.run().commit(state(step), step=step)
    long.close()
    monkeypatch.setattr("cairn.io.folds.SIZES", (50,))
    with open_store(long.path) as other:
        assert other.gc().folded
    monkeypatch.setattr("cairn.io.folds.SIZES", (4, 16, 64))
    assert names(long) == ["00000001-00000050.jsonl", "00000051.json"]
    assert half.commit("latest").step == 40
    half.run().commit(state(41), step=41)
    half.close()
    with open_store(long.path) as again:
        assert [commit.step for commit in again.log()] == [*range(41, 0, -1)]


def test_a_damaged_entry_is_not_folded(long: cairn.Store) -> None:
    """A file that cannot be read stays where it is, and so do those of its block."""
    path = long.path / "runs" / "main" / "00000006.json"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"loss", b"lost"))
    folder = path.parent
    disk = Disk()
    blocks = folding.foldable(disk, folder)
    layout = long._core.layout
    assert blocks[0] == (1, 16)
    assert [folding.fold(disk, layout, "0" * 32, folder, block) for block in blocks] == [False, True, True, True]
    folding.clear(disk, folder)
    assert names(long)[:3] == ["00000001.json", "00000002.json", "00000003.json"]
    assert len(names(long)) == 16 + 3 + 1


def test_a_file_that_differs_from_its_folded_copy_is_not_removed(long: cairn.Store) -> None:
    """Only what is there twice, byte for byte, loses one of its places."""
    disk, folder = Disk(), long.path / "runs" / "main"
    folding.fold(disk, long._core.layout, "0" * 32, folder, (1, 4))
    path = folder / "00000002.json"
    path.chmod(0o644)
    path.write_bytes(b"something else")
    folding.clear(disk, folder)
    assert names(long)[:3] == ["00000001-00000004.jsonl", "00000002.json", "00000005.json"]


def test_after_a_power_cut_while_folded_entries_lost_their_files(long: cairn.Store) -> None:
    """Any of the removals may be undone: a snapshot that ends at an entry with a file of its own misses nothing."""
    expected = answers(long)
    with cairn.open(long.path) as store:
        store.gc()
    folder = long.path / "runs" / "main"
    entries = Entries(Disk(), folder)
    for seq in random.Random(5).sample(range(1, 41), 12):
        line, _ = next(entries.lines([seq]))
        (folder / f"{seq:08d}.json").write_bytes(line)
        with cairn.open(long.path) as store:
            run = store._core.journal
            run._snapshots = AtEntry(entries, seq, store)
            assert answers(store) == expected
    with cairn.open(long.path) as store:
        assert store.gc().folded == 12


class AtEntry:
    """A place for snapshots that has one of a run as it was at an entry."""

    def __init__(self, entries: Entries, seq: int, store: cairn.Store) -> None:
        from cairn.history import snapshot
        from cairn.history.run import Run

        core = store._core
        past = Run("main", core.disk, core.layout.runs, core.journal.run, until=seq).refresh()
        made = past.snapshot()
        assert made is not None
        entry = entries.entry(seq)
        self.parts = snapshot.write(snapshot.Snapshot(seq, entry.seal, made.rows, made.state))

    def snapshot(self, run: str, part: str) -> bytes | None:
        """Return a part."""
        return self.parts.get(part) if run == "main" else None

    def keep_snapshot(self, run: str, parts: object) -> None:
        """Keep none."""


def test_a_full_disk_does_not_stop_gc_from_freeing_space(long: cairn.Store) -> None:
    """Folding needs room for a copy; without it gc does the rest of its work."""

    class FullDisk(Disk):
        def create(self, path: Path, mode: int = 0o444) -> Any:
            if "fold" in path.name:
                raise OSError(28, "No space left on device", str(path))
            return super().create(path, mode)

    before = len(names(long))
    long.drop(["step:9"])
    with open_store(long.path, disk=FullDisk()) as store:
        plan = store.gc()
        assert plan.deleted
        assert plan.folded == 0
    assert len(names(long)) == before + 1


def test_a_block_may_be_folded_and_one_before_it_not(long: cairn.Store) -> None:
    """On a full disk there may be room for a later, smaller block only; every entry is read, wherever it stands."""

    class NearlyFullDisk(Disk):
        def create(self, path: Path, mode: int = 0o444) -> Any:
            if path.name.endswith("fold-1-16"):
                raise OSError(28, "No space left on device", str(path))
            return super().create(path, mode)

    before = answers(long)
    long.close()
    with open_store(long.path, disk=NearlyFullDisk()) as store:
        assert store.gc().folded == 24
    assert names(long)[14:18] == [
        "00000015.json",
        "00000016.json",
        "00000017-00000032.jsonl",
        "00000033-00000036.jsonl",
    ]
    (long.path / "index.sqlite").unlink()
    with open_store(long.path) as again:
        assert answers(again) == before
        assert again.verify().ok
        assert again.gc().folded == 16
        assert answers(again) == before


@pytest.mark.parametrize("name", ["999999999999999.json", "00000041-999999999999999.jsonl"])
@pytest.mark.parametrize("log", ["runs/main", "tags/kept", "settings"])
def test_a_name_with_a_huge_number_is_damage_and_takes_no_time(
    store: cairn.Store, monkeypatch: pytest.MonkeyPatch, log: str, name: str
) -> None:
    """Nothing counts up to it, and what stands before it is read."""
    monkeypatch.setattr("cairn.io.folds.SIZES", (4, 16))
    for step in range(1, 41):
        store.run().commit(state(step), step=step)
    store.tag("kept", "step:7")
    store.keep(["last:1000"])
    store.close()
    (store.path / log / name).write_text("{}\n")
    with cairn.open(store.path) as again:
        assert not again.verify().ok
        assert not again.verify(repair=True, sources=[store.path]).ok
        assert next(iter(again.log())).step == 40
        with pytest.raises(cairn.Damaged, match=r"999999999999999|000000(41|02)\.json"):
            again.gc()
        if log == "settings":
            assert again.gc(stored_rules=False).folded == 36
            assert len(list(again.log())) == 40


@pytest.mark.parametrize("seed", range(3))
def test_a_line_is_found_by_its_number(tmp_path: Path, seed: int) -> None:
    """In a file of lines of any length, in any order of asking."""
    draw = random.Random(seed)
    count = 500
    lines = [
        b'{"format":1,"seq":%d,"x":"%s"}\n' % (seq, b"y" * int(draw.paretovariate(0.6) * 40 % 60_000))
        for seq in range(201, 201 + count)
    ]
    path = tmp_path / "lines"
    path.write_bytes(b"".join(lines))
    file = FoldedFile(Disk(), path, 201, 200 + count)
    order = [*range(count), *draw.choices(range(count), k=200)]
    assert all(file.line(201 + at) == lines[at] for at in order)
    lines[250] = lines[250][20:]
    path.write_bytes(b"".join(lines))
    file = FoldedFile(Disk(), path, 201, 200 + count)
    assert all(file.line(201 + at) == lines[at] for at in draw.sample(range(count), 50))


@pytest.fixture(autouse=True)
def _no_leftovers(store: cairn.Store) -> Iterator[None]:
    """Whatever is folded, nothing stays in tmp or leases."""
    yield
    assert not list((store.path / "tmp").iterdir())
    assert [path.name for path in (store.path / "leases").iterdir() if path.name != "gc.lock"] == []
