"""Training runs with jax that are killed go on as if they had not been."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.jax.common import bits, jax, jnp

import cairn

TRAINER = Path(__file__).with_name("trainer.py")


def trained(store: cairn.Store, name: str, *arguments: int) -> tuple[int, dict[str, str]]:
    """Runs the trainer in a process of its own: how it ended, and the loss of each step."""
    run = [sys.executable, "-W", "error", str(TRAINER), str(store.path), name, *map(str, arguments)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    losses = dict(line.split() for line in done.stdout.splitlines())
    return done.returncode, losses


def test_a_killed_run_goes_on_bit_for_bit(store: cairn.Store) -> None:
    """Weights, momentum, rate and key return such that every later loss and the last state are the very same."""
    ended, whole = trained(store, "whole", 9)
    assert ended == 0
    killed, before = trained(store, "killed", 9, 5)
    assert killed == -signal.SIGKILL
    ended, after = trained(store, "killed", 9)
    assert ended == 0
    assert (list(before), list(after)) == ([*"12345"], [*"456789"])
    assert before | after == whole
    assert store.commit("killed").manifest == store.commit("whole").manifest


def test_a_commit_leaves_arrays_to_be_overwritten(store: cairn.Store) -> None:
    """A commit that is done holds nothing: the next step still gets the memory of what was committed."""
    step = jax.jit(lambda state: jax.tree.map(lambda value: value + 1, state), donate_argnums=0)
    state: Any = {"model": {"w": jnp.arange(1 << 12, dtype=jnp.float32)}}
    expected = bits(state)
    run = store.run()
    run.commit(state, step=1)
    after = jax.block_until_ready(step(state))
    assert state["model"]["w"].is_deleted()
    assert bits(run.load()) == expected
    run.commit(after, step=2)
    assert bits(run.load()) == bits(after)
