"""What a commit in the background costs the training that goes on beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from cairn_tool import Cairn, can
from states import State, change_all

import cairn

WIDTH = 1024
CALM = "steps alone"


def beside_commits(state: State, folder: Path, least: float) -> Iterator[tuple[str, float]]:
    """Yield the seconds of steps alone, at both ends, and of as many while a commit is made, on one core and on all.

    A step is a product of matrices, on as many cores as the library takes. There are so many that they take `least`
    seconds alone.
    """
    if not can(cairn.Run.commit, "wait"):
        return
    step = _step()
    count = 1
    while _timed(step, count) < least / 8:
        count *= 2
    count *= 8
    yield CALM, _timed(step, count)
    for what, options in (("threads=1", {"threads": 1}), ("all threads", {})):
        if options and not can(cairn.Run.commit, "threads"):
            continue
        tool = Cairn(**options)
        tool.start(folder / what)
        tool.save_later(state)()
        change_all(state)
        start = time.perf_counter()
        wait = tool.save_later(state)
        _timed(step, count)
        yield f"steps and a commit, {what}", time.perf_counter() - start
        wait()
        tool.stop()
    yield CALM, _timed(step, count)


def _step() -> Callable[[], object]:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) for _ in range(2))
    out = np.empty_like(left)
    return lambda: np.matmul(left, right, out=out)


def _timed(step: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - start
