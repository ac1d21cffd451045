"""Save and load speed as bars, beside what the machine can write and copy."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from statistics import median
from typing import Any

import machine
from rounds import COLD, FIRST, LOAD

PANELS = (FIRST, LOAD, COLD)


def draw(results: dict[str, Any], path: Path) -> bool:
    """Draw to an SVG file; False where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    # Text stays text, and the same figures give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "speed", "font.size": 8})
    plt: Any = importlib.import_module("matplotlib.pyplot")
    states = list(results["states"])
    figure, axes = plt.subplots(
        len(states), len(PANELS), figsize=(10, 2.4 * len(states)), squeeze=False, layout="constrained"
    )
    for row, state in zip(axes, states, strict=True):
        for axis, what in zip(row, PANELS, strict=True):
            _panel(axis, results, state, what)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def _panel(axis: Any, results: dict[str, Any], state: str, what: str) -> None:
    speeds: dict[str, list[float]] = {}
    bounds: dict[str, list[float]] = {}
    for each in results["timings"]:
        if each["state"] == state:
            speed = each["nbytes"] / each["seconds"] / 1e9
            if each["tool"] == machine.TOOL:
                bounds.setdefault(each["what"], []).append(speed)
            elif each["what"] == what:
                speeds.setdefault(each["tool"], []).append(speed)
    names = list(speeds)[::-1]
    middles = [median(speeds[name]) for name in names]
    reach = [
        [middle - min(speeds[name]) for name, middle in zip(names, middles, strict=True)],
        [max(speeds[name]) - middle for name, middle in zip(names, middles, strict=True)],
    ]
    colours = ["tab:blue" if name == "cairn" else "silver" for name in names]
    axis.barh(names, middles, xerr=reach, color=colours, error_kw={"lw": 0.8})
    if what == FIRST and bounds:
        best = max(median(bounds[name]) for name in machine.WRITES if name in bounds)
        axis.axvline(best, color="black", lw=0.8, ls="--", label="durable write")
        axis.legend(loc="lower right", frameon=False)
    axis.set_title(f"({state}) {what}, GB/s")
