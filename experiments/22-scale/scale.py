"""Build stores of up to 100 000 commits and 1 000 000 blobs, and measure what people do with them.

    python experiments/22-scale/scale.py                  # some forty minutes on two cores, 2 GiB of disk
    python experiments/22-scale/scale.py --sizes 1000     # a minute

Every command is a process of its own, as a person would start it; its time is the whole process, its memory the most
that was resident. The stores are built through the library, with fsync left out; what is measured has it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import cairn
from cairn.io.disk import Disk
from cairn.io.handles import NewFile
from cairn.store.store import open_store

HERE = Path(__file__).parent
SIZES = (1_000, 10_000, 100_000)
BLOBS = 8
"""Tensors of a commit; with the trees of its components and its manifest some ten blobs are new in each."""
PEAK = """
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        sys.stderr.write("\\n" + line)
"""
COMMAND = """
import sys
from cairn.cli.main import execute
status = execute(sys.argv[1:])
if status:
    sys.exit(status)
"""
SMALL_STATE = """
import sys, time, numpy, cairn
store = cairn.open(sys.argv[1])
run = store.run("main")
step = run.tip.step if run.tip else 0
times = []
for n in range(int(sys.argv[2])):
    state = {"model": {f"w{i}": numpy.full(16, step + n + i / 10, "f4") for i in range(8)}, "step": {"n": step + n}}
    start = time.perf_counter()
    run.commit(state, step=step + n + 1, epoch=step // 1000, metrics={"val_loss": 1 / (step + n + 1)})
    times.append(time.perf_counter() - start)
print(*times)
"""


class UnsyncedFile(NewFile):
    """A file that is not forced to the medium."""

    def sync(self) -> None:
        """Do nothing."""


class UnsyncedDisk(Disk):
    """A disk for building: a power cut may take all of it."""

    def create(self, path: Path, mode: int = 0o444) -> NewFile:
        """Open a file that is not forced."""
        made = super().create(path, mode)
        made.__class__ = UnsyncedFile
        return made

    def sync_folder(self, path: Path) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Measured:
    """One operation at one size."""

    commits: int
    what: str
    seconds: float
    low: float
    high: float
    mebibytes: float


def build(root: Path, commits: int) -> None:
    """Make a store with a run of so many commits; one in a hundred goes back some steps first."""
    cairn.init(root).close()
    with open_store(root, disk=UnsyncedDisk()) as store:
        run = store.run("main")
        for number in range(commits):
            state = {
                "model": {f"w{i}": np.full(16, number + i / 10, np.float32) for i in range(BLOBS)},
                "step": {"n": number},
            }
            run.commit(state, step=number, epoch=number // 1000, metrics={"val_loss": (number * 7919 % 10_007) / 1e4})
            if number % 1000 == 999:
                print(f"\r{number + 1} of {commits}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def spend(code: str, *args: object) -> tuple[float, float, str]:
    """Run code in a new process; return its seconds, its peak of resident MiB, and its output."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code + PEAK, *map(str, args)], capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{args} failed with {done.returncode}: {done.stderr[-500:]}")
    return seconds, int(done.stderr.splitlines()[-1].split()[1]) / 1024, done.stdout


def measure(root: Path, commits: int, repeats: int) -> Iterator[Measured]:
    """Measure everything on one store."""

    def timed(what: str, *args: str, times: int = repeats) -> Measured:
        runs = [spend(COMMAND, "--store", root, *args) for _ in range(times)]
        seconds = sorted(run[0] for run in runs)
        return Measured(commits, what, statistics.median(seconds), seconds[0], seconds[-1], max(run[1] for run in runs))

    yield timed("cairn --version, which opens nothing", "--version")
    yield timed("log -n 20", "log", "-n", "20")
    yield timed("show step:N", "show", f"step:{commits // 3}")
    yield timed("show best:val_loss:min", "show", "best:val_loss:min")
    yield timed("show epoch:0", "show", "epoch:0")
    yield timed("du of one commit", "du", "latest", times=1)
    yield commit_more(root, commits)
    yield timed("gc --dry-run", "gc", "--dry-run", times=1)
    yield timed("gc --keep-last 100 --dry-run", "gc", "--keep-last", "100", "--dry-run", times=1)
    yield timed("gc, which folds entries", "gc", times=1)
    yield timed("log -n 20, folded", "log", "-n", "20")
    yield timed("show step:N, folded", "show", f"step:{commits // 3}")
    yield timed("verify --quick", "verify", "--quick", times=1)
    yield timed("reindex", "reindex", times=1)
    yield timed("gc --compact, which joins packs", "gc", "--compact", times=1)
    yield timed("log -n 20, compacted", "log", "-n", "20")
    yield timed("gc --dry-run, compacted", "gc", "--dry-run", times=1)
    yield timed("gc --keep-last 100", "gc", "--keep-last", "100", times=1)


def commit_more(root: Path, commits: int) -> Measured:
    """Commit small states in a process that opened the store for it: the first and the twenty after it."""
    _, memory, text = spend(SMALL_STATE, root, 21)
    times = sorted(map(float, text.split()[1:]))
    return Measured(commits, "a commit of one more", statistics.median(times), times[0], times[-1], memory)


def files(root: Path) -> dict[str, int]:
    """Count the files of entries and packs."""
    return {
        "entries": len(list((root / "runs" / "main").iterdir())) if (root / "runs").exists() else 0,
        "packs": sum(1 for _ in (root / "packs").glob("*/*")),
    }


def table(found: list[Measured]) -> str:
    """Spell what was measured as a table: a row for each operation, seconds and MiB for each size."""
    sizes = sorted({each.commits for each in found if each.commits})
    cells = {(each.what, each.commits): each for each in found}
    lines = [
        "| operation | " + " | ".join(f"{size:,} commits" for size in sizes) + " |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for what in dict.fromkeys(each.what for each in found if each.commits):
        row = [cells[what, size] for size in sizes]
        lines.append(
            f"| {what} | " + " | ".join(f"{each.seconds:.3g} s, {each.mebibytes:.0f} MiB" for each in row) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write results.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where stores are built once, and copied to be measured")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    found: list[Measured] = []
    counts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        empty = Path(temporary) / "empty"
        cairn.init(empty).close()
        found.append(commit_more(empty, 0))
        print(found[-1], flush=True)
        for commits in options.sizes:
            built = (options.folder or Path(temporary)) / str(commits)
            if not built.exists():
                build(built, commits)
            root = Path(shutil.copytree(built, Path(temporary) / f"copy-{commits}"))
            counts[str(commits)] = {"before": files(root)}
            for each in measure(root, commits, options.repeats):
                print(f"{each.commits:7} {each.seconds:9.3f} s {each.mebibytes:7.0f} MiB  {each.what}", flush=True)
                found.append(each)
            counts[str(commits)]["after"] = files(root)
            shutil.rmtree(root)
    print(table(found))
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "cairn": version("cairn-store")}
    options.out.write_text(
        json.dumps({"machine": machine, "files": counts, "measured": [asdict(each) for each in found]}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
