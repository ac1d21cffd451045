"""Where a commit, a snapshot and a load of many small tensors spend their time, by module; prints shares.

    python experiments/20-commit-speed/where.py

A profiler makes Python slower and leaves what is written in C as it is, so the shares of Python are upper bounds.
"""

from __future__ import annotations

import cProfile
import pstats
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from states import build

import cairn

SHOWN = 12


def shares(what: str, do: Callable[[], object]) -> None:
    """Print where a call spends its time: own time by module, or by function where it is not Python."""
    profile = cProfile.Profile()
    profile.runcall(do)
    found: Counter[str] = Counter()
    for (file, _, function), (_, _, own, *_) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined] # not in the stubs
        module = Path(file)
        found[f"{module.parent.name}/{module.name}" if module.suffix == ".py" else function] += own
    total = sum(found.values())
    print(f"{what}: {total:.2f} s under the profiler")
    for name, own in found.most_common(SHOWN):
        print(f"  {own / total:6.1%}  {name}")


def main() -> None:
    """Profile a commit of (b), one that only takes a snapshot, and a load."""
    state = build("b")
    with tempfile.TemporaryDirectory() as folder, cairn.init(Path(folder) / "store") as store:
        run = store.run("main")
        run.commit({"small": 0})
        shares("commit, everything new", lambda: run.commit(state, step=1))
        shares("commit, nothing changed", lambda: run.commit(state, step=2))
        run.commit(state, step=3, wait=False).result()
        shares("snapshot", lambda: run.commit(state, step=4, wait=False))
        run.wait_until_finished()
        shares("load", run.load)


if __name__ == "__main__":
    main()
