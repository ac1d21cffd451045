"""cairn commit, and the progress that it shows."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli import hf

import cairn as library

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with an empty store and a checkpoint."""
    place = tmp_path / "work"
    hf.checkpoint(place / "ck", 300)
    library.init(place / "store").close()
    monkeypatch.chdir(place)
    return place


def test_commit_says_what_is_new_and_what_is_shared(work: Path, cairn: Call) -> None:
    """Its id, the bytes, the formats; a second commit shares what it has of the first."""
    args = (
        "--step",
        300,
        "--epoch",
        1,
        "--metric",
        "loss=0.5",
        "--metric",
        "n=3",
        "--metric",
        "bad=nan",
        "-m",
        "first",
    )
    status, out, err = cairn("commit", "ck", *args)
    assert (status, err) == (0, "")
    with library.open("store") as store:
        made = store.commit("latest")
    assert out.startswith(f"Committed main step 300 ({made.id[:12]})\nnew     236.")
    assert "\nfiles   4: 1 npz, 1 safetensors, 2 other\n" in out
    assert (made.step, made.epoch, made.message) == (300, 1, "first")
    assert repr(made.metrics) == "{'loss': 0.5, 'n': 3, 'bad': nan}"
    hf.checkpoint(work / "next", 400)
    out = cairn("commit", "next", "--step", 400)[1]
    assert "\nnew     80." in out
    assert "\nshared  390." in out
    assert cairn("checkout", "step:300", "out")[0] == 0
    assert (work / "out" / "model.safetensors").read_bytes() == (work / "ck" / "model.safetensors").read_bytes()


def test_a_step_that_is_there_is_nothing_to_do_or_a_conflict(work: Path, cairn: Call) -> None:
    """The same content is passed over; other content is status 5, and a dry run says so beforehand."""
    cairn("commit", "ck", "--step", 300)
    assert cairn("commit", "ck", "--step", 300)[1].startswith("Nothing to do: the run has this very content as main")
    assert "Nothing to do" in cairn("commit", "ck", "--step", 300, "--dry-run")[1]
    hf.checkpoint(work / "other", 400)
    status, out, _ = cairn("commit", "other", "--step", 300, "--dry-run")
    assert status == 5
    assert out.startswith("It would be refused: run 'main' has step 300 already")
    status, _, err = cairn("commit", "other", "--step", 300)
    assert status == 5
    assert "has step 300 already" in err
    assert cairn("commit", "other", "--step", 301, "--dry-run")[0] == 0
    assert len(cairn("log")[1].splitlines()) == 2


def test_metrics_that_come_too_late_are_not_taken_in_silence(work: Path, cairn: Call) -> None:
    """A step that is there keeps its metrics and message, and says so when others are given."""
    assert cairn("commit", "ck", "--step", 300, "--metric", "loss=0.5", "--metric", "bad=nan")[0] == 0
    again = ("commit", "ck", "--step", 300, "--metric", "loss=0.5", "--metric", "bad=nan")
    assert cairn(*again)[2] == ""
    for late, word in ((("--metric", "loss=0.7"), "metrics given"), (("-m", "x"), "message given")):
        status, out, err = cairn("commit", "ck", "--step", 300, *late)
        assert (status, out.startswith("Nothing to do"), word in err) == (0, True, True)


def test_a_file_of_a_broken_format_is_named_with_the_reason(work: Path, cairn: Call) -> None:
    """It is kept as plain bytes; a name cannot move the cursor."""
    (work / "ck" / "broken\x1b.safetensors").write_bytes((work / "ck" / "model.safetensors").read_bytes()[:-3])
    out = cairn("commit", "ck")[1]
    assert "\nplain bytes  broken\\x1b.safetensors: expected " in out
    assert "\x1b" not in out


def test_the_store_in_the_run_folder_is_left_out(work: Path, cairn: Call) -> None:
    """Committing `.` commits everything else, twice the same."""
    out = cairn("commit", ".", "--step", 1)[1]
    assert "\nleft out  store, which is a store" in out
    assert "\nleft out  store, which is a store" in cairn("commit", ".", "--step", 1, "--dry-run")[1]
    assert cairn("commit", ".", "--step", 1)[1].startswith("Nothing to do")
    assert cairn("commit", "store")[0] == 1
    assert cairn("checkout", "latest", ".", "--force")[0] == 5
    assert cairn("verify")[0] == 0


def test_a_single_file(work: Path, cairn: Call) -> None:
    """A file is a folder of one."""
    cairn("commit", "ck/model.safetensors")
    assert [line.split()[0] for line in cairn("ls", "latest", "files")[1].splitlines()] == [
        "path",
        "files/model.safetensors",
    ]


@pytest.mark.parametrize(
    "args",
    [
        ("--metric", "loss"),
        ("--metric", "loss="),
        ("--metric", "=1"),
        ("--metric", "loss=low"),
        ("--metric", "loss=1_0"),
        ("--metric", "loss=0x10"),
        ("--metric", "loss=1 "),
        ("--metric", "a:b=1"),
        ("--metric", "a\nb=1"),
        ("--metric", "loss=99999999999999999999"),
        ("--metric", "loss=1", "--metric", "loss=2"),
        ("--step", "-1"),
        ("--step", "x"),
        ("--step", "99999999999999999999"),
        ("--run", "../up"),
    ],
)
def test_nonsense_is_wrong_usage(work: Path, cairn: Call, args: tuple[str, ...]) -> None:
    """Status 2, before anything is read."""
    status, out, err = cairn("commit", "ck", *args)
    assert (status, out) == (2, "")
    assert err.startswith("cairn: ")
    assert cairn("log")[1] == ""


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("-2", -2), ("1e-3", 0.001), (".5", 0.5), ("-inf", float("-inf"))]
)
def test_metrics_are_numbers_of_their_type(work: Path, cairn: Call, text: str, number: float) -> None:
    """An int stays an int."""
    cairn("commit", "ck", "--metric", f"loss={text}")
    with library.open("store") as store:
        found = store.commit("latest").metrics["loss"]
    assert (found, type(found)) == (number, type(number))


def test_what_is_not_there_is_not_found(work: Path, cairn: Call) -> None:
    """Status 4 for the folder; the FIFO in one is named."""
    assert cairn("commit", "nothing")[0] == 4
    os.mkfifo("ck/pipe")
    status, _, err = cairn("commit", "ck")
    assert status == 1
    assert "ck/pipe: expected a file, folder or link, found a FIFO" in err


@pytest.mark.parametrize("dry", [True, False])
def test_json_has_the_fields_of_the_library(work: Path, cairn: Call, dry: bool) -> None:
    """Published, or CommitPlan for a dry run."""
    status, out, err = cairn("commit", "ck", "--step", 5, "--json", *(["--dry-run"] if dry else []))
    assert (status, err) == (0, "")
    found = json.loads(out)
    with library.open("store") as store:
        run = store.run()
        if dry:
            assert found == json.loads(
                json.dumps(dataclasses.asdict(run.plan({"files": library.folder("ck")}, step=5)))
            )
            assert store.runs() == []
        else:
            assert found["commit"]["id"] == store.commit("latest").id
            assert found["is_new"] is True
            assert found["files"] == {"npz": 1, "opaque": 2, "safetensors": 1}


SLOW = """
import sys, time
from cairn.cli import progress
progress.DELAY_SECONDS = 0.01
with progress.moving_bytes("Reading files") as bar:
    bar.expect(40 << 20)
    for _ in range(10):
        bar.advance(3 << 20)
        time.sleep(0.1)
"""


def test_progress_has_bytes_rate_and_time_left_only_on_a_terminal() -> None:
    """A bar on stderr that is gone when the work is done; nothing where nobody looks."""
    quiet = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, check=True)
    assert (quiet.stdout, quiet.stderr) == (b"", b"")
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            shown += part
            if not part:
                break
        assert process.stdout is not None
        assert process.stdout.read() == b""
    os.close(ours)
    text = shown.decode()
    for word in ("Reading files", "/40.0 MiB", "MB/s", "0:00:0"):
        assert word in text
