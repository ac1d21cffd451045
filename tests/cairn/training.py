"""Runs to try things on: states of which half is new at every step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import cairn


def state(value: float) -> dict[str, Any]:
    """Make a state of which half is new for every value."""
    return {"model": np.full(100, float(value)), "optimizer": [np.full(100, -float(value))], "frozen": np.arange(50)}


def train(run: cairn.Run, *steps: int, **metrics: float) -> list[cairn.Commit]:
    """Commit some steps, ten of them an epoch, with a loss that falls."""
    return [
        run.commit(state(step), step=step, epoch=step // 10, metrics={"loss": 100 - step, **metrics}) for step in steps
    ]


def steps(commits: Iterable[cairn.Commit]) -> list[int | None]:
    """Return the steps of commits."""
    return [commit.step for commit in commits]
