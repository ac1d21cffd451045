"""Measure how fast a state is saved and loaded, by cairn and by others, in one run on one machine.

    make bench                                                  # everything, in an environment of its own
    python experiments/20-commit-speed/bench.py --scale 0.01    # seconds, with whatever is installed

Every tool gets the same states and a folder of its own in each round; tools take turns, and so do the measurements
of what the machine can do at most. What is not installed is left out with a word.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import durability
import machine
import memory
import plot
import report
import states
import system_calls
import tiny
import training
from cairn_tool import Cairn, can
from rounds import one_round
from timing import Timing
from tool import Tool
from tools import all_tools

import cairn

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "store"
PARTS = ("tools", "memory", "training", "tiny", "durability")


def main() -> None:
    """Measure, and write results.json, the plot and the tables."""
    options = _arguments()
    tools, missing = _chosen(options.only)
    results: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "revision": machine.revision(),
        "versions": machine.versions(),
        "options": {name: getattr(options, name) for name in ("state", "part", "scale", "repeat", "slow", "minutes")},
        "missing": missing,
        "states": {},
        "timings": [],
        "memory": [],
        "durability": {},
    }
    for name, reason in missing.items():
        _say(f"left out: {name}: {reason}")
    with tempfile.TemporaryDirectory(prefix="speed-", dir=options.folder) as temporary:
        folder = Path(temporary)
        results["machine"] = machine.describe(folder)
        _warm_up(tools, folder, missing)
        start = time.monotonic()
        for number, name in enumerate(options.state, 1):
            until = start + options.minutes * 60 * number / len(options.state)
            _measure_state(name, tools, folder, until, options, results)
        if "tiny" in options.part:
            (folder / "tiny-state").mkdir()
            for tool, number, seconds in tiny.rounds(folder / "tiny-state", 3 * options.repeat):
                _keep(results, Timing("tiny", tool, "commit", number, seconds, 0))
        if "durability" in options.part:
            results["durability"] = _durability(tools, folder)
    _write(results, options.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=_words, default=list(states.STATES), help="a,b,c")
    parser.add_argument("--only", type=_words, help="tools, by the beginnings of their names: cairn,safetensors")
    parser.add_argument("--part", type=_words, default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--repeat", type=int, default=5, help="rounds")
    parser.add_argument("--slow", type=int, default=1, help="rounds of the tools that take long")
    parser.add_argument("--minutes", type=float, default=14, help="begin no third round after about so long")
    parser.add_argument("--scale", type=float, default=1.0, help="0.01 for states a hundred times smaller")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where states are kept meanwhile: up to 12 GB")
    parser.add_argument("--out", type=Path, default=HERE, help="where results.json, speed.svg and README.md are")
    return parser.parse_args()


def _words(text: str) -> list[str]:
    return text.split(",")


def _chosen(only: list[str] | None) -> tuple[list[Tool], dict[str, str]]:
    """Return the tools that are asked for and installed, and why others are left out."""
    tools = [tool for tool in all_tools() if only is None or tool.name.startswith(tuple(only))]
    missing = {tool.name: reason for tool in tools if (reason := tool.missing())}
    return [tool for tool in tools if tool.name not in missing], missing


def _warm_up(tools: list[Tool], folder: Path, missing: dict[str, str]) -> None:
    """Let every tool import or read what it needs."""
    for _ in _round(tools, states.build("a", 0.001), folder, missing, is_slow_too=True):
        pass


def _measure_state(
    name: str, tools: list[Tool], folder: Path, until: float, options: argparse.Namespace, results: dict[str, Any]
) -> None:
    """Measure everything on one state; a round that would begin after `until` is left out, but not the first two."""
    state = states.build(name, options.scale)
    nbytes = states.nbytes(state)
    count = sum(1 for _ in states.tensors(state))
    results["states"][name] = {"what": states.STATES[name], "tensors": count, "bytes": nbytes}
    if "tools" in options.part:
        for number in range(options.repeat):
            if number >= 2 and time.monotonic() > until:
                break
            is_slow_too = number < options.slow
            for tool, what, seconds in _round(tools, state, folder, results["missing"], is_slow_too=is_slow_too):
                _keep(results, Timing(name, tool, what, number, seconds, nbytes))
    if "training" in options.part:
        (folder / "training").mkdir()
        for number in range(min(2, options.repeat)):
            least = min(3.0, 60 * options.scale)
            for what, seconds in training.beside_commits(state, folder / "training" / str(number), least):
                _keep(results, Timing(name, "training", what, number, seconds, nbytes))
            shutil.rmtree(folder / "training" / str(number), ignore_errors=True)
        (folder / "training").rmdir()
    del state
    if "memory" in options.part:
        for mode in memory.MODES:
            if mode != memory.IN_BACKGROUND or can(cairn.Run.commit, "wait"):
                peak = memory.peak(name, options.scale, mode, folder)
                results["memory"].append({"state": name, "mode": mode, "bytes": peak})
                _say(f"{name}  {mode}: {peak / 2**20:.0f} MiB beside the state")


def _round(
    tools: list[Tool], state: states.State, folder: Path, missing: dict[str, str], *, is_slow_too: bool
) -> Iterator[tuple[str, str, float]]:
    for what, seconds in machine.bounds(folder, states.nbytes(state)):
        yield machine.TOOL, what, seconds
    for tool in list(tools):
        if is_slow_too or not tool.is_slow:
            try:
                for what, seconds in one_round(tool, state, folder / "kept"):
                    yield tool.name, what, seconds
            except Exception as error:
                if isinstance(tool, Cairn):
                    raise
                # What fails once is left out from then on, and the others go on.
                tools.remove(tool)
                missing[tool.name] = f"failed: {error}"
                _say(f"left out: {tool.name}: {error!r}")


def _durability(tools: list[Tool], folder: Path) -> dict[str, dict[str, int]]:
    if reason := system_calls.missing():
        _say(f"left out: what is forced: {reason}")
        return {}
    gits = [git for git in tiny.GITS if not git.missing()]
    return {tool.name: durability.of(tool.name, folder) for tool in [*tools, *gits]}


def _keep(results: dict[str, Any], timing: Timing) -> None:
    results["timings"].append(asdict(timing) | {"seconds": round(timing.seconds, 6)})
    _say(f"{timing.state}  round {timing.round}  {timing.seconds:9.4f} s  {timing.tool}: {timing.what}")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", file=sys.stderr, flush=True)


def _write(results: dict[str, Any], out: Path) -> None:
    """Write what was measured, the plot, and the tables into the page if there is one."""
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    plot.draw(results, out / "speed.svg")
    text = report.tables(results)
    print(text)
    readme = out / "README.md"
    if readme.exists():
        readme.write_text(report.put(readme.read_text(), text))


if __name__ == "__main__":
    main()
