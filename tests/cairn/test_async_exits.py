"""A process that ends or forks with a commit in flight: the commit is made, its failure is heard of, nothing hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cairn

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys, threading
sys.path.insert(0, {root!r})
import numpy as np
from tests.cairn.gates import GatedDisk
import cairn

disk = GatedDisk()
store = cairn.init({path!r}, disk=disk)
run = store.run()
state = {{"model": {{"w": np.full(5_000_000, 1.0), "v": np.arange(10)}}}}

"""


def run_script(path: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has a store with a gate, a run and a state of 40 MB."""
    # Newer Pythons warn of any fork beside threads; what comes of it is what is tested.
    script = SCRIPT.format(root=str(ROOT), path=str(path / "store")) + body
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


ENDS = {
    "falls off its end": ("", 0, ""),
    "calls sys.exit": ("sys.exit(3)", 3, ""),
    "dies of an error": ("raise ValueError('a bad batch')", 1, "ValueError: a bad batch"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_commit_in_flight_is_made_when_the_process(end: str, tmp_path: Path) -> None:
    """Threads and files that the commit needs work until it is made, whatever ends the program."""
    code, status, says = ENDS[end]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    body = f"""
disk.close_gate()
run.commit({{**state, "files": cairn.folder({str(tmp_path / "folder")!r})}}, step=1, wait=False)
threading.Thread(target=lambda: (threading.main_thread().join(), disk.open_gate())).start()
{code}
"""
    done = run_script(tmp_path, body)
    assert done.returncode == status
    assert says in done.stderr
    assert bool(done.stderr) == bool(says)
    with cairn.open(tmp_path / "store") as store:
        assert [commit.step for commit in store.log()] == [1]
        assert store.verify().ok


def test_a_commit_that_the_end_of_the_program_begins_is_made(tmp_path: Path) -> None:
    """Also one that goes on in the background, for which the interpreter waits no more."""
    run_script(tmp_path, "import atexit\natexit.register(lambda: run.commit(state, step=1, wait=False))")
    with cairn.open(tmp_path / "store") as store:
        assert [commit.step for commit in store.log()] == [1]
        assert store.verify().ok


def test_the_commit_that_was_waited_for_when_an_interrupt_ended_the_process_is_made(tmp_path: Path) -> None:
    """Ctrl-C ends the waiting and the program, and the interpreter still waits."""
    body = """
from tests.cairn.gates import interrupt_the_wait
disk.close_gate()
pending = run.commit(state, step=1, wait=False)
threading.Thread(target=lambda: (threading.main_thread().join(), disk.open_gate())).start()
disk.wait_until_reached()
interrupt_the_wait()
pending.result()
"""
    done = run_script(tmp_path, body)
    assert done.stderr.endswith("KeyboardInterrupt\n")
    with cairn.open(tmp_path / "store") as store:
        assert [commit.step for commit in store.log()] == [1]
        assert store.verify().ok


FAIL = """
disk.fails_at = "link"
pending = run.commit(state, step=1, wait=False)
"""


def test_a_failure_that_nobody_saw_is_printed_at_the_end(tmp_path: Path) -> None:
    """Python says it, with the commit that failed; the library itself prints nothing."""
    done = run_script(tmp_path, FAIL)
    assert "CairnError: commit of step 1 to run 'main' failed: no space left" in done.stderr
    assert not done.stdout


def test_all_failures_that_nobody_saw_are_printed_at_the_end(tmp_path: Path) -> None:
    """Those of several runs, too."""
    done = run_script(tmp_path, FAIL + 'store.run("other").commit(state, step=2, wait=False)')
    for words in ("step 1 to run 'main'", "step 2 to run 'other'"):
        assert f"commit of {words} failed: no space left" in done.stderr


def test_a_failure_that_was_seen_is_not_printed_at_the_end(tmp_path: Path) -> None:
    """Whoever caught it has dealt with it."""
    done = run_script(tmp_path, FAIL + "try:\n    pending.result()\nexcept cairn.CairnError:\n    pass")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


FORK = """
child_says, say = os.pipe()

def in_child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except cairn.CairnError as error:
            os.write(say, f"{error}".encode())
            sys.exit(7)
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

"""


def test_a_fork_leaves_the_commit_in_flight_to_its_parent(tmp_path: Path) -> None:
    """A child that ends as programs do neither waits for the commit nor makes it, nor says that it failed."""
    body = f"""{FORK}
disk.close_gate()
pending = run.commit(state, step=1, wait=False)
disk.wait_until_reached()
assert in_child(lambda: None) == 0
assert in_child(pending.result) == 7
assert os.read(child_says, 1000).decode().endswith(
    f"commit of step 1 to run 'main' is made by process {{os.getpid()}}, of which this one is a fork; ask there"
)
assert in_child(run.wait_until_finished) == 0
assert in_child(store.close) == 0
assert not pending.done()
disk.open_gate()
assert pending.result() == run.tip
"""
    done = run_script(tmp_path, body)
    assert (done.returncode, done.stderr) == (0, "")
    with cairn.open(tmp_path / "store") as store:
        assert [commit.step for commit in store.log()] == [1]
        assert store.verify().ok


def test_a_fork_can_use_the_handle(tmp_path: Path) -> None:
    """In the child the handle stands where it stood, without the commit in flight, for reading and for commits."""
    body = f"""{FORK}
run.commit(state, step=1)
disk.close_gate()
pending = run.commit(state | {{"more": 2}}, step=2, wait=False)
disk.wait_until_reached()

def read():
    assert run.load()["model"]["w"].sum() == 5_000_000
    assert run.tip.step == 1
    assert store.verify().ok

def commit():
    disk.open_gate()
    assert run.commit(state | {{"more": 3}}, step=3, wait=False).result().parents == (run.at(1).id,)
    run.commit(state | {{"more": 4}}, step=4)

assert in_child(read) == 0
assert in_child(commit) == 0, os.read(child_says, 1000)
disk.open_gate()
try:
    pending.result()
except cairn.Conflict:
    print("the run moved")
"""
    done = run_script(tmp_path, body)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the run moved\n", "")
    with cairn.open(tmp_path / "store") as store:
        assert [commit.step for commit in store.log()] == [4, 3, 1]
        assert store.verify().ok


def test_a_snapshot_in_a_fork_is_not_that_of_its_parent(tmp_path: Path) -> None:
    """A child that takes a snapshot by the same handle changes no byte of the one that its parent is storing."""
    body = f"""{FORK}
disk.close_gate()
pending = run.commit(state, step=1, wait=False)
disk.wait_until_reached()

def commit():
    disk.open_gate()
    disk.fails_at = "create"
    run.commit({{"model": {{"w": np.full(5_000_000, 2.0), "v": np.arange(10) + 1}}}}, step=1, wait=False).result()

assert in_child(commit) == 7
disk.open_gate()
pending.result()
found = run.load()["model"]
assert found["w"].sum() == 5_000_000 and found["v"].tolist() == [*range(10)]
assert store.verify().ok
"""
    done = run_script(tmp_path, body)
    assert (done.returncode, done.stderr) == (0, "")
