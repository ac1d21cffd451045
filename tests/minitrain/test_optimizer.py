"""AdamW, clipping and the schedule."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from minitrain.loop import train_n_steps
from minitrain.module import Parameter
from minitrain.optim import AdamW, clip_gradients
from minitrain.schedule import WarmupCosine
from minitrain.testing import build_fresh


def test_a_tied_parameter_is_updated_once_per_step() -> None:
    """One parameter under two names has one m, one v and one t, and t is the number of steps."""
    machines = build_fresh()
    train_n_steps(*machines, n=3)
    state = machines.optimizer.state_dict()
    assert state["m"].keys() == state["v"].keys() == state["t"].keys()
    assert "embed.weight" in state["t"]
    assert "lm_head.weight" not in state["t"]
    assert set(state["t"].values()) == {3}
    assert len({id(parameter) for parameter in machines.optimizer.parameters.values()}) == len(state["t"]) == 23


def test_updates_follow_the_formula_of_adamw() -> None:
    """Three updates equal the formula of the paper, computed in float64 for one number."""
    parameter = Parameter(np.full((1, 1), 0.5))
    optimizer = AdamW({"w": parameter}, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    w, m, v, lr = 0.5, 0.0, 0.0, 0.01
    for t, gradient in enumerate((0.3, -1.2, 0.7), start=1):
        parameter.grad[...] = gradient
        optimizer.step(lr)
        m = 0.9 * m + 0.1 * gradient
        v = 0.95 * v + 0.05 * gradient**2
        w = w * (1 - lr * 0.1) - lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.95**t)) ** 0.5 + 1e-8)
        assert parameter.data[0, 0] == pytest.approx(w, rel=1e-14)


def test_decay_spares_scales_and_shifts() -> None:
    """Without a gradient a matrix shrinks and a vector stays."""
    matrix, vector = Parameter(np.ones((2, 2))), Parameter(np.ones(2))
    AdamW({"matrix": matrix, "vector": vector}).step(0.1)
    assert (matrix.data < 1).all()
    assert (vector.data == 1).all()


def test_updates_and_loads_keep_the_arrays() -> None:
    """Training and restoring change values in place and never replace an array."""
    machines = build_fresh()
    held = machines.model.state_dict()
    state = build_fresh().state()
    train_n_steps(*machines, n=1)
    machines.restore(state)
    assert all(machines.model.state_dict()[name] is array for name, array in held.items())


def test_clipping_scales_all_gradients_together() -> None:
    """A joint norm above the limit becomes the limit, and one below it is left alone."""
    first, second = Parameter(np.zeros(1)), Parameter(np.zeros(1))
    first.grad[...], second.grad[...] = 3.0, 4.0
    parameters = {"first": first, "second": second}
    assert clip_gradients(parameters, 10.0) == 5.0
    assert (first.grad[0], second.grad[0]) == (3.0, 4.0)
    assert clip_gradients(parameters, 1.0) == 5.0
    assert (first.grad[0], second.grad[0]) == pytest.approx((0.6, 0.8))


def test_the_rate_is_a_pure_function_of_the_step() -> None:
    """The rate rises over the warm-up, falls to the floor and stays there, and asking for it moves nothing."""
    schedule = WarmupCosine(peak=1.0, floor=0.1, warmup=10, horizon=100)
    rates = [schedule.lr_at(step) for step in range(150)]
    assert rates[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert rates[10] == 1.0
    assert all(before > after for before, after in pairwise(rates[10:101]))
    assert set(rates[100:]) == {0.1}
    assert schedule.lr == rates[0]
    schedule.step()
    assert schedule.lr == rates[1]
