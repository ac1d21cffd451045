"""Known bugs of checkpointing, each put under the very tests that should see it.

Block D of the lab compares states, block E compares what happens next. The table says which of them a bug trips. Four
bugs pass block D: what they break is not in the state, or the state says what the object does not do. That is why
both are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from minitrain.checkpoint import CheckpointState, apply_checkpoint
from minitrain.corpus import VerbExample
from minitrain.data import Batch, DataIterator, collate, epoch_order
from minitrain.machines import Machines
from minitrain.model import MiniGPT
from minitrain.module import FloatArray, Parameter
from minitrain.optim import AdamW
from minitrain.rng import DROPOUT, stream
from minitrain.testing import build_fresh_with_seed

LoadTests = Callable[[str], ModuleType]
Build = Callable[[int], Machines]


class CachedOrderIterator(DataIterator):
    """Keeps the order of the epoch as an attribute, and does not renew it on a restore."""

    def __init__(self, examples: Sequence[VerbExample], *, batch_size: int, seed: int) -> None:
        super().__init__(examples, batch_size=batch_size, seed=seed)
        self._order = epoch_order(seed, self.epoch, len(self.examples))

    def __next__(self) -> Batch:
        chosen = self._order[self.position : self.position + self.batch_size]
        self.position += len(chosen)
        if self.position == len(self._order):
            self.epoch, self.position = self.epoch + 1, 0
            self._order = epoch_order(self.seed, self.epoch, len(self.examples))
        return collate([self.examples[index] for index in chosen])


class ForgetfulAdamW(AdamW):
    """Writes and restores the moments, but not the count of the updates."""

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"t": dict.fromkeys(self.t, 0)}


class ArrayHoldingAdamW(AdamW):
    """Looks up the arrays of the model once, and goes on updating these."""

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        super().__init__(parameters)
        self._held = {name: parameter.data for name, parameter in parameters.items()}

    def step(self, lr: float) -> None:
        live = {name: parameter.data for name, parameter in self.parameters.items()}
        for name, parameter in self.parameters.items():
            parameter.data = self._held[name]
        super().step(lr)
        for name, parameter in self.parameters.items():
            parameter.data = live[name]


def rebinding_load(model: MiniGPT) -> Callable[[Mapping[str, FloatArray]], None]:
    """Gives a load that puts new arrays into the parameters, instead of new values into the arrays."""

    def load(state: Mapping[str, FloatArray]) -> None:
        for name, parameter in model.named_parameters():
            parameter.data = state[name].copy()

    return load


def cached_order(seed: int) -> Machines:
    """A run whose iterator keeps a stale order."""
    machines = build_fresh_with_seed(seed)
    examples, batch_size = machines.data_iter.examples, machines.data_iter.batch_size
    return machines._replace(data_iter=CachedOrderIterator(examples, batch_size=batch_size, seed=seed))


def forgotten_count(seed: int) -> Machines:
    """A run whose optimizer never writes its t."""
    machines = build_fresh_with_seed(seed)
    return machines._replace(optimizer=ForgetfulAdamW(machines.model.unique_parameters()))


def rebound_arrays(seed: int) -> Machines:
    """A run whose model gets new arrays on a restore, while the optimizer keeps the old ones."""
    machines = build_fresh_with_seed(seed)
    machines.model.load_state_dict = rebinding_load(machines.model)  # type: ignore[method-assign, assignment]
    return machines._replace(optimizer=ArrayHoldingAdamW(machines.model.unique_parameters()))


def private_generator(seed: int) -> Machines:
    """Draws dropout from a generator that the model made from the seed; the restored one is idle."""
    machines = build_fresh_with_seed(seed)
    own, forward = stream(DROPOUT, seed), machines.model.forward

    def forward_with_own(tokens: npt.NDArray[np.int64], rng: np.random.Generator | None = None) -> FloatArray:
        return forward(tokens, own if rng is not None else None)

    machines.model.forward = forward_with_own  # type: ignore[method-assign]
    return machines


def double_counted_tie(seed: int) -> Machines:
    """A run whose optimizer takes the two names of the tied parameter for two parameters."""
    machines = build_fresh_with_seed(seed)
    return machines._replace(optimizer=AdamW(dict(machines.model.named_parameters())))


def apply_then_reseed(state: CheckpointState, *machines: Any) -> None:
    """Restores, then starts the generator again from the seed."""
    apply_checkpoint(state, *machines)
    machines[4].bit_generator.state = stream(DROPOUT, state.manifest["seed"]).bit_generator.state


def apply_without_count(state: CheckpointState, *machines: Any) -> None:
    """Restores, then loses the optimizer's t."""
    apply_checkpoint(state, *machines)
    machines[1].t = dict.fromkeys(machines[1].t, 0)


def passes(test: Callable[[Path], None], folder: Path) -> bool:
    """Runs a test in a new folder and says whether its assertions held."""
    folder.mkdir()
    try:
        test(folder)
    except AssertionError:
        return False
    return True


def mutate(tests: ModuleType, monkeypatch: pytest.MonkeyPatch, build: Build) -> None:
    """Makes the tests build their runs this way."""
    monkeypatch.setattr(tests, "build_fresh", lambda: build(0))
    monkeypatch.setattr(tests, "build_fresh_with_seed", build)


@pytest.mark.parametrize(
    ("build", "state_is_equal", "continuation_is_equal"),
    [
        (build_fresh_with_seed, True, True),
        (cached_order, True, False),
        (forgotten_count, True, False),
        (rebound_arrays, True, False),
        (private_generator, True, False),
        (double_counted_tie, True, True),
    ],
)
def test_blocks_d_and_e_see_different_bugs(
    build: Build,
    state_is_equal: bool,
    continuation_is_equal: bool,
    load_tests: LoadTests,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Equal states are necessary and not sufficient: only training on tells these bugs from a correct trainer."""
    tests = load_tests("test_checkpoint")
    mutate(tests, monkeypatch, build)
    assert passes(tests.test_byte_equivalent_roundtrip, tmp_path / "d") is state_is_equal
    assert passes(tests.test_resume_matches_continuous, tmp_path / "e") is continuation_is_equal


@pytest.mark.parametrize("apply", [apply_then_reseed, apply_without_count])
def test_a_state_restored_wrongly_trips_both_blocks(
    apply: Callable[..., None], load_tests: LoadTests, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Re-seeding the generator and losing the optimizer's count are visible in the state and in what follows."""
    tests = load_tests("test_checkpoint")
    monkeypatch.setattr(tests, "apply_checkpoint", apply)
    assert not passes(tests.test_byte_equivalent_roundtrip, tmp_path / "d")
    assert not passes(tests.test_resume_matches_continuous, tmp_path / "e")


def test_a_tie_counted_twice_is_seen_by_the_test_of_the_optimizer(
    load_tests: LoadTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates a step for one parameter round-trip perfectly, so only a test of the count itself can see them."""
    tests = load_tests("test_optimizer")
    tests.test_a_tied_parameter_is_updated_once_per_step()
    monkeypatch.setattr(tests, "build_fresh", lambda: double_counted_tie(0))
    with pytest.raises(AssertionError):
        tests.test_a_tied_parameter_is_updated_once_per_step()
