"""The baseline: each token predicted from the one before it, by counting.

A model is worth its training only if it beats this. The counts are smoothed by adding k to each, and k is chosen to
suit the held-out forms best: the baseline gets an advantage that the model does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from minitrain.corpus import VerbExample
from minitrain.data import collate
from minitrain.tokenizer import SYMBOLS

CANDIDATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def bigram_loss(train: Sequence[VerbExample], held_out: Sequence[VerbExample]) -> tuple[float, float]:
    """Returns the mean held-out loss per token, in nats, and the k that makes it smallest."""
    counts = count_pairs(train)
    before, after = _pairs(held_out)

    def loss(k: float) -> float:
        smoothed = counts + k
        probabilities = smoothed / smoothed.sum(1, keepdims=True)  # (V, V)
        return float(-np.log(probabilities[before, after]).mean())

    return min((loss(k), k) for k in CANDIDATES)


def count_pairs(examples: Sequence[VerbExample]) -> npt.NDArray[np.float64]:
    """Counts how often each token follows each other one."""
    counts = np.zeros((len(SYMBOLS), len(SYMBOLS)))  # (V, V)
    np.add.at(counts, _pairs(examples), 1.0)
    return counts


def _pairs(examples: Sequence[VerbExample]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    batch = collate(examples)
    return batch.inputs[batch.mask], batch.targets[batch.mask]
