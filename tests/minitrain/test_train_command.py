"""`python -m minitrain train` against a real store: killed, stopped, resumed and refused."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cairn
from minitrain.cli import main
from minitrain.loop import train_n_steps
from minitrain.machines import Machines, build_machines
from minitrain.testing import byte_equal, capture_full_state

STEPS, EVERY = 40, 10


def invoke(store: Path, *options: str) -> Result:
    """Runs the command in this process."""
    return CliRunner().invoke(main, ["train", "--store", str(store), *options])


def start(store: Path, *options: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Starts the command in a process of its own."""
    command = [sys.executable, "-m", "minitrain", "train", "--store", str(store), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


def read_losses(path: Path) -> list[tuple[int, str]]:
    """Reads the whole lines of a file of losses; a process that was killed may have left half a one."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(record["step"], record["loss"]) for record in records]


def wait_for_step(path: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Waits until a step's loss has been written."""
    deadline = time.monotonic() + 60
    while not any(found >= step for found, _ in read_losses(path)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def reference() -> tuple[Machines, list[tuple[int, str]]]:
    """A run that no store ever saw, and its losses."""
    machines = build_machines(0)
    losses = train_n_steps(*machines, n=STEPS, return_losses=True)
    return machines, [(step, loss.hex()) for step, loss in enumerate(losses, start=1)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of 20 steps."""
    store = tmp_path_factory.mktemp("trained") / "store"
    assert invoke(store, "--steps", "20", "--commit-every", str(EVERY)).exit_code == 0
    return store


def test_a_killed_run_goes_on_to_the_same_bits(
    tmp_path: Path, reference: tuple[Machines, list[tuple[int, str]]]
) -> None:
    """After SIGKILL the run resumes from its last commit, to the losses and the state of a run without a stop."""
    store, file = tmp_path / "store", tmp_path / "losses.jsonl"
    options = ("--steps", str(STEPS), "--commit-every", str(EVERY), "--losses", str(file))
    process = start(store, *options)
    wait_for_step(file, EVERY + 5, process)
    process.kill()
    process.communicate()

    resumed = invoke(store, *options, "--resume")
    assert resumed.exit_code == 0, resumed.output
    committed = int(resumed.stdout.splitlines()[0].removeprefix("resumed from step "))
    assert committed % EVERY == 0
    assert committed >= EVERY
    machines, losses = reference
    records = read_losses(file)
    assert set(records) == set(losses), "a step that was trained twice had two losses"
    assert records[-1][0] == STEPS

    restored = build_machines(1)
    with cairn.open(store) as opened:
        restored.restore(opened.run("main").load())
        tip = opened.run("main").tip
    assert byte_equal(capture_full_state(*machines), capture_full_state(*restored))
    assert tip is not None
    assert f"manifest {tip.manifest}" in resumed.stdout.splitlines()
    assert f"final loss {float.fromhex(losses[-1][1]):.6f}" in resumed.stdout.splitlines()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_polite_signal_loses_no_step(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """The step that is under way is finished and committed, and the exit status names the signal."""
    store, file = tmp_path / "store", tmp_path / "losses.jsonl"
    process = start(store, "--steps", "100000", "--commit-every", "100000", "--losses", str(file))
    wait_for_step(file, 3, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (status, "")
    last, _ = read_losses(file)[-1]
    assert f"step {last}" in out.splitlines()
    with cairn.open(store) as opened:
        tip = opened.run("main").tip
    assert tip is not None
    assert (tip.step, tip.message) == (last, f"stopped by {number.name}")


def test_stopping_and_resuming_gives_the_ids_of_one_go(trained: Path, tmp_path: Path) -> None:
    """The same step has the same manifest id, however often the run was interrupted before it."""
    for options in (("--steps", "7"), ("--steps", "20", "--resume")):
        result = invoke(tmp_path / "store", *options)
        assert result.exit_code == 0, result.output
    with cairn.open(trained) as whole, cairn.open(tmp_path / "store") as parts:
        ids = [opened.run("main").at(20).manifest for opened in (whole, parts)]
    assert ids[0] == ids[1]


def test_a_commit_has_the_five_machines_and_its_metrics(trained: Path) -> None:
    """A commit stands every so many steps, with all of the state, the tie, the loss and the held-out loss."""
    with cairn.open(trained) as opened:
        run = opened.run("main")
        assert [commit.step for commit in run.log()] == [20, 10]
        state = run.load()
        assert run.at(20).metrics.keys() == {"loss", "val_loss"}
    assert tuple(state) == Machines._fields
    assert state["model"]["lm_head.weight"] is state["model"]["embed.weight"]
    assert set(state["optimizer"]["t"].values()) == {20}


def test_a_run_with_commits_is_not_started_again(trained: Path) -> None:
    """Without --resume nothing is trained, and the message names the way on."""
    result = invoke(trained, "--steps", "30")
    assert result.exit_code == 1
    assert "--resume" in result.stderr
    assert "step 20" in result.stderr


def test_another_seed_is_refused(trained: Path) -> None:
    """A run cannot change its seed; the right one, or none, is accepted."""
    result = invoke(trained, "--steps", "20", "--resume", "--seed", "5")
    assert result.exit_code == 1
    assert "seed 0" in result.stderr
    assert invoke(trained, "--steps", "20", "--resume", "--seed", "0").exit_code == 0


def test_an_empty_run_starts_fresh_and_says_so(trained: Path) -> None:
    """With --resume there may be nothing to resume: that is said, not hidden."""
    result = invoke(trained, "--run", "other", "--steps", "1", "--resume", "--seed", "4")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "run other has no commits yet; starts fresh with seed 4"


def test_nothing_left_to_train_is_said(trained: Path) -> None:
    """A run that has reached its step prints where it stands, and commits nothing."""
    result = invoke(trained, "--steps", "20", "--resume")
    assert result.exit_code == 0
    assert "step 20 is reached already; nothing was trained" in result.stdout.splitlines()
    assert "manifest " in result.stdout


def test_a_run_of_something_else_is_refused(tmp_path: Path) -> None:
    """A commit that lacks a machine is no state to go on from."""
    with cairn.init(tmp_path / "store") as opened:
        opened.run("main").commit({"model": {"w": 1.0}}, step=1)
    result = invoke(tmp_path / "store", "--resume")
    assert result.exit_code == 1
    assert "five machines" in result.stderr


@pytest.mark.parametrize(
    ("options", "status"),
    [(("--run", "bad/name"), 2), (("--steps", "0"), 2), (("--seed", "-1"), 2), (("--losses", "/nowhere/losses"), 1)],
)
def test_errors_are_sentences(tmp_path: Path, options: tuple[str, str], status: int) -> None:
    """Bad input gives an exit status and a message, never a traceback."""
    result = invoke(tmp_path / "store", *options)
    assert result.exit_code == status
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.strip()
    assert "Traceback" not in result.output


def test_the_bar_is_for_terminals_only(tmp_path: Path) -> None:
    """A terminal on standard error gets the bar; standard output has the plain lines either way."""
    reader, writer = pty.openpty()
    process = start(tmp_path / "store", "--steps", "2", stderr=writer)
    os.close(writer)
    shown = b""
    try:
        while piece := os.read(reader, 4096):
            shown += piece
    except OSError:  # Linux reports the end of a terminal as an error
        pass
    os.close(reader)
    out, _ = process.communicate(timeout=60)
    assert b"2/2" in shown
    assert "\x1b" not in out
    assert out.splitlines()[-1].startswith("manifest ")
