"""How much verification reads, what each level finds, and what is remembered of it."""

from __future__ import annotations

import errno
import random
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.small import STATES, B, blob_of, build, changed, flip, manifest_of, pack_of

import cairn
from cairn.io.disk import Disk
from cairn.objects import hashing
from cairn.objects.inventory import Copy, Inventory
from cairn.objects.pack import Header, Place
from cairn.store.findings import Finding


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small store to damage."""
    return build(tmp_path / "copy")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A store of ten packs with a thousand bytes of tensor each."""
    with cairn.init(tmp_path / "many") as store:
        for step in range(10):
            store.run().commit({"model": np.full(125, step, "<f8")}, step=step)
    return tmp_path / "many"


class LaterDisk(Disk):
    """A disk whose clock can be put forward."""

    def __init__(self, later: timedelta) -> None:
        self.later = later

    def now(self) -> datetime:
        return datetime.now(UTC) + self.later


def findings(root: Path, level: str) -> list[Finding]:
    """Verify a store anew."""
    with cairn.open(root) as store:
        return list(store.verify(level=level).findings)


def test_quick_reads_no_tensor(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flipped tensor is not seen, for nobody looks: no byte of a pack is read but its header and its trees."""
    pack = pack_of(copy, blob_of(copy, "step:2", "model"))
    changed(pack, lambda data: flip(data, folders.head(pack)[1][blob_of(copy, "step:2", "model")][0]))
    read: list[int] = []
    read_at = Disk.read_at

    def seen(disk: Disk, path: Path, offset: int, size: int) -> bytes:
        read.append(size if path == pack and offset else 0)
        return read_at(disk, path, offset, size)

    monkeypatch.setattr(Disk, "read_at", seen)
    with cairn.open(copy) as store:
        report = store.verify(level="quick")
    assert (report.findings, report.bytes_read, report.packs_skipped) == ((), 0, 2)
    _, places, _ = folders.head(pack)
    assert sum(read) < sum(size for _, size in places.values())


@pytest.mark.parametrize("level", ["quick", "sample", "full"])
def test_every_level_finds_what_is_wrong_outside_tensors(copy: Path, level: str) -> None:
    """Entries, tags, headers, cut files, missing packs and trees are looked at however little is read."""
    manifest = manifest_of(copy, "step:2")
    pack = pack_of(copy, manifest)
    offset = folders.head(pack)[1][manifest][0]
    name = str(pack.relative_to(copy))
    for file, damage, code in (
        ("runs/main/00000001.json", lambda data: flip(data, 50), "entry"),
        ("tags/first/00000001.json", lambda data: data[:-1], "entry"),
        (name, lambda data: flip(data, 30), "pack"),
        (name, lambda data: data[:-1], "pack"),
        (name, lambda data: data + b"\0", "pack"),
        (name, lambda data: flip(data, offset + 3), "blob"),
    ):
        whole = (copy / file).read_bytes()
        changed(copy / file, damage)
        found = findings(copy, level)
        assert (file, code, "error") in {(each.file, each.code, each.level) for each in found}, (file, code)
        folders.write(copy / file, whole)
    pack.unlink()
    (missing,) = findings(copy, level)
    assert (missing.code, missing.file) == ("missing", name)


def test_an_unknown_level_or_share_is_refused(copy: Path) -> None:
    """Before anything is read, with what was expected."""
    with cairn.open(copy) as store:
        for options, words in (
            ({"level": "fast"}, "full, sample, quick"),
            ({"level": "sample", "sample": 0.0}, "above 0"),
            ({"level": "sample", "sample": 1.5}, "up to 1"),
            ({"max_age": timedelta(-1)}, "not negative"),
            ({"revisions": ["step:1"], "level": "sample"}, "whole store"),
            ({"revisions": ["step:1"], "repair": True}, "whole store"),
            ({"sources": [copy]}, "together with repair"),
        ):
            with pytest.raises(cairn.UsageError, match=words):
                store.verify(**options)


def test_samples_add_up_to_everything(many: Path) -> None:
    """Each sample reads what was read longest ago, so ten tenths find any damage."""
    blob = blob_of(many, "step:7", "model")
    pack = pack_of(many, blob)
    changed(pack, lambda data: flip(data, folders.head(pack)[1][blob][0]))
    found = []
    for number in range(10):
        with cairn.open(many, disk=LaterDisk(timedelta(minutes=number))) as store:
            report = store.verify(level="sample", sample=0.1)
            found.append(not report.ok)
            assert report.packs_skipped == (8 if number and found[-2] else 9)
    assert found == sorted(found), "what was found once is found each time"
    assert found[-1]


def test_what_was_read_lately_is_not_read_again(many: Path) -> None:
    """max_age skips it; a pack that is new, or was read longer ago, is read. Losing the index only means reading."""
    with cairn.open(many) as store:
        assert store.verify().packs_skipped == 0
        again = store.verify(max_age=timedelta(days=30))
        assert (again.packs_skipped, again.bytes_read, again.ok) == (10, 0, True)
        store.run().commit({"model": np.arange(3.0)}, step=99)
        assert store.verify(max_age=timedelta(days=30)).packs_skipped == 10
    with cairn.open(many, disk=LaterDisk(timedelta(days=31))) as store:
        assert store.verify(max_age=timedelta(days=30)).packs_skipped == 0
    for file in many.glob("index.sqlite*"):
        file.unlink()
    with cairn.open(many) as store:
        assert store.verify(max_age=timedelta(days=30)).packs_skipped == 0
    # As after a clock that was ahead was put right: a time to come proves nothing.
    with cairn.open(many, disk=LaterDisk(timedelta(days=-1))) as store:
        assert store.verify(max_age=timedelta(days=30)).packs_skipped == 0


def test_a_damaged_pack_is_never_taken_for_read(copy: Path) -> None:
    """What was found wrong is read again each time."""
    pack = pack_of(copy, blob_of(copy, "step:2", "model"))
    changed(pack, lambda data: flip(data, folders.head(pack)[1][blob_of(copy, "step:2", "model")][0]))
    for _ in range(2):
        with cairn.open(copy) as store:
            report = store.verify(max_age=timedelta(days=1))
            assert not report.ok


def test_a_damaged_copy_beside_a_good_one_is_a_warning(copy: Path, tmp_path: Path) -> None:
    """Nothing is lost, so the store is sound; the finding says how the copy is removed."""
    with cairn.init(tmp_path / "other") as other:
        other.run().commit(STATES[2], step=2)
    (twin,) = folders.packs(tmp_path / "other")
    blob = blob_of(copy, "step:2", "model")
    target = copy / "packs" / twin.parent.name / twin.name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(flip(twin.read_bytes(), folders.head(twin)[1][blob][0]))
    with cairn.open(copy) as store:
        report = store.verify()
    (finding,) = report.findings
    assert (report.ok, finding.level, finding.code) == (True, "warning", "copy")
    assert "--repair" in finding.hint


def test_hints_name_the_command_to_run(copy: Path) -> None:
    """A damaged tip is rewound, another step dropped; bytes may come from elsewhere; entries from a copy."""
    for revision, words in (("step:2", "`cairn rewind main~1`"), ("step:1", "else `cairn drop ")):
        pack = pack_of(copy, blob_of(copy, revision, "model"))
        whole = pack.read_bytes()
        changed(
            pack,
            lambda data, pack=pack, revision=revision: flip(  # type: ignore[misc]
                data, folders.head(pack)[1][blob_of(copy, revision, "model")][0]
            ),
        )
        (finding,) = findings(copy, "full")
        assert words in finding.hint
        assert "`cairn verify --repair --from PATH`" in finding.hint
        folders.write(pack, whole)
    changed(copy / "runs/main/00000001.json", lambda data: flip(data, 9))
    (finding,) = findings(copy, "full")
    assert "`cairn verify --repair --from PATH`" in finding.hint


def test_large_stores_are_read_by_several_threads(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several threads find is what one finds, however the packs are parted."""
    blob = blob_of(many, "step:3", "model")
    pack = pack_of(many, blob)
    changed(pack, lambda data: flip(data, folders.head(pack)[1][blob][0] + 999))
    alone = findings(many, "full")
    monkeypatch.setattr(hashing, "ALONE_BYTES", 0)
    monkeypatch.setattr(hashing, "STRETCH_BYTES", 1)
    monkeypatch.setattr(hashing, "WINDOW_BYTES", 100)
    threads = set()
    check = hashing._check

    def seen(*args: object) -> object:
        threads.add(threading.current_thread().name)
        return check(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(hashing, "_check", seen)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2})
    assert findings(many, "full") == alone
    assert len(alone) == 1
    assert "MainThread" not in threads


class BadBlock(Disk):
    """A disk that cannot read one byte of a file."""

    def __init__(self, path: Path, at: int) -> None:
        self._path, self._at = path, at

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        if path == self._path and offset <= self._at < offset + size and offset:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return super().read_at(path, offset, size)


def test_a_bad_block_hits_only_the_blob_in_it(copy: Path) -> None:
    """Blobs beside it are read one by one and found whole."""
    pack = pack_of(copy, blob_of(copy, "step:2", "model"))
    offset, _ = folders.head(pack)[1][blob_of(copy, "step:2", "model")]
    with cairn.open(copy, disk=BadBlock(pack, offset)) as store:
        (finding,) = store.verify().findings
    assert blob_of(copy, "step:2", "model") in finding.object
    assert "cannot be read" in finding.found


def test_progress_tells_the_bytes_to_come_and_those_read(copy: Path) -> None:
    """All of what is expected is advanced, headers aside."""
    expected: list[int] = []
    moved: list[int] = []
    with cairn.open(copy) as store:
        report = store.verify(expect=expected.append, advance=moved.append)
    assert sum(expected) == report.bytes == report.bytes_read
    assert 0 < sum(moved) <= sum(expected)


def test_bit_rot_is_reported_in_full(tmp_path: Path) -> None:
    """ROT-01: flips, a missing pack, swapped files, a byte too many: each is named with what it is and what it hits."""
    root = tmp_path / "store"
    with cairn.init(root) as store:
        for step in range(8):
            store.run().commit({"model": {"w": np.full(40, step, "<f8"), "v": B + step}}, step=step)
    packs = [pack_of(root, blob_of(root, f"step:{step}", "model/w")) for step in range(8)]
    for step in (0, 1):
        offset, _ = folders.head(packs[step])[1][blob_of(root, f"step:{step}", "model/w")]
        changed(packs[step], lambda data, offset=offset: flip(data, offset))  # type: ignore[misc]
    tree = manifest_of(root, "step:2")
    changed(packs[2], lambda data: flip(data, folders.head(packs[2])[1][tree][0]))
    packs[3].unlink()
    one, two = packs[4].read_bytes(), packs[5].read_bytes()
    folders.write(packs[4], two)
    folders.write(packs[5], one)
    changed(packs[6], lambda data: data + b"\0")
    changed(root / "index.sqlite", lambda data: flip(data, 2000))
    with cairn.open(root) as store:
        report = store.verify()
        codes = {(finding.code, finding.file) for finding in report.findings}
        names = [str(pack.relative_to(root)) for pack in packs]
        assert {("blob", names[0]), ("blob", names[1]), ("blob", names[2]), ("missing", names[3])} <= codes
        assert {("pack", names[4]), ("pack", names[5]), ("pack", names[6])} <= codes
        hit = {step for finding in report.findings for step in finding.steps}
        assert {" ".join(step.split()[:3]) for step in hit} == {f"main step {step}" for step in range(7)}
        np.testing.assert_array_equal(store.load("step:7")["model"]["w"], np.full(40, 7.0))
        for step in range(7):
            with pytest.raises(cairn.Damaged):
                store.load(f"step:{step}")
    # Quick finds all of it but the two tensors.
    quick = {(finding.code, finding.file) for finding in findings(root, "quick")}
    assert codes - quick == {("blob", names[0]), ("blob", names[1])}


def test_damage_names_every_step_that_it_hits(tmp_path: Path) -> None:
    """Trees that commits share are read once, and yet each commit that needs a damaged blob is named."""
    root = tmp_path / "store"
    shared = {"w": np.arange(50.0), "x": np.arange(7.0)}
    with cairn.init(root) as store:
        for step in range(5):
            store.run().commit({"model": shared, "own": np.full(3, step)}, step=step)
    blob = blob_of(root, "step:0", "model/w")
    pack = pack_of(root, blob)
    changed(pack, lambda data: flip(data, folders.head(pack)[1][blob][0]))
    (finding,) = findings(root, "full")
    assert finding.steps == tuple(f"main step {step} model/w" for step in range(5))


def test_an_inventory_finds_every_copy_and_nothing_else() -> None:
    """Ids that begin alike, that contain each other's digits and whose records lie side by side are told apart."""
    rng = random.Random(0)
    # Few different bytes: digits of one id occur across the records of others.
    ids = {"0000" + "".join(rng.choice(("00", "01")) for _ in range(30)) for _ in range(2000)}
    packs = {f"{number:064x}": sorted(rng.sample(sorted(ids), 500)) for number in range(3)}
    inventory = Inventory()
    for pack_id, blobs in packs.items():
        places = {blob: Place(number, number + 1, number % 2 == 1) for number, blob in enumerate(blobs)}
        inventory.enter(pack_id, Header(pack_id, "0" * 32, 1, places))
    gone = f"{1:064x}"
    for forgotten in ((), (gone,)):
        for pack_id in forgotten:
            inventory.forget(pack_id)
        for blob in ids:
            expected = [
                Copy(pack_id, blobs.index(blob), blobs.index(blob) + 1, blobs.index(blob) % 2 == 1)
                for pack_id, blobs in packs.items()
                if blob in blobs and pack_id not in forgotten
            ]
            assert list(inventory.copies(blob)) == expected
    assert inventory.blobs == len({blob for blobs in packs.values() for blob in blobs})


def test_packs_without_any_commit_are_told(store: cairn.Store) -> None:
    """A store whose runs are gone is no intact one: it may be a copy that is not complete."""
    store.run().commit({"a": 1}, step=1)
    shutil.rmtree(store.path / "runs" / "main")
    with cairn.open(store.path) as again:
        report = again.verify()
    assert [(each.level, each.code) for each in report.findings] == [("warning", "history")]
    assert "run no gc before" in report.findings[0].hint
