"""Damage is found, named and contained; nothing is repaired by guessing, and nothing is lost on top of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe

import cairn
from cairn.store.reach import blobs_of

A, B, C = (np.arange(4.0) + 10 * number for number in range(3))
STATES = {1: {"model": A, "frozen": C}, 2: {"model": B, "frozen": C}}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store: two commits that share a component, and a tag."""
    root = tmp_path_factory.mktemp("small") / "store"
    with patch("cairn.store.handle.provenance", dict), cairn.init(root) as store:
        for step, state in STATES.items():
            store.run().commit(state, step=step)
        store.tag("first", "step:1")
    return root


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    """A private copy of the small store."""
    return Path(shutil.copytree(small, tmp_path / "copy"))


def changed(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of a file."""
    folders.write(path, change(path.read_bytes()))


def flip(data: bytes, place: int) -> bytes:
    """Flip one bit of one byte, another bit at every place."""
    return data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]


def pack_of(root: Path, blob: str) -> Path:
    """Return the only pack that has a blob."""
    (found,) = [pack for pack in folders.packs(root) if blob in folders.head(pack)[1]]
    return found


def blob_of(root: Path, revision: str, path: str) -> str:
    """Return the blob of a tensor."""
    with cairn.open(root) as store:
        (item,) = store.ls(revision, path)
    return item.blobs[0].id


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
    monkeypatch.setattr("cairn.objects.intake.OWN_PACK_BYTES", 1)
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


def test_a_missing_entry_in_the_middle_is_found(copy: Path) -> None:
    """The number that lacks is named; the newest entry has no witness, which the format states."""
    (copy / "runs/main/00000001.json").unlink()
    assert bad_files(copy) == {"runs/main/00000001.json"}
    with cairn.open(copy) as store:
        assert describe(store.load("step:2")) == describe(STATES[2])
        log = store.log()
        assert next(log).step == 2
        with pytest.raises(cairn.Damaged, match=r"00000001\.json"):
            next(log)


def test_swapped_packs_are_found(copy: Path) -> None:
    """A pack whose bytes are another's is not read, whatever its name."""
    one, two = folders.packs(copy)[:2]
    first, second = one.read_bytes(), two.read_bytes()
    folders.write(one, second)
    folders.write(two, first)
    assert {str(pack.relative_to(copy)) for pack in (one, two)} <= bad_files(copy)
    with cairn.open(copy) as store, pytest.raises(cairn.Damaged):
        store.load("step:1")


def test_swapped_entries_are_found(copy: Path) -> None:
    """An entry under another number is not read."""
    one, two = copy / "runs/main/00000001.json", copy / "runs/main/00000002.json"
    first, second = one.read_bytes(), two.read_bytes()
    folders.write(one, second)
    folders.write(two, first)
    assert bad_files(copy) == {"runs/main/00000001.json", "runs/main/00000002.json"}


def test_an_entry_with_a_right_seal_in_a_wrong_chain_is_found(copy: Path) -> None:
    """Rewriting an entry, seal and all, breaks the chain at the next one."""
    document = folders.entry(copy, "runs/main", 1)
    document["commit"]["step"] = 7
    folders.write(copy / "runs/main/00000001.json", folders.seal(document))
    assert bad_files(copy) == {"runs/main/00000002.json"}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"op": "merge"},
        {"op": "_take"},
        {"op": ["commit"]},
        {"commit": None},
        {"commit": {}},
        {"packs": ["x"]},
        {"packs": 3},
        {"seq": 1.0},
        {"op": "drop", "commits": ["0" * 64]},
        {"op": "rewind", "to": "0" * 64},
        {"op": "create", "continues": {"run": "main", "seq": 2}},
        {"op": "create", "continues": "main"},
    ],
)
def test_an_entry_that_makes_no_sense_is_found(copy: Path, change: dict[str, Any]) -> None:
    """An entry whose seal is right and whose content no version of cairn wrote is named, and nothing else breaks."""
    document = folders.entry(copy, "runs/main", 2)
    folders.write(copy / "runs/main/00000002.json", folders.seal({**document, **change}))
    assert bad_files(copy) == {"runs/main/00000002.json"}
    with cairn.open(copy) as store:
        assert describe(store.load("step:1")) == describe(STATES[1])
        with pytest.raises(cairn.Damaged, match=r"00000002\.json"):
            store.load("latest")


def test_the_newest_commit_is_not_guessed(copy: Path) -> None:
    """With an unreadable newest entry nothing passes for the tip: a trainer must not go on from an older step."""
    changed(copy / "runs/main/00000002.json", lambda data: flip(data, 200))
    with cairn.open(copy) as store:
        run = store.run()
        for ask in (
            run.load,
            run.resume,
            run.open,
            lambda: run.tip,
            lambda: store.load("main"),
            lambda: store.load("latest~1"),
        ):
            with pytest.raises(cairn.Damaged, match=r"00000002\.json"):
                ask()
        assert describe(run.load(step=1)) == describe(STATES[1])
        assert describe(store.load("first")) == describe(STATES[1])


def test_an_unreadable_tag_is_not_guessed(copy: Path) -> None:
    """A tag whose newest entry cannot be read does not fall back to where it stood before."""
    with cairn.open(copy) as store:
        store.tag("first", "step:2")
    changed(copy / "tags/first/00000002.json", lambda data: flip(data, 100))
    with cairn.open(copy) as store:
        with pytest.raises(cairn.Damaged, match=r"tags/first/00000002\.json"):
            store.load("first")
        with pytest.raises(cairn.Damaged, match=r"tags/first/00000002\.json"):
            store.tag("first", "step:1")


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


def damages(root: Path) -> dict[str, Callable[[], object]]:
    """Return ways to damage what says what is needed, by the file that must be named."""
    manifest = manifest_of(root, "step:1")
    pack = pack_of(root, manifest)
    offset = folders.head(pack)[1][manifest][0]
    name = str(pack.relative_to(root))
    found: dict[str, Callable[[], object]] = {
        f"{name} tree": lambda: changed(pack, lambda data: flip(data, offset + 5)),
        f"{name} header": lambda: changed(pack, lambda data: flip(data, 20)),
        f"{name} cut": lambda: changed(pack, lambda data: data[:-1]),
    }
    for entry in ("runs/main/00000001.json", "runs/main/00000002.json", "tags/first/00000001.json"):
        found[f"{entry} flip"] = lambda entry=entry: changed(root / entry, lambda data: flip(data, 99))  # type: ignore[misc]
    found["runs/main/00000001.json gone"] = lambda: (root / "runs/main/00000001.json").unlink()
    return found


def manifest_of(root: Path, revision: str) -> str:
    """Return the manifest of a commit."""
    with cairn.open(root) as store:
        return store.commit(revision).manifest


@pytest.mark.parametrize("number", range(7))
def test_gc_stops_where_it_cannot_see_the_whole_truth(copy: Path, number: int) -> None:
    """gc names the file, removes nothing and records no drop, with rules or without."""
    with cairn.open(copy) as store:
        store.run("spare").commit({"model": np.arange(9.0)}, step=1)
        store.delete_run("spare")
    name, damage = list(damages(copy).items())[number]
    damage()
    before = folders.files(copy)
    with cairn.open(copy) as store:
        for options in ({}, {"keep_last": 1}, {"dry_run": True}):
            with pytest.raises(cairn.Damaged, match=name.split()[0].rpartition("/")[2]):
                store.gc(**options)
    assert folders.files(copy) == before


def test_nothing_is_added_after_an_entry_that_cannot_be_read(copy: Path) -> None:
    """commit, rewind, drop and delete name the newest entry when it is damaged and add nothing; other runs go on."""
    changed(copy / "runs/main/00000002.json", lambda data: flip(data, 99))
    before = folders.files(copy)
    with cairn.open(copy) as store:
        for attempt in (
            lambda: store.run().commit({"model": np.arange(3.0)}, step=9),
            lambda: store.rewind("step:1"),
            lambda: store.drop(["step:1"], only={"model"}),
            lambda: store.delete_run("main"),
        ):
            with pytest.raises(cairn.Damaged, match=r"00000002\.json"):
                attempt()
        assert folders.files(copy) == before
        store.create_run("other", "main@1")
        store.run("other").commit({"model": np.arange(3.0)}, step=9)
        assert store.load("other")["model"].tolist() == [0, 1, 2]


def test_a_step_is_not_taken_for_new_where_the_line_is_broken(copy: Path) -> None:
    """With a damaged entry in the middle it cannot be known whether a step exists, so committing it stops."""
    changed(copy / "runs/main/00000001.json", lambda data: flip(data, 99))
    before = folders.files(copy)
    with cairn.open(copy) as store:
        with pytest.raises(cairn.Damaged, match=r"00000001\.json"):
            store.run().commit({"model": np.arange(3.0)}, step=1)
        assert {name for name in folders.files(copy) if name.startswith("runs")} == {
            name for name in before if name.startswith("runs")
        }


def test_there_is_a_way_out_of_a_damaged_history(copy: Path) -> None:
    """A run that goes on from a readable commit and the end of the damaged one make gc and verify content again."""
    changed(copy / "runs/main/00000001.json", lambda data: flip(data, 99))
    with cairn.open(copy) as store:
        store.create_run("again", "main@2")
        store.delete_run("main")
        store.gc()
        assert store.verify().ok
        assert describe(store.load("again")) == describe(STATES[2])
        assert describe(store.load("first")) == describe(STATES[1])


def test_files_that_are_nobodys_are_warned_of(copy: Path) -> None:
    """What the format does not name is told and left alone; it is no damage."""
    for name in ("runs/main/00000001.json~", "packs/00/readme.txt", "tags/first/x"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("?")
    with cairn.open(copy) as store:
        report = store.verify()
    assert report.ok
    assert {finding.file for finding in report.findings} == {
        "runs/main/00000001.json~",
        "packs/00/readme.txt",
        "tags/first/x",
    }


def bad_files(root: Path) -> set[str]:
    """Return the files that verify, or opening the store, finds damaged."""
    try:
        with cairn.open(root) as store:
            return {finding.file for finding in store.verify().findings if finding.level == "error"} - {"packs"}
    except cairn.Damaged as error:
        return {"cairn.json"} if "cairn.json" in str(error) else set()
