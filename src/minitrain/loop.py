"""The training loop: one step, and n of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minitrain.corpus import VerbExample
from minitrain.data import DataIterator, collate
from minitrain.model import MiniGPT, cross_entropy
from minitrain.optim import AdamW, clip_gradients
from minitrain.schedule import WarmupCosine

MAX_GRADIENT_NORM = 1.0


def train_step(
    model: MiniGPT,
    optimizer: AdamW,
    scheduler: WarmupCosine,
    data_iter: DataIterator,
    train_rng: np.random.Generator,
) -> float:
    """Trains on one batch and returns its loss before the update."""
    batch = next(data_iter)
    logits = model.forward(batch.inputs, train_rng)  # (B, T, V)
    loss, dlogits = cross_entropy(logits, batch.targets, batch.mask)
    model.zero_grad()
    model.backward(dlogits)
    clip_gradients(optimizer.parameters, MAX_GRADIENT_NORM)
    optimizer.step(scheduler.lr)
    scheduler.step()
    return loss


def train_n_steps(
    model: MiniGPT,
    optimizer: AdamW,
    scheduler: WarmupCosine,
    data_iter: DataIterator,
    train_rng: np.random.Generator,
    n: int = 10,
    return_losses: bool = False,
) -> list[float]:
    """Trains n steps; the list holds their losses if they are asked for, else it is empty."""
    losses = [train_step(model, optimizer, scheduler, data_iter, train_rng) for _ in range(n)]
    return losses if return_losses else []


def evaluate(model: MiniGPT, examples: Sequence[VerbExample]) -> float:
    """Returns the mean loss per token without dropout; nothing of the run moves."""
    batch = collate(examples)
    loss, _ = cross_entropy(model.forward(batch.inputs), batch.targets, batch.mask)
    return loss
