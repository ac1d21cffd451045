"""log, show, reflog and rewind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cairn as library

Call = Callable[..., tuple[int, str, str]]


def column(text: str, at: int) -> list[str]:
    """Return one column of a table, without its head."""
    return [line.split()[at] for line in text.splitlines()[1:]]


def test_log_lists_the_newest_first(store: Path, cairn: Call) -> None:
    """The first line under the head is the newest commit, with 12 digits of its id."""
    status, out, _ = cairn("log")
    assert status == 0
    assert column(out, 1) == ["30", "20", "10"]
    with library.open(store) as opened:
        assert column(out, 0) == [commit.id[:12] for commit in opened.log()]


def test_log_shows_at_most_n(store: Path, cairn: Call) -> None:
    """-n cuts the list after the newest."""
    assert column(cairn("log", "-n", 2)[1], 1) == ["30", "20"]
    assert cairn("log", "-n", 10**30) == cairn("log")


def test_log_shows_metrics_messages_and_marks(store: Path, cairn: Call) -> None:
    """A line says what was measured, what was tagged and what was dropped."""
    cairn("tag", "good", "step:20")
    cairn("drop", "step:10")
    newest, middle, oldest = cairn("log")[1].splitlines()[1:]
    assert "loss=0.333333 acc=3" in newest
    assert newest.endswith("number 3")
    assert "tag good" in middle
    assert "dropped" in oldest
    assert "acc=nan" in oldest


def test_log_of_an_empty_store_is_empty(tmp_path: Path, cairn: Call) -> None:
    """There is nothing to list before the first commit, and that is no error."""
    cairn("init", tmp_path / "s")
    assert cairn("--store", tmp_path / "s", "log") == (0, "", "No commits yet.\n")
    assert cairn("--store", tmp_path / "s", "log", "--json")[1] == "[]\n"


def test_log_cuts_lines_to_a_terminal_but_not_to_a_pipe(
    store: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A narrow terminal gets short lines; a program gets whole ones."""
    monkeypatch.setenv("COLUMNS", "30")
    assert max(map(len, cairn("log")[1].splitlines())) > 60
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert max(map(len, cairn("log")[1].splitlines())) == 30


def test_show_says_everything_about_a_commit(store: Path, cairn: Call) -> None:
    """Whole ids, exact metrics, and where it was made."""
    cairn("tag", "good", "step:10")
    out = cairn("show", "step:10")[1]
    with library.open(store) as opened:
        commit = opened.commit("step:10")
    for part in (commit.id, commit.manifest, "loss = 1.0", "acc = nan", "number 1", "good", "numpy " + np.__version__):
        assert part in out


def test_show_keeps_the_lines_of_a_message(tmp_path: Path, cairn: Call) -> None:
    """log shows the first line of a message, show all of them."""
    with library.init(tmp_path / "s") as made:
        made.run("main").commit({"a": 1}, message="first\nsecond")
    at = ("--store", tmp_path / "s")
    assert cairn(*at, "log")[1].rstrip().endswith("first …")
    assert "message   first\n          second\n" in cairn(*at, "show", "latest")[1]


def test_control_characters_are_escaped(tmp_path: Path, cairn: Call) -> None:
    """Nothing in a message, metric or key reaches the terminal as a control character."""
    with library.init(tmp_path / "s") as made:
        made.run("main").commit({"a": {"k\x1b[2J\n": 1}}, message="clear\x1b[2J\u202e\x9b", metrics={"m": 1})
    for args in (("log",), ("show", "latest"), ("reflog",), ("ls", "latest", "a"), ("log", "--json")):
        out = cairn("--store", tmp_path / "s", *args)[1]
        assert all(character.isprintable() or character == "\n" for character in out)
    assert "clear\\x1b[2J\\u202e\\x9b" in cairn("--store", tmp_path / "s", "log")[1]


def test_rewind_moves_the_tip_and_reflog_tells(store: Path, cairn: Call) -> None:
    """After a rewind the line ends there; the reflog has the way left behind."""
    status, out, _ = cairn("rewind", "step:10")
    assert (status, out.startswith("The run is back at main step 10 (")) == (0, True)
    assert column(cairn("log")[1], 1) == ["10"]
    whats = column(cairn("reflog")[1], 2)
    assert whats == ["rewind", "commit", "commit", "commit"]


def test_reflog_of_an_unknown_run_is_not_found(store: Path, cairn: Call) -> None:
    """A misspelled run is an error, not an empty list."""
    status, out, err = cairn("reflog", "--run", "mian")
    assert (status, out) == (4, "")
    assert "expected one of main" in err


@pytest.mark.parametrize("args", [("log",), ("show", "latest"), ("run", "list"), ("reflog",), ("tag",)])
def test_looking_at_history_starts_fast(store: Path, args: tuple[str, ...]) -> None:
    """Commands on history import neither numpy nor anything else that is slow."""
    code = (
        "import sys\n"
        "from cairn.cli.main import execute\n"
        f"status = execute({list(args)!r})\n"
        "slow = {'numpy', 'ml_dtypes', 'sqlite_utils', 'rich', 'importlib.metadata'} & set(sys.modules)\n"
        "sys.exit(status or f'imported {slow}' if slow else status)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=store.parent)
    assert (done.returncode, done.stderr) == (0, "" if args != ("tag",) else "No tags yet.\n")


def test_json_of_log_is_one_array(store: Path, cairn: Call) -> None:
    """Also of a cut list."""
    assert [commit["step"] for commit in json.loads(cairn("log", "-n", 2, "--json")[1])] == [30, 20]


def test_a_damaged_newest_entry_is_told_whatever_is_shown(store: Path, cairn: Call) -> None:
    """What can be read is printed, and the exit status says that something cannot."""
    newest = max((store / "runs" / "main").iterdir())
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes()[:-20])
    for args in (("log",), ("log", "-n", "1"), ("reflog",)):
        status, out, err = cairn(*args)
        assert (status, "20" in out, newest.name in err) == (6, True, True), args


def test_what_looks_like_a_step_and_an_option_in_the_wrong_place_are_hinted_at(store: Path, cairn: Call) -> None:
    """The sentence says how it is spelled."""
    assert "step:20" in cairn("show", "20")[2]
    assert "step:20" in cairn("show", "step=20")[2]
    assert "cairn --store PATH log" in cairn("log", "--store", "x")[2]
