"""init, drop, undrop, gc, verify and reindex."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import cairn as library
from cairn.cli import render_space, text
from cairn.store.gc import GcPlan

Call = Callable[..., tuple[int, str, str]]


def flip(store: Path, blob: str) -> Path:
    """Flip the first bit of a blob, where the pack's header says it lies; return the pack."""
    for pack in store.glob("packs/*/*.safetensors"):
        data = bytearray(pack.read_bytes())
        length = int.from_bytes(data[:8], "little")
        place = json.loads(data[8 : 8 + length]).get(blob)
        if place is not None:
            data[8 + length + place["data_offsets"][0]] ^= 1
            pack.chmod(0o644)
            pack.write_bytes(data)
            return pack
    raise AssertionError("no pack has the blob")


def test_init_makes_a_store_where_it_is_told(tmp_path: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the path, else at --store, else in ./store, and never twice."""
    monkeypatch.chdir(tmp_path)
    assert cairn("init") == (0, "Made a store in store\n", "")
    assert cairn("init")[0] == 5
    assert cairn("--store", "b", "init") == (0, "Made a store in b\n", "")
    assert cairn("--store", "b", "init", "c") == (0, "Made a store in c\n", "")
    assert {path.parent.name for path in tmp_path.glob("*/cairn.json")} == {"store", "b", "c"}


def test_what_was_dropped_is_freed_by_gc_and_not_before(store: Path, cairn: Call) -> None:
    """drop, undrop, drop again, gc: then the content is gone, and the commit is still in the log."""
    assert cairn("drop", "step:10")[1].startswith("Dropped the content of main step 10 (")
    assert cairn("ls", "step:10")[0] == 4
    assert cairn("undrop", "step:10")[1].startswith("Keeping again main step 10 (")
    assert cairn("ls", "step:10")[0] == 0
    cairn("drop", "step:10")
    out = cairn("gc", "--dry-run")[1]
    assert "to remove  1 pack" in out
    assert "this was a dry run" in out
    status, out, _ = cairn("gc")
    assert status == 0
    assert "freed    0 B" not in out
    assert "removed  1 pack" in out
    assert cairn("undrop", "step:10")[0] == 4
    assert len(cairn("log")[1].splitlines()) == 4
    assert cairn("verify")[0] == 0


def test_one_component_can_be_dropped(store: Path, cairn: Call) -> None:
    """The rest of the commit stays readable, and dropping it again does nothing."""
    assert cairn("drop", "step:10", "--only", "optimizer")[1].startswith("Dropped optimizer of main step 10 (")
    assert cairn("checkout", "step:10", "out", "--only", "model")[0] == 0
    assert cairn("checkout", "step:10", "all")[0] == 4
    assert "dropped: optimizer" in cairn("log")[1]
    status, out, err = cairn("drop", "step:10", "--only", "optimizer")
    assert (status, out, err) == (0, "", "Nothing to do: all of it was dropped before.\n")


def test_the_newest_commit_cannot_be_dropped(store: Path, cairn: Call) -> None:
    """It is a conflict that says what keeps the commit."""
    status, _, err = cairn("drop", "latest")
    assert status == 5
    assert "newest of run main" in err


def test_gc_says_which_rule_keeps_what(store: Path, cairn: Call) -> None:
    """Each commit that stays has its reasons; each that goes is named."""
    cairn("tag", "good", "step:10")
    status, out, _ = cairn("gc", "--keep-last", 1)
    rules = [(line.split()[0], line.split()[3]) for line in out.splitlines()[1:4]]
    assert (status, rules) == (0, [("keep", "30"), ("keep", "10"), ("drop", "20")])
    assert "last 1, newest of run main" in out
    assert "tag good" in out
    assert "dropped" in cairn("log")[1]


def test_a_dry_run_changes_nothing(store: Path, cairn: Call) -> None:
    """No entry is written and no pack moves."""
    before = sorted(store.rglob("*/*"))
    assert cairn("gc", "--keep-last", 1, "--dry-run")[0] == 0
    assert sorted(path for path in store.rglob("*/*")) == before


def test_gc_says_what_only_compaction_frees_and_compaction_frees_it(store: Path, cairn: Call) -> None:
    """What is freed now and what is not is told apart; a dry run says what would be read, written and freed."""
    cairn("drop", "step:10", "--only", "optimizer")
    out = cairn("gc")[1]
    assert "freed      0 B" in out
    assert "`cairn gc --compact` frees it" in out
    out = cairn("gc", "--compact", "--dry-run")[1]
    assert "3 packs to 1 pack, " in out
    assert "to read and write" in out
    assert "nothing: this was a dry run; gc would free" in out
    assert len(list(store.glob("packs/*/*"))) == 3
    out = cairn("gc", "--compact")[1]
    assert "read and written" in out
    assert "freed      0 B" not in out
    assert len(list(store.glob("packs/*/*"))) == 1
    assert cairn("verify")[0] == 0
    assert cairn("gc", "--compact")[1] == f"kept     1 pack, {size_of(store)}\nremoved  0 packs, 0 B\nfreed    0 B\n"


def size_of(store: Path) -> str:
    """The bytes of all packs as people read them."""
    return text.size(sum(pack.stat().st_size for pack in store.glob("packs/*/*")))


def test_gc_says_when_the_disk_has_no_room_and_what_is_damaged() -> None:
    """Compaction that ended early says why, which packs it left, and that the space comes later."""
    plan = GcPlan(
        *(1, 100, (), 0, (), 0), executed=True, threshold=0.25, damaged=("pack x",), short_of_space=True, freed_bytes=-5
    )
    out = render_space.gc(plan)
    for part in ("no room for more new packs", "pack x", "nothing yet: 5 B more are in use"):
        assert part in out


@pytest.mark.parametrize(
    "args",
    [
        ("--run", "main"),
        ("--keep-last", "0"),
        ("--keep-last", "many"),
        ("--threshold", "10"),
        ("--compact", "--threshold", "0"),
        ("--compact", "--threshold", "101"),
    ],
)
def test_gc_refuses_rules_that_mean_nothing(store: Path, cairn: Call, args: tuple[str, ...]) -> None:
    """Wrong usage is found before anything is looked at."""
    assert cairn("gc", *args)[0] == 2


def test_gc_says_what_waits_and_why() -> None:
    """Packs that a live operation may need stay in the trash, and the operation is named."""
    plan = GcPlan(
        1, 100, (), 50, ("ab" * 32,), 2, executed=True, restored=("cd" * 32,), waiting_for=("load by process 7",)
    )
    out = render_space.gc(plan)
    for part in ("load by process 7", "stay in the trash", "put back", "left in place", "2 packs from earlier", "50 B"):
        assert part in out


def test_verify_of_a_sound_store_says_so(store: Path, cairn: Call) -> None:
    """It says what was read."""
    status, out, _ = cairn("verify")
    assert (status, out) == (0, out)
    assert "3 entries, 3 commits, 3 packs" in out
    assert out.endswith("everything is intact.\n")
    assert cairn("verify", "latest", "step:10")[0] == 0


def test_verify_names_the_file_the_blob_and_the_steps_of_damage(store: Path, cairn: Call) -> None:
    """One flipped bit is exit status 6, in a whole store and in a step that is hit, not in the others."""
    with library.open(store) as opened:
        blob = opened.ls("step:20", "model/w")[0].blobs[0].id
    pack = flip(store, blob)
    status, out, _ = cairn("verify")
    assert status == 6
    for part in (f"error: blob {blob}", str(pack.relative_to(store)), "main step 20 model/w", "found 1 error."):
        assert part in out
    assert cairn("verify", "step:20")[0] == 6
    assert cairn("verify", "step:30")[0] == 0
    report = json.loads(cairn("verify", "--json")[1])
    assert (report["ok"], report["findings"][0]["steps"]) == (False, ["main step 20 model/w"])


def test_a_file_of_nobody_is_a_warning(store: Path, cairn: Call) -> None:
    """It is reported, and the store is still sound."""
    (store / "packs" / "ab").mkdir(exist_ok=True)
    (store / "packs" / "ab" / "notes.txt").write_text("mine")
    status, out, _ = cairn("verify")
    assert status == 0
    assert "warning: a file" in out
    assert "everything is intact, with 1 warning." in out


def test_gc_stops_at_damage(store: Path, cairn: Call) -> None:
    """Nothing is removed when what is needed cannot be read, until the step is given up."""
    with library.open(store) as opened:
        blob = opened.commit("step:20").manifest
    flip(store, blob)
    cairn("drop", "step:10")
    status, out, err = cairn("gc")
    assert (status, out) == (6, "")
    assert "gc stops, nothing was removed: main step 20 (" in err
    cairn("drop", "step:20")
    assert "removed  2 packs" in cairn("gc")[1]
    assert cairn("undrop", "step:20")[0] == 4


def test_reindex_counts_the_packs(store: Path, cairn: Call) -> None:
    """The index can be lost: the same answers come back."""
    before = cairn("du")[1]
    for file in store.glob("index.sqlite*"):
        file.unlink()
    assert cairn("du")[1] == before
    assert cairn("reindex") == (0, "Indexed 3 packs.\n", "")


def test_gc_says_which_deleted_runs_it_frees(store: Path, cairn: Call) -> None:
    """Packs that go have a reason, also when it is not a rule's."""
    assert "deleted" not in cairn("gc", "--dry-run")[1]
    cairn("run", "delete", "main")
    assert "deleted: main" in cairn("gc", "--dry-run")[1]
    assert "deleted: main" in cairn("gc")[1]
    assert "deleted" not in cairn("gc")[1]
