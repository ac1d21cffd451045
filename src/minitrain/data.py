"""Batches, and the iterator that deals them out.

A sequence is `<bos> es / en <eos>`. The model reads all of it but the last token and predicts all of it but the
first. Sequences of one batch are padded on the right to the longest; the mask keeps padding out of the loss.

The iterator's whole state is (seed, epoch, position). The order of an epoch is a *pure function* of seed and
epoch and is no part of the state: an order kept in the object would survive a restore, and the run would go on with
the batches of the wrong epoch although every saved number was right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from minitrain.corpus import VerbExample, manifest_hash
from minitrain.errors import MinitrainError, StateMismatch
from minitrain.rng import SHUFFLE, stream
from minitrain.tokenizer import BOS, EOS, PAD, encode


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """B sequences side by side."""

    inputs: npt.NDArray[np.int64]  # (B, T)
    targets: npt.NDArray[np.int64]  # (B, T): the inputs, one token later
    mask: npt.NDArray[np.bool_]  # (B, T): True where the target is a token of the sequence


def collate(examples: Sequence[VerbExample]) -> Batch:
    """Encodes examples and pads them to the longest."""
    rows = [[BOS, *encode(example.text), EOS] for example in examples]
    tokens = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)  # (B, T + 1)
    for row, sequence in zip(tokens, rows, strict=True):
        row[: len(sequence)] = sequence
    return Batch(tokens[:, :-1], tokens[:, 1:], tokens[:, 1:] != PAD)


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, count: int) -> tuple[int, ...]:
    """Returns the order of an epoch; cached under all that it depends on, so the cache cannot be stale."""
    return tuple(stream(SHUFFLE, seed, epoch).permutation(count).tolist())


class DataIterator:
    """Deals every example once per epoch, in an order of that epoch's own, without end."""

    def __init__(self, examples: Sequence[VerbExample], *, batch_size: int, seed: int) -> None:
        if not examples or batch_size < 1:
            raise MinitrainError(f"cannot deal {len(examples)} examples in batches of {batch_size}.")
        self.examples = tuple(examples)
        self.manifest_hash = manifest_hash(examples)
        self.batch_size, self.seed = batch_size, seed
        self.epoch, self.position = 0, 0

    def __iter__(self) -> DataIterator:
        return self

    def __next__(self) -> Batch:
        """Returns the next batch; the last one of an epoch may be smaller."""
        order = epoch_order(self.seed, self.epoch, len(self.examples))
        chosen = order[self.position : self.position + self.batch_size]
        self.position += len(chosen)
        if self.position == len(order):
            self.epoch, self.position = self.epoch + 1, 0
        return collate([self.examples[index] for index in chosen])

    def state_dict(self) -> dict[str, Any]:
        """Returns the place in the data, and what the place means only together with."""
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self.position,
            "batch_size": self.batch_size,
            "manifest_hash": self.manifest_hash,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to a place in the data; refuses one that was taken over other examples."""
        if state["manifest_hash"] != self.manifest_hash:
            raise StateMismatch(
                f"the state was taken over the examples {state['manifest_hash']}, the iterator deals "
                f"{self.manifest_hash}; the same position would be other data."
            )
        self.seed, self.batch_size = state["seed"], state["batch_size"]
        self.epoch, self.position = state["epoch"], state["position"]
