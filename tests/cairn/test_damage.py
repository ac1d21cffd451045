"""Damage is found, named and contained; nothing is repaired by guessing, and nothing is lost on top of it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cairn import folders
from tests.cairn.describe import describe
from tests.cairn.small import STATES, B, C, bad_files, blob_of, build, changed, flip, manifest_of, pack_of

import cairn
from cairn.io.disk import Disk
from cairn.store.reach import blobs_of


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small store to damage."""
    return build(tmp_path / "copy")


def places(root: Path) -> Iterator[tuple[str, int, str | None]]:
    """Every byte of every file that is not derived, with the blob it belongs to."""
    for name, data in folders.files(root).items():
        blobs: dict[int, str] = {}
        if name.startswith("packs/"):
            for blob, (offset, size) in folders.head(root / name)[1].items():
                blobs.update(dict.fromkeys(range(offset, offset + size), blob))
        for place in range(len(data)):
            yield name, place, blobs.get(place)


def needs(root: Path) -> dict[int, set[str]]:
    """Return the files and blobs that each step cannot be loaded without."""
    needed: dict[int, set[str]] = {}
    with cairn.open(root) as store:
        for step in STATES:
            commit = store.commit(f"step:{step}")
            names = {"cairn.json", f"runs/main/{step:08d}.json"}
            for blob in (ref.id for ref in blobs_of(store._core, commit.root, ())):
                names |= {blob, str(pack_of(root, blob).relative_to(root))}
            needed[step] = names
    return needed


def test_a_flip_of_any_byte_is_found_named_and_contained(copy: Path) -> None:
    """verify names the file, and the blob whose byte it is; steps that do not need it load as ever."""
    needed = needs(copy)
    expected = {step: describe(state) for step, state in STATES.items()}
    count = 0
    for name, place, blob in list(places(copy)):
        path = copy / name
        whole = path.read_bytes()
        folders.write(path, flip(whole, place))
        try:
            with cairn.open(copy) as store:
                findings = [finding for finding in store.verify().findings if finding.level == "error"]
                assert name in {finding.file for finding in findings}, (name, place)
                if blob is not None:
                    assert any(finding.file == name and blob in finding.object for finding in findings), (name, place)
                for step in STATES if place % 16 == 0 else ():
                    if not needed[step] & {blob or name}:
                        assert describe(store.load(f"step:{step}")) == expected[step]
                    elif blob is not None:
                        with pytest.raises(cairn.Damaged, match=blob):
                            store.load(f"step:{step}")
        except cairn.Damaged as error:
            if name != "cairn.json" or name not in str(error):
                raise
        finally:
            folders.write(path, whole)
        count += 1
    assert count == sum(map(len, folders.files(copy).values()))
    with cairn.open(copy) as store:
        assert store.verify().findings == ()


@pytest.mark.parametrize("keep", [0, 1, 8, 100, -1])
def test_a_file_that_was_cut_short_is_found(copy: Path, keep: int) -> None:
    """A shorter file, an empty one included, is found and named."""
    for name in folders.files(copy):
        whole = (copy / name).read_bytes()
        changed(copy / name, lambda data: data[:keep])
        assert name in bad_files(copy)
        folders.write(copy / name, whole)


@pytest.mark.parametrize("extra", [b"\n", b"\0", b" ", b'{"format":1}\n'])
def test_bytes_after_the_end_of_a_file_are_found(copy: Path, extra: bytes) -> None:
    """A longer file is found and named."""
    for name in folders.files(copy):
        whole = (copy / name).read_bytes()
        changed(copy / name, lambda data: data + extra)
        assert name in bad_files(copy)
        folders.write(copy / name, whole)


def test_a_missing_pack_is_found_with_what_it_held(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each blob that is needed and in no pack is named, with the steps and paths it hits."""
    monkeypatch.setattr("cairn.objects.gather.OWN_PACK_BYTES", 1)
    with cairn.open(copy) as store:
        store.run().commit({"model": {"w": B + 1}, "frozen": C}, step=3)
    blob = blob_of(copy, "step:3", "model/w")
    pack_of(copy, blob).unlink()
    with cairn.open(copy) as store:
        (finding,) = store.verify().findings
        assert blob in finding.object
        assert finding.code == "missing"
        assert finding.steps == ("main step 3 model/w",)
        with pytest.raises(cairn.Damaged, match=blob):
            store.load("step:3")
        assert describe(store.load("step:3", only={"frozen"})) == describe({"frozen": C})
        assert describe(store.load("step:2")) == describe(STATES[2])


def test_a_missing_pack_with_trees_is_found(copy: Path) -> None:
    """Where the manifest itself is gone, that is named; what it led to cannot be."""
    manifest = manifest_of(copy, "step:2")
    pack_of(copy, manifest).unlink()
    with cairn.open(copy) as store:
        (finding,) = store.verify().findings
        assert manifest in finding.object
        assert finding.steps == ("main step 2 manifest",)
        assert describe(store.load("step:1")) == describe(STATES[1])


def test_swapped_packs_are_found(copy: Path) -> None:
    """A pack whose bytes are another's is not read, whatever its name."""
    one, two = folders.packs(copy)[:2]
    first, second = one.read_bytes(), two.read_bytes()
    folders.write(one, second)
    folders.write(two, first)
    assert {str(pack.relative_to(copy)) for pack in (one, two)} <= bad_files(copy)
    with cairn.open(copy) as store, pytest.raises(cairn.Damaged):
        store.load("step:1")


def test_a_good_copy_is_read_where_another_is_damaged(copy: Path, tmp_path: Path) -> None:
    """A blob with two copies is read from the good one; verify names the bad one and says so."""
    with cairn.init(tmp_path / "other") as other:
        other.run().commit(STATES[2], step=2)
    (twin,) = folders.packs(tmp_path / "other")
    target = copy / "packs" / twin.parent.name / twin.name
    target.parent.mkdir(exist_ok=True)
    shutil.copy(twin, target)
    blob = blob_of(copy, "step:2", "model")
    for bad in [pack for pack in folders.packs(copy) if blob in folders.head(pack)[1]]:
        whole = bad.read_bytes()
        folders.write(bad, flip(whole, folders.head(bad)[1][blob][0]))
        with cairn.open(copy) as store:
            assert describe(store.load("step:2")) == describe(STATES[2])
            (finding,) = store.verify().findings
            assert finding.file == str(bad.relative_to(copy))
            assert "another copy is good" in finding.found
        folders.write(bad, whole)


class BadDisk(Disk):
    """A disk with bad blocks under some files."""

    def __init__(self, *bad: Path) -> None:
        self.bad = bad

    def check(self, path: Path) -> None:
        if path in self.bad:
            raise OSError(errno.EIO, "Input/output error", str(path))

    def read(self, path: Path) -> bytes:
        self.check(path)
        return super().read(path)

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        self.check(path)
        return super().read_at(path, offset, size)


class BadData(BadDisk):
    """A disk whose bad blocks lie beyond the headers."""

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        return super().read_at(path, offset, size) if offset else Disk.read_at(self, path, offset, size)

    def map(self, path: Path) -> memoryview:
        self.check(path)
        return super().map(path)


@pytest.mark.parametrize("kind", [BadDisk, BadData])
def test_a_disk_with_bad_blocks_is_damage_like_any_other(copy: Path, kind: type[BadDisk]) -> None:
    """What the system cannot read is told with the file's name; the rest is verified and read."""
    bad = pack_of(copy, blob_of(copy, "step:2", "model"))
    with cairn.open(copy, disk=kind(bad)) as store:
        report = store.verify()
        assert str(bad.relative_to(copy)) in {finding.file for finding in report.findings}
        assert report.packs == 2
        assert describe(store.load("step:1")) == describe(STATES[1])
        with pytest.raises(cairn.Damaged):
            store.load("step:2")


def test_an_entry_on_bad_blocks_is_damage_like_any_other(copy: Path) -> None:
    """An entry that the system cannot read is told with its name."""
    with cairn.open(copy, disk=BadDisk(copy / "runs/main/00000001.json")) as store:
        assert {finding.file for finding in store.verify().findings} == {"runs/main/00000001.json"}
        assert describe(store.load("main@2")) == describe(STATES[2])
