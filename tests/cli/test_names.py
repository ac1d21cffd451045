"""tag and run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]


def test_a_tag_is_set_listed_moved_and_deleted(store: Path, cairn: Call) -> None:
    """Without a revision the newest commit is tagged."""
    assert cairn("tag") == (0, "", "No tags yet.\n")
    assert cairn("tag", "good")[1].startswith("Tag good names main step 30 (")
    assert cairn("tag", "good", "step:10")[1].startswith("Tag good names main step 10 (")
    assert cairn("tag")[1].splitlines()[1].split()[2:4] == ["main", "10"]
    assert "good" in cairn("show", "good")[1]
    assert cairn("tag", "good", "--delete") == (0, "Deleted tag good\n", "")
    assert cairn("show", "good")[0] == 4
    assert cairn("tag", "good", "--delete")[0] == 4


@pytest.mark.parametrize("args", [("--delete",), ("good", "latest", "--delete")])
def test_deleting_needs_a_name_and_nothing_else(store: Path, cairn: Call, args: tuple[str, ...]) -> None:
    """Half a command changes nothing."""
    assert cairn("tag", *args)[0] == 2


def test_a_run_is_created_renamed_listed_and_deleted(store: Path, cairn: Call) -> None:
    """A run starts from any commit and has a line of its own."""
    assert cairn("run", "create", "other", "step:20")[1].startswith("Run other starts from ")
    assert cairn("run", "rename", "other", "lower-lr")[1] == "Run other is called lower-lr now.\n"
    rows = [line.split() for line in cairn("run", "list")[1].splitlines()[1:]]
    assert [(row[0], row[1], row[3]) for row in rows] == [("lower-lr", "1", "20"), ("main", "3", "30")]
    assert cairn("log", "--run", "lower-lr")[0] == 0
    assert cairn("run", "delete", "lower-lr")[0] == 0
    assert cairn("log", "--run", "lower-lr")[0] == 4


def test_several_runs_must_be_told_apart(store: Path, cairn: Call) -> None:
    """Without --run, words that need a run are ambiguous, and the runs are named."""
    cairn("run", "create", "other", "step:20")
    for args in (("log",), ("show", "latest"), ("rewind", "step:10"), ("reflog",)):
        status, out, err = cairn(*args)
        assert (status, out) == (4, "")
        assert "main, other" in err
    assert cairn("show", "latest", "--run", "other")[0] == 0
    assert cairn("show", "main@10")[0] == 0


def test_an_empty_store_has_no_runs(tmp_path: Path, cairn: Call) -> None:
    """There is nothing to list, and that is no error."""
    cairn("init", tmp_path / "s")
    assert cairn("--store", tmp_path / "s", "run", "list") == (0, "", "No runs yet.\n")
    assert cairn("--store", tmp_path / "s", "reflog") == (0, "", "No entries yet.\n")


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("tag", "latest"), 2),
        (("tag", "a/b"), 2),
        (("tag", "main"), 5),
        (("run", "create", "main", "step:10"), 5),
        (("run", "create", "other", "step:11"), 4),
        (("run", "rename", "mian", "other"), 4),
        (("run", "delete", "mian"), 4),
    ],
)
def test_names_that_do_not_do_are_refused(store: Path, cairn: Call, args: tuple[str, ...], status: int) -> None:
    """A bad name is wrong usage, a taken one a conflict, an unknown one not found."""
    assert cairn(*args)[0] == status
