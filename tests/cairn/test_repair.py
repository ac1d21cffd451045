"""What is damaged is mended from where good bytes are, and from nowhere else; what cannot be mended stays reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cairn import folders
from tests.cairn.describe import describe
from tests.cairn.small import STATES, blob_of, changed, flip, manifest_of, pack_of
from tests.cairn.small import build as build_small

import cairn
from cairn.io import folding
from cairn.store.findings import Report

STATE = {"model": {"w": np.arange(300.0), "b": np.arange(5, dtype="<f4")}, "optimizer": {"m": np.arange(64.0), "t": 1}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with two commits that share nothing but a component."""
    root = tmp_path / "store"
    with cairn.init(root) as store:
        store.run().commit(STATE, step=1)
        store.run().commit({**STATE, "model": {"w": np.arange(300.0) + 1, "b": np.arange(5.0)}}, step=2)
    return root


def spoil(root: Path, blob: str) -> Path:
    """Flip a bit of a blob; return its pack."""
    pack = pack_of(root, blob)
    changed(pack, lambda data: flip(data, folders.head(pack)[1][blob][0]))
    return pack


def repair(root: Path, *sources: Path, dry_run: bool = False, level: str = "full") -> Report:
    """Open a store and repair it."""
    with cairn.open(root) as store:
        return store.verify(repair=True, sources=sources, dry_run=dry_run, level=level)


def whole(root: Path) -> bool:
    """Whether a store is sound, has nothing to warn of, and holds what was committed."""
    with cairn.open(root) as store:
        report = store.verify()
        return report.findings == () and describe(store.load("step:1")) == describe(STATE)


def make_safetensors(folder: Path) -> Path:
    """A file whose tensors are those of the state."""
    folder.mkdir()
    save_file({"any.name": STATE["model"]["w"]}, folder / "model.safetensors")  # type: ignore[index]
    return folder / "model.safetensors"


def make_npz(folder: Path) -> Path:
    """An archive with the arrays of the state."""
    folder.mkdir()
    np.savez(folder / "arrays.npz", x=np.ones(3), w=STATE["model"]["w"])  # type: ignore[index]
    return folder / "arrays.npz"


def make_plain(folder: Path) -> Path:
    """A file that is the bytes of a tensor and nothing else."""
    folder.mkdir()
    (folder / "weights.bin").write_bytes(STATE["model"]["w"].tobytes())  # type: ignore[index]
    return folder / "weights.bin"


@pytest.mark.parametrize("make", [make_safetensors, make_npz, make_plain])
@pytest.mark.parametrize("within", [False, True], ids=["file", "folder"])
def test_a_tensor_is_mended_from_a_file_that_holds_it(
    root: Path, tmp_path: Path, make: Callable[[Path], Path], within: bool
) -> None:
    """By its bytes, whatever it is called there: the file itself, or a folder somewhere above it."""
    file = make(tmp_path / "out")
    pack = spoil(root, blob_of(root, "step:1", "model/w"))
    report = repair(root, tmp_path / "out" if within else file)
    assert report.repair is not None
    ((mend,), (aside,)) = (report.repair.mended, report.repair.set_aside)
    assert (mend.source, mend.bytes, mend.steps) == (str(file), 2400, ("main step 1 model/w",))
    assert aside in pack.name
    assert not pack.exists()
    assert report.findings == ()
    assert whole(root)


def test_a_file_that_was_committed_is_mended_from_itself(tmp_path: Path) -> None:
    """Its tensors and what lies between them, which is stored as one blob."""
    file = make_safetensors(tmp_path / "out")
    with cairn.init(tmp_path / "store") as store:
        store.run().commit({"files": cairn.folder(file.parent)}, step=1)
        blobs = {ref.id for ref in store.ls("step:1", "model.safetensors")[0].blobs}
    for blob in blobs:
        spoil(tmp_path / "store", blob)
    report = repair(tmp_path / "store", file)
    assert report.repair is not None
    assert {mend.blob for mend in report.repair.mended} == blobs
    with cairn.open(tmp_path / "store") as store:
        assert store.verify().findings == ()
        (made,) = store.checkout("step:1", tmp_path / "back")
        assert made.read_bytes() == file.read_bytes()


def test_a_tensor_that_is_cut_is_mended_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large tensor is stored in pieces; the ones that are damaged are found in a file with the whole."""
    monkeypatch.setattr("cairn.objects.cutting.WHOLE_BYTES", 1 << 12)
    monkeypatch.setattr("cairn.objects.cutting.PIECE_BYTES", 1 << 10)
    big = np.arange(1000.0)
    with cairn.init(tmp_path / "store") as store:
        store.run().commit({"model": big}, step=1)
        pieces = store.ls("step:1", "model")[0].blobs
    assert len(pieces) == 8
    spoil(tmp_path / "store", pieces[3].id)
    spoil(tmp_path / "store", pieces[7].id)
    save_file({"x": big}, tmp_path / "big.safetensors")
    assert repair(tmp_path / "store", tmp_path / "big.safetensors").findings == ()


def test_everything_is_mended_from_a_copy_of_the_store(root: Path, tmp_path: Path) -> None:
    """Missing packs, trees with all below them, and tensors; the copy is not touched."""
    twin = Path(shutil.copytree(root, tmp_path / "twin"))
    before = folders.listing(twin)
    for pack in folders.packs(root):
        pack.unlink()
    assert not repair(root).ok
    report = repair(root, twin)
    assert report.findings == ()
    assert report.repair is not None
    assert {mend.source for mend in report.repair.mended} == {str(twin)}
    assert whole(root)
    assert folders.listing(twin) == before


def test_a_blob_is_mended_from_any_other_store_that_has_it(root: Path, tmp_path: Path) -> None:
    """Another store's id does not matter: bytes that hash right are right."""
    with cairn.init(tmp_path / "other") as other:
        other.run("another").commit({"x": [STATE["model"]["w"]]}, step=77)  # type: ignore[index]
    spoil(root, blob_of(root, "step:1", "model/w"))
    assert repair(root, tmp_path / "other").findings == ()
    assert whole(root)


def test_a_damaged_copy_goes_where_another_is_good(root: Path, tmp_path: Path) -> None:
    """Without any other source; good blobs that only the damaged pack had are saved."""
    blob = blob_of(root, "step:1", "model/w")
    with cairn.init(tmp_path / "other") as other:
        other.run().commit({"x": STATE["model"]["w"]}, step=1)  # type: ignore[index]
    (twin,) = folders.packs(tmp_path / "other")
    (root / "packs" / twin.parent.name).mkdir(exist_ok=True)
    shutil.copy(twin, root / "packs" / twin.parent.name)
    bad = next(pack for pack in folders.packs(root) if pack.name != twin.name and blob in folders.head(pack)[1])
    changed(bad, lambda data: flip(data, folders.head(bad)[1][blob][0]))
    report = repair(root)
    assert report.repair is not None
    assert report.repair.mended == ()
    assert report.repair.saved_blobs == len(folders.head(next((root / "damaged").iterdir()))[1]) - 1
    assert whole(root)


def test_a_pack_in_the_trash_mends(root: Path) -> None:
    """What was moved there is still the store's."""
    blob = blob_of(root, "step:1", "model/w")
    pack = pack_of(root, blob)
    good = pack.read_bytes()
    (root / "trash" / f"{'0' * 32}.{pack.name}").write_bytes(good)
    spoil(root, blob)
    with cairn.open(root) as store:
        assert store.verify().ok
    assert repair(root).findings == ()
    for file in (root / "trash").iterdir():
        file.unlink()
    assert whole(root)


def test_a_pack_whose_header_is_damaged_is_saved_by_its_hashes(root: Path) -> None:
    """Each bit of its header that flips: what the header still leads to is proven by its hash, and nothing is lost."""
    pack = pack_of(root, blob_of(root, "step:1", "model/w"))
    whole_bytes, (_, _, start) = pack.read_bytes(), folders.head(pack)
    for place in range(0, start, 23):
        folders.write(pack, flip(whole_bytes, place))
        report = repair(root)
        assert report.findings == (), place
        assert not pack.exists()
        assert whole(root), place
        for file in (root / "damaged").iterdir():
            file.unlink()
        pack.write_bytes(whole_bytes)
        with cairn.open(root) as store:
            store.gc(patience=0)


def test_what_cannot_be_mended_stays_and_is_told(root: Path, tmp_path: Path) -> None:
    """The pack stays where it is, the rest of it is readable, and what could be mended is."""
    lost, found = blob_of(root, "step:1", "model/w"), blob_of(root, "step:2", "model/w")
    pack, other = spoil(root, lost), spoil(root, found)
    (tmp_path / "w.bin").write_bytes((np.arange(300.0) + 1).tobytes())
    report = repair(root, tmp_path / "w.bin")
    assert report.repair is not None
    assert [mend.blob for mend in report.repair.mended] == [found]
    assert report.repair.left == (pack.stem,)
    assert report.repair.set_aside == (other.stem,)
    (finding,) = report.findings
    assert (finding.code, finding.steps) == ("blob", ("main step 1 model/w",))
    with cairn.open(root) as store:
        assert describe(store.load("step:1", only={"optimizer"})) == describe({"optimizer": STATE["optimizer"]})
        np.testing.assert_array_equal(store.load("step:2")["model"]["w"], np.arange(300.0) + 1)


def test_a_repair_that_must_leave_something_writes_nothing_twice(root: Path) -> None:
    """What was saved of a pack with a wrong header is not saved again as long as that pack has to stay."""
    blob = blob_of(root, "step:1", "model/w")
    pack = spoil(root, blob)
    changed(pack, lambda data: flip(data, 20))
    first = repair(root)
    assert first.repair is not None
    assert (first.ok, first.repair.left) == (False, (pack.stem,))
    assert first.repair.packs
    before = folders.files(root)
    again = repair(root)
    assert again.repair is not None
    assert (again.repair.packs, again.repair.left) == ((), (pack.stem,))
    assert folders.files(root) == before


def test_wrong_bytes_mend_nothing(root: Path, tmp_path: Path) -> None:
    """Files with the right name, shape and size and another content are no source."""
    spoil(root, blob_of(root, "step:1", "model/w"))
    save_file({"w": np.arange(300.0) + 7}, tmp_path / "model.safetensors")
    before = folders.files(root)
    report = repair(root, tmp_path / "model.safetensors")
    assert not report.ok
    assert folders.files(root) == before


def test_a_dry_run_says_what_would_be_done_and_does_nothing(root: Path, tmp_path: Path) -> None:
    """Down to what stands below a tree that is missing."""
    twin = Path(shutil.copytree(root, tmp_path / "twin"))
    pack_of(root, manifest_of(root, "step:1")).unlink()
    before = folders.files(root)
    plan = repair(root, twin, dry_run=True)
    assert plan.repair is not None
    assert (plan.ok, plan.repair.executed) == (False, False)
    assert folders.files(root) == before
    done = repair(root, twin)
    assert done.repair is not None
    assert done.repair.mended == plan.repair.mended
    assert done.ok


def test_quick_finds_and_mends_what_it_can_see(root: Path, tmp_path: Path) -> None:
    """A damaged tree and a missing pack, with the rest of the damaged pack read before it goes."""
    twin = Path(shutil.copytree(root, tmp_path / "twin"))
    spoil(root, manifest_of(root, "step:1"))
    spoil(root, blob_of(twin, "step:1", "model/w"))
    report = repair(root, twin, level="quick")
    assert report.repair is not None
    assert len(report.repair.mended) == 2
    assert whole(root)


def test_a_source_that_is_not_there_is_refused(root: Path, tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(cairn.NotFound, match="nothing there"):
        repair(root, tmp_path / "nowhere")


def test_a_repair_waits_for_no_gc(root: Path) -> None:
    """One of both at a time; the other is told who is at work."""
    from cairn.io.disk import Disk
    from cairn.io.layout import Layout
    from cairn.io.leases import sole_gc

    with sole_gc(Disk(), Layout(root)), pytest.raises(cairn.Busy):
        repair(root)


# Entries.


@pytest.fixture
def history(tmp_path: Path) -> tuple[Path, Path]:
    """A store with a run of two commits and a tag, and a copy of it."""
    root = build_small(tmp_path / "store")
    return root, Path(shutil.copytree(root, tmp_path / "twin"))


@pytest.mark.parametrize("entry", ["runs/main/00000001.json", "runs/main/00000002.json", "tags/first/00000001.json"])
@pytest.mark.parametrize("how", ["flip", "cut", "empty"])
def test_a_damaged_entry_comes_back_from_a_copy(history: tuple[Path, Path], entry: str, how: str) -> None:
    """The copy's is put in its place, and the damaged one is kept aside."""
    root, twin = history
    good = (root / entry).read_bytes()
    bad = {"flip": flip(good, 99), "cut": good[:50], "empty": b""}[how]
    folders.write(root / entry, bad)
    report = repair(root, twin)
    assert report.findings == ()
    assert report.repair is not None
    assert [(mended.file, mended.source) for mended in report.repair.entries] == [(entry, str(twin))]
    assert (root / entry).read_bytes() == good
    assert [path.read_bytes() for path in (root / "damaged").iterdir()] == [bad]
    with cairn.open(root) as store:
        assert describe(store.load("latest")) == describe(STATES[2])
        store.run().commit(STATES[1], step=3)


def test_missing_entries_come_back_one_and_all(history: tuple[Path, Path]) -> None:
    """Below the newest, which names the one before it."""
    root, twin = history
    with cairn.open(root) as store:
        for step in (3, 4):
            store.run().commit(STATES[1], step=step)
    for entry in ("00000001.json", "00000002.json"):
        (root / "runs/main" / entry).unlink()
    assert repair(root, twin).findings == ()
    assert (root / "runs/main/00000002.json").read_bytes() == (twin / "runs/main/00000002.json").read_bytes()


def test_a_folded_file_is_mended_line_by_line(history: tuple[Path, Path]) -> None:
    """Lines that can be read stay; those that cannot are the copy's."""
    root, twin = history
    with cairn.open(root) as store:
        store.run().commit(STATES[1], step=3)
    entries = [root / "runs/main" / f"{number:08d}.json" for number in (1, 2)]
    data = b"".join(path.read_bytes() for path in entries)
    for path in entries:
        path.unlink()
    folded = root / "runs/main/00000001-00000002.jsonl"
    folded.write_bytes(flip(data, 80))
    assert repair(root, twin).findings == ()
    assert folded.read_bytes() == data


def test_a_folded_file_is_mended_by_entries_that_have_kept_their_own(tmp_path: Path) -> None:
    """A gc that was killed leaves both: what is right in one mends the other, without any copy of the store."""
    with cairn.init(tmp_path / "store") as store:
        for step in range(1, 140):
            store.run().commit({"model": {"w": np.arange(4)}}, step=step)
        core, folder = store._core, tmp_path / "store" / "runs" / "main"
        assert folding.fold(core.disk, core.layout, "0" * 32, folder, (1, 128))
    changed(folder / "00000001-00000128.jsonl", lambda data: flip(data, 5000))
    with cairn.open(tmp_path / "store") as store:
        assert not store.verify().ok
        done = store.verify(repair=True).repair
        assert done is not None
        assert [each.file for each in done.entries] == ["runs/main/00000001-00000128.jsonl"]
        assert store.verify().ok
        assert store.gc().folded == 128
        assert len(list(store.log())) == 139


def test_entries_come_from_no_other_store(history: tuple[Path, Path], tmp_path: Path) -> None:
    """A store of another id has another history, however alike it looks; nor does one whose history went apart."""
    root, twin = history
    changed(root / "runs/main/00000001.json", lambda data: flip(data, 99))
    other = build_small(tmp_path / "other")
    assert not repair(root, other).ok
    (twin / "runs/main/00000001.json").chmod(0o644)
    document = folders.entry(twin, "runs/main", 1)
    (twin / "runs/main/00000001.json").write_bytes(folders.seal({**document, "time": "2020-01-01T00:00:00.000000Z"}))
    assert not repair(root, twin).ok
    assert not (root / "damaged").exists()


def test_what_an_unreadable_entry_needs_is_not_given_up(history: tuple[Path, Path]) -> None:
    """While the history is damaged nobody knows what is needed: damage is an error, and damaged packs stay."""
    root, twin = history
    pack = spoil(root, blob_of(root, "step:2", "model"))
    changed(root / "runs/main/00000002.json", lambda data: flip(data, 99))
    report = repair(root)
    assert {finding.code for finding in report.findings if finding.level == "error"} == {"entry", "blob"}
    assert pack.exists()
    assert repair(root, twin).findings == ()
    with cairn.open(root) as store:
        assert describe(store.load("step:2")) == describe(STATES[2])


def test_after_a_repair_of_a_short_blob_the_same_state_is_shared(root: Path, tmp_path: Path) -> None:
    """FALSE-01: what was damaged or short is mended, and the next commit of it shares what is right."""
    blob = blob_of(root, "step:1", "model/w")
    twin = Path(shutil.copytree(root, tmp_path / "twin"))
    changed(pack_of(root, blob), lambda data: data[:-1])
    assert repair(root, twin).ok
    with cairn.open(root) as store:
        run = store.run()
        run.commit(STATE, step=9)
        assert run.last is not None
        assert run.last.new_bytes == 0
        assert store.verify().findings == ()
