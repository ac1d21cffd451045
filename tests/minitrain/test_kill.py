"""A training process killed at any moment goes on, to the last bit, as if nothing had happened."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import cairn

TRAINER = Path(__file__).with_name("killed_trainer.py")
DISK_POINTS, FORWARD_POINTS, OUTSIDE_POINTS = 20, 6, 4


@dataclass(frozen=True)
class Reference:
    """The run that nobody killed."""

    losses: dict[int, str]
    manifest: str
    disk_steps: list[str]


def start(folder: Path, where: str, *options: str) -> "subprocess.Popen[str]":
    """Start a trainer on the folder's store, to be killed at a point or never."""
    arguments = [str(folder / "store"), str(folder / "losses"), where, *options]
    command = [sys.executable, "-W", "error", str(TRAINER), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> str:
    """Wait for a process to end well; return what it said."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def losses_of(folder: Path) -> list[tuple[int, str]]:
    """Every loss that was written, by the killed process and by the one that went on; a torn last line is none."""
    lines = (folder / "losses").read_text().splitlines() if (folder / "losses").exists() else []
    return [(record["step"], record["loss"]) for line in lines if line.endswith("}") for record in [json.loads(line)]]


def check_equal(folder: Path, reference: Reference, *options: str) -> None:
    """Resume, and compare every loss that was ever written, and the last state, with the unbroken run's."""
    out = finish(start(folder, "never", *options))
    assert f"manifest {reference.manifest}" in out
    losses = losses_of(folder)
    assert {step for step, _ in losses} == set(reference.losses)
    for step, loss in losses:
        assert loss == reference.losses[step], f"another loss at step {step}"
    with cairn.open(folder / "store") as store:
        assert store.verify().ok
        assert [commit.step for commit in store.log()] == [12, 8, 4]
        assert store.commit("latest").manifest == reference.manifest


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Train once without a kill."""
    folder = tmp_path_factory.mktemp("reference")
    out = finish(start(folder, "count"))
    steps = [line.removeprefix("step ") for line in out.splitlines() if line.startswith("step ") and "/" in line]
    manifest = next(line.split()[1] for line in out.splitlines() if line.startswith("manifest "))
    return Reference(dict(losses_of(folder)), manifest, steps)


def disk_points(steps: list[str]) -> list[int]:
    """Points spread over all durable steps, and those around each entry: before its link and right after it."""
    links = [number for number, step in enumerate(steps, 1) if step.startswith("link main/")]
    around = [point for link in links for point in (link, link + 1)]
    spread = [1 + len(steps) * at // DISK_POINTS for at in range(DISK_POINTS)]
    return sorted({*spread, *around})


@pytest.mark.parametrize("options", [(), ("--async",)], ids=["waiting", "async"])
def test_resume_equals_the_unbroken_run_after_sigkill_at_durable_steps(
    options: tuple[str, ...], reference: Reference, tmp_path: Path
) -> None:
    """Killed before, in and after the writing of packs and entries, training ends with the same losses and state.

    With --async, what is killed is training that went on meanwhile.
    """
    points = disk_points(reference.disk_steps)
    assert len(points) >= DISK_POINTS
    points = points[::2] if options else points
    for point in points:
        folder = tmp_path / str(point)
        folder.mkdir()
        process = start(folder, f"disk:{point}", *options)
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, f"point {point}: {reference.disk_steps[point - 1]}"
        check_equal(folder, reference, *options)
    print(f"killed at {len(points)} of {len(reference.disk_steps)} durable steps")


@pytest.mark.parametrize("forward", [1, 3, 5, 8, 11, 14][:FORWARD_POINTS])
def test_resume_equals_the_unbroken_run_after_sigkill_in_a_forward_pass(
    forward: int, reference: Reference, tmp_path: Path
) -> None:
    """Killed in the middle of a step, training repeats the steps since the last commit and ends the same."""
    process = start(tmp_path, f"forward:{forward}")
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    check_equal(tmp_path, reference)


@pytest.mark.parametrize("options", [(), ("--async",)], ids=["waiting", "async"])
@pytest.mark.parametrize("lines", [1, 4, 7, 10][:OUTSIDE_POINTS])
def test_resume_equals_the_unbroken_run_after_sigkill_from_outside(
    lines: int, options: tuple[str, ...], reference: Reference, tmp_path: Path
) -> None:
    """Killed by another process at no chosen instruction, training ends the same."""
    process = start(tmp_path, "never", *options)
    deadline = time.monotonic() + 60
    while len(losses_of(tmp_path)) < lines and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.communicate(timeout=120)
    check_equal(tmp_path, reference, *options)
