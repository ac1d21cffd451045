"""A history that cannot be read in full: what is still told, what is refused, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe
from tests.cairn.small import STATES, bad_files, build, changed, flip, manifest_of, pack_of

import cairn


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small store to damage."""
    return build(tmp_path / "copy")


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


def test_a_log_that_another_continues_is_not_exchanged_unseen(copy: Path, tmp_path: Path) -> None:
    """The entry that a renamed run continues is named by its seal: another log, or a shorter one, is found."""
    other = build(tmp_path / "other")
    with cairn.open(copy) as store:
        store.rename_run("main", "first-run")
    for entry in ("00000001.json", "00000002.json"):
        whole = (copy / "runs/main" / entry).read_bytes()
        folders.write(copy / "runs/main" / entry, (other / "runs/main" / entry).read_bytes())
        assert bad_files(copy) & {"runs/main/00000002.json", "runs/main/00000003.json", "runs/first-run/00000001.json"}
        folders.write(copy / "runs/main" / entry, whole)
    for entry in ("00000003.json", "00000002.json"):
        (copy / "runs/main" / entry).unlink()
    assert bad_files(copy) == {"runs/first-run/00000001.json"}
    with cairn.open(copy) as store, pytest.raises(cairn.Damaged, match=r"first-run/00000001\.json"):
        store.load("first-run")


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


@pytest.mark.parametrize("how", ["with the index", "without it"])
def test_all_that_is_newer_than_a_damaged_entry_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """However many commits are read together; a commit whose parent cannot be read is not said to have none."""
    monkeypatch.setattr("cairn.history.journal.SNAPSHOT_ENTRIES", 2)
    with cairn.init(tmp_path / "store") as store:
        for step in range(1, 101):
            store.run().commit({"model": np.arange(3.0)}, step=step)
    changed(tmp_path / "store/runs/main/00000010.json", lambda data: flip(data, 99))
    if how == "without it":
        (tmp_path / "store/index.sqlite").unlink()
    with cairn.open(tmp_path / "store") as store:
        log = store.log()
        assert [next(log).step for _ in range(90)] == [*range(100, 10, -1)]
        with pytest.raises(cairn.Damaged, match=r"00000010\.json"):
            next(log)
        with pytest.raises(cairn.Damaged, match=r"00000010\.json"):
            store.commit("latest~90")


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
