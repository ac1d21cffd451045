"""The five state machines of a training run.

A run is at a definite point only if all five are: the model, the optimizer, the scheduler, the data iterator and the
generator that dropout draws from. Restoring four of them gives a run that trains well and is another run.

    machine     state                       moves
    model       the parameters              once per step
    optimizer   m, v and t per parameter    once per step
    scheduler   the step                    once per step
    data_iter   seed, epoch, position       once per batch
    train_rng   the generator's state       once per draw
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minitrain.corpus import VerbExample, build_corpus, split_corpus
from minitrain.data import DataIterator
from minitrain.errors import StateMismatch
from minitrain.model import DEFAULT, MiniGPT, MiniGPTConfig, build_minigpt
from minitrain.optim import AdamW
from minitrain.rng import DROPOUT, restore_state, stream
from minitrain.schedule import WarmupCosine

BATCH_SIZE = 16


class Machines(NamedTuple):
    """The five, in the order in which every function takes them."""

    model: MiniGPT
    optimizer: AdamW
    scheduler: WarmupCosine
    data_iter: DataIterator
    train_rng: np.random.Generator

    def state(self) -> dict[str, Any]:
        """Gathers the whole state as plain containers; the arrays are the live ones, so save before going on."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "data_iter": self.data_iter.state_dict(),
            "train_rng": self.train_rng.bit_generator.state,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Puts every machine where the state was taken, in place.

        After an error some of them may have been restored and others not: build new ones.
        """
        loaders: tuple[Callable[[Any], None], ...] = (
            self.model.load_state_dict,
            self.optimizer.load_state_dict,
            self.scheduler.load_state_dict,
            self.data_iter.load_state_dict,
            partial(restore_state, self.train_rng),
        )
        if missing := [name for name in self._fields if name not in state]:
            raise StateMismatch(f"the state lacks {missing}; a run resumes exactly only from all five machines.")
        for name, load in zip(self._fields, loaders, strict=True):
            try:
                load(state[name])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise StateMismatch(f"the state of {name} has not the form that it needs: {error!r}.") from error


def build_machines(
    seed: int = 0,
    *,
    config: MiniGPTConfig = DEFAULT,
    examples: Sequence[VerbExample] | None = None,
    batch_size: int = BATCH_SIZE,
    horizon: int = 2000,
) -> Machines:
    """Builds a run at its start; two calls share nothing. Without examples, it gets the training forms."""
    if examples is None:
        examples, _ = split_corpus(build_corpus())
    model = build_minigpt(config, seed=seed)
    return Machines(
        model,
        AdamW(model.unique_parameters()),
        WarmupCosine(horizon=horizon),
        DataIterator(examples, batch_size=batch_size, seed=seed),
        stream(DROPOUT, seed),
    )
