"""The learning rate: a linear warm-up, then half a cosine down to a floor.

The rate is a pure function of the step. The scheduler's only moving part is the step it stands at, and nothing of
it can drift: a resumed run computes the same rate as the run that never stopped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class WarmupCosine:
    """Rises to `peak` in `warmup` steps, falls to `floor` at step `horizon` and stays there."""

    def __init__(self, *, peak: float = 3e-3, floor: float = 3e-4, warmup: int = 50, horizon: int = 2000) -> None:
        self.peak, self.floor, self.warmup, self.horizon = peak, floor, warmup, horizon
        self.t = 0

    def lr_at(self, step: int) -> float:
        """Returns the rate of the update that follows `step` updates."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        progress = min(1.0, (step - self.warmup) / max(1, self.horizon - self.warmup))
        return self.floor + (self.peak - self.floor) * 0.5 * (1.0 + math.cos(math.pi * progress))

    @property
    def lr(self) -> float:
        """The rate of the next update."""
        return self.lr_at(self.t)

    def step(self) -> None:
        """Counts one update."""
        self.t += 1

    def state_dict(self) -> dict[str, Any]:
        """Returns the step and the shape of the schedule."""
        return dict(vars(self))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the step and the shape of the schedule, so that the rest of the curve stays the same."""
        for name in vars(self):
            setattr(self, name, state[name])
