"""A small training run with jax: python trainer.py STORE RUN STEPS [STEP AT WHICH IT DIES].

Everything that the next step depends on is in the state: weights of two types, momentum, a rate of weak type, the
random key. The step is given the old state to overwrite. It prints the loss of each step, as its bits.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any

import cairn
from cairn.errors import NotFound

jax: Any = import_module("jax")
jnp: Any = jax.numpy


def fresh() -> dict[str, Any]:
    """Makes the state that training starts from."""
    key, first, second = jax.random.split(jax.random.key(7), 3)
    model = {
        "in": jax.random.normal(first, (8, 16)),
        "out": jax.random.normal(second, (16, 4)).astype(jnp.bfloat16),
    }
    return {"model": model, "momentum": jax.tree.map(jnp.zeros_like, model), "rate": jnp.asarray(0.05), "key": key}


def loss_of(model: Any, key: Any) -> Any:
    """Predicts sums of random inputs, half of the hidden units left out."""
    data, drop = jax.random.split(key)
    inputs = jax.random.normal(data, (32, 8))
    hidden = jax.nn.relu(inputs @ model["in"]) * jax.random.bernoulli(drop, 0.5, (32, 16))
    return ((hidden @ model["out"] - inputs.reshape(32, 4, 2).sum(2)) ** 2).mean()


def step(state: Any) -> tuple[Any, Any]:
    """Trains one step."""
    key, now = jax.random.split(state["key"])
    loss, gradients = jax.value_and_grad(loss_of)(state["model"], now)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradients)
    model = jax.tree.map(lambda w, m: w - state["rate"] * m, state["model"], momentum)
    return {"model": model, "momentum": momentum, "rate": state["rate"] * 0.99, "key": key}, loss


def main(path: str, name: str, steps: str, dies: str = "0") -> None:
    """Trains, from the newest commit if there is one, and commits every third step."""
    run = cairn.open(path).run(name)
    jitted = jax.jit(step, donate_argnums=0)
    try:
        state = run.resume()
        assert run.base is not None
        done = run.base.step or 0
    except NotFound:
        state, done = fresh(), 0
    for number in range(done + 1, int(steps) + 1):
        state, loss = jitted(state)
        print(number, float(loss).hex(), flush=True)
        if number % 3 == 0:
            run.commit(state, step=number)
        if number == int(dies):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
