"""keep, gc with rules, drop of parts and attempts: what people are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cairn as library

Call = Callable[..., tuple[int, str, str]]


def test_rules_are_stored_listed_and_taken_back(store: Path, cairn: Call) -> None:
    """Each change says how it is undone, and each listing what the rules would do now."""
    assert cairn("keep") == (0, "", "No rules: everything is kept until it is dropped.\n")
    status, out, err = cairn("keep", "last:1", "best:acc:max", "optimizer:1")
    assert status == 0
    assert out.splitlines()[:4] == [
        "rule            runs",
        "last:1          all",
        "best:acc:max:1  all",
        "optimizer:1     all",
    ]
    assert "keep   " in out
    assert "drop   " in out
    assert out.endswith("The next `cairn gc` drops 2 commits by these rules.\n")
    assert "Stored last:1; `cairn keep --remove last:1` takes it back." in err
    assert cairn("keep")[1] == out
    assert cairn("log")[1].count("dropped") == 0
    status, _, err = cairn("keep", "--remove", "best:acc:max")
    assert (status, err) == (0, "Took back best:acc:max:1; `cairn keep best:acc:max:1` stores it again.\n")
    cairn("keep", "files:*.pt:2", "--run", "main")
    assert "`cairn keep 'files:*.pt:2' --run main` stores it again" in cairn("keep", "--clear", "--run", "main")[2]
    assert [each["rule"] for each in json.loads(cairn("keep", "--json")[1])["rules"]] == ["last:1", "optimizer:1"]
    assert cairn("keep", "--clear")[0] == 0
    assert cairn("keep")[2].startswith("No rules")


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("last:0",), 2),
        (("nonsense",), 2),
        (("best:acc",), 2),
        (("last:1", "--clear"), 2),
        (("--remove", "last:1"), 4),
        (("last:1", "--run", "mian"), 4),
    ],
)
def test_wrong_rules_are_refused(store: Path, cairn: Call, args: tuple[str, ...], status: int) -> None:
    """With a sentence, and nothing is stored."""
    found, out, err = cairn("keep", *args)
    assert (found, out) == (status, "")
    assert err.startswith("cairn: ")
    assert not (store / "settings").exists()


def test_gc_says_which_rules_hold(store: Path, cairn: Call) -> None:
    """Stored rules and options add up, and gc says so; --no-rules leaves the stored ones out."""
    cairn("keep", "last:2")
    status, out, err = cairn("gc", "--keep-last", "1", "--dry-run")
    assert status == 0
    assert out.startswith("Stored rules: last:2; and given here: last:1\n")
    assert "--no-rules leaves the stored out" in err
    assert [line.split()[3] for line in out.splitlines() if line.startswith("drop")] == ["10"]
    out = cairn("gc", "--keep-last", "1", "--no-rules", "--dry-run")[1]
    assert [line.split()[3] for line in out.splitlines() if line.startswith("drop")] == ["20", "10"]
    out = cairn("gc")[1]
    assert out.startswith("Stored rules: last:2\n")
    assert "dropped" in cairn("log")[1].splitlines()[-1]


def test_every_option_of_gc_is_a_rule(store: Path, cairn: Call) -> None:
    """--keep-every, --keep-best, --keep-within and --drop say what `cairn keep` says."""
    for options, steps in (
        (("--keep-every", "20"), ["30", "20"]),
        (("--keep-best", "loss:max"), ["30", "10"]),
        (("--keep-best", "loss:max:2"), ["30", "20", "10"]),
        (("--keep-within", "90m"), ["30", "20", "10"]),
        (("--keep-last", "1", "--keep-every", "10"), ["30", "20", "10"]),
    ):
        out = cairn("gc", *options, "--dry-run")[1]
        assert [line.split()[3] for line in out.splitlines() if line.startswith("keep")] == steps, options
    out = cairn("gc", "--drop", "optimizer:1", "--dry-run")[1]
    assert [line.split()[3] for line in out.splitlines() if line.startswith("reduce")] == ["20", "10"]
    assert "optimizer only in the newest 1" in out
    assert cairn("gc", "--drop", "optimizer:1")[0] == 0
    assert "dropped: optimizer" in cairn("log")[1]
    assert cairn("verify")[0] == 0
    for wrong in (("--keep-best", "acc"), ("--keep-within", "soon"), ("--drop", "optimizer"), ("--keep-every", "0")):
        assert cairn("gc", *wrong)[0] == 2


def test_rules_that_cannot_be_known_stop_gc(store: Path, cairn: Call) -> None:
    """It says which file, and the way out."""
    cairn("keep", "last:1")
    (entry,) = (store / "settings").iterdir()
    entry.chmod(0o644)
    entry.write_bytes(b"{}")
    status, out, err = cairn("gc")
    assert (status, out) == (6, "")
    assert str(entry) in err
    assert "`cairn gc --no-rules`" in err
    assert cairn("gc", "--no-rules")[0] == 0
    assert cairn("verify")[0] == 6


def test_many_rows_are_collapsed(store: Path, cairn: Call) -> None:
    """People see the first ten of a kind; JSON has all."""
    with library.open(store) as opened:
        run = opened.run("long")
        for step in range(30):
            run.commit({"x": np.full(9, step)}, step=step)
    out = cairn("gc", "--keep-last", 1, "--run", "long", "--dry-run")[1]
    assert out.count("no rule keeps it") == 10
    assert "drop   … and 19 more" in out
    assert "\n… and 19 more\n" in out.partition("dead pack")[2]
    plan = json.loads(cairn("gc", "--keep-last", 1, "--run", "long", "--dry-run", "--json")[1])
    assert len(plan["retention"]["dropped"]) == 29
    assert len(plan["dead"]) == 29


def test_an_attempt_is_given_up_as_a_whole(store: Path, cairn: Call) -> None:
    """Its name as a revision is one commit; --attempt drops all that are only on it, but for what is kept."""
    with library.open(store) as opened:
        run = opened.run("main")
        for steps in ((40, 50, 60), (41, 51)):
            run.resume(step=30)
            for step in steps:
                run.commit({"x": np.full(9, step)}, step=step)
    cairn("tag", "good", "main/attempt-1~1")
    out = cairn("gc", "--keep-last", "1", "--dry-run")[1]
    assert "attempt main/attempt-1, 3 commits, until it is dropped on purpose" in out
    status, out, err = cairn("drop", "main/attempt-1")
    assert out.startswith("Dropped the content of main step 60 (")
    assert "main/attempt-1 has 2 commits left; --attempt drops all of them that nothing keeps." in err
    status, out, err = cairn("drop", "--attempt", "main/attempt-1")
    assert (status, out.count("Dropped")) == (0, 1)
    assert "main step 40" in out
    assert cairn("ls", "good")[0] == 0
    assert cairn("undrop", "main/attempt-1")[0] == 0
    out = cairn("gc", "--drop-attempts")[1]
    assert "removed" in out
    assert cairn("ls", "good")[0] == 0
    assert cairn("ls", "main/attempt-1")[0] == 4
    assert cairn("drop", "--attempt", "main/attempt-2")[0] == 4
    assert cairn("drop", "--attempt", "latest")[0] == 2
    assert cairn("drop", "--attempt", "main/attempt-1", "--only", "x")[0] == 2
    assert cairn("verify")[0] == 0


def test_files_of_a_folder_are_dropped_and_listed_as_dropped(store: Path, cairn: Call, tmp_path: Path) -> None:
    """ls shows what was there; checkout writes the rest when that is asked for."""
    place = tmp_path / "checkpoint"
    place.mkdir()
    (place / "model.bin").write_bytes(b"m" * 2048)
    (place / "optimizer.pt").write_bytes(b"o" * 4096)
    cairn("commit", place, "--step", 40)
    status, out, err = cairn("drop", "step:40", "--only", "files:*.pt")
    assert out.startswith("Dropped files:*.pt of main step 40 (")
    lines = cairn("ls", "step:40", "files")[1].splitlines()
    assert lines[2].split() == ["files/optimizer.pt", "dropped", "4.0", "KiB", "no", "longer", "kept:", "files:*.pt"]
    status, _, err = cairn("checkout", "step:40", tmp_path / "out")
    assert status == 4
    assert "files/optimizer.pt was dropped (files:*.pt)" in err
    assert cairn("checkout", "step:40", tmp_path / "out", "--only", "model.bin")[0] == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.bin"]
    assert cairn("cat", "step:40", "optimizer.pt")[0] == 4
    assert cairn("gc")[0] == 0
    assert cairn("verify")[0] == 0


def test_a_rule_about_what_nobody_has_is_told_and_drops_nothing(store: Path, cairn: Call) -> None:
    """A misspelt metric or component: said at once, and no commit goes for it."""
    status, _, err = cairn("keep", "best:val_los:min", "optimzer:1")
    assert status == 0
    assert "No commit has a number for val_los; there are" in err
    assert "No commit has a component called optimzer" in err
    out = cairn("gc", "--dry-run")[1]
    assert "drop " not in out
