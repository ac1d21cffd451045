"""Training runs with jax that are killed go on as if they had not been."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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


def test_a_commit_in_the_background_keeps_what_was_donated(store: cairn.Store) -> None:
    """WAIT: what was in the state is stored, though the next steps may overwrite it, and no copy is made of it."""

    def step(state: Any) -> Any:
        return {"w": state["w"] * 2 + 1, "key": jax.random.fold_in(state["key"], 1)}

    jitted = jax.jit(step, donate_argnums=0)
    state = {"w": jnp.arange(1 << 22, dtype=jnp.float32), "key": jax.random.key(0)}
    run = store.run()
    expected, pending = [], []
    for number in range(1, 5):
        expected.append(bits({"model": state}))
        pending.append(run.commit({"model": state}, step=number, wait=False))
        state = jax.block_until_ready(jitted(state))
    assert [commit.result().step for commit in pending] == [1, 2, 3, 4]
    assert [bits(run.load(step=number)) for number in range(1, 5)] == expected
    assert store.verify().ok


def test_memory_that_was_lent_to_jax_and_changes_makes_no_false_blob(
    store: cairn.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """jax forbids it, yet it costs only the values that were changed: every blob is still what its id says."""
    padded = np.zeros((5 << 20) + 64, np.uint8)
    start = -padded.__array_interface__["data"][0] % 64
    lent = padded[start : start + (5 << 20)].view(np.float32)
    array = jax.device_put(lent, may_alias=True)
    real = cairn.ids.blob_id

    def changing(*arguments: Any) -> str:
        found = real(*arguments)
        lent[:] += 1
        return found

    monkeypatch.setattr("cairn.objects.intake.blob_id", changing)
    store.run().commit({"model": {"w": array}}, step=1)
    monkeypatch.undo()
    assert (np.asarray(array) > 0).all()
    assert store.verify().ok
