"""What the tests and the experiment need: fresh runs, full states, and a strict idea of equality.

Two values are equal here if they are the same bytes of the same type. `numpy.allclose` hides the rounding errors that
a checkpoint must not make, and even `numpy.array_equal` calls 0.0 and -0.0 the same.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from minitrain.corpus import build_corpus, split_corpus
from minitrain.data import DataIterator
from minitrain.machines import Machines, build_machines
from minitrain.model import MiniGPT
from minitrain.module import Parameter
from minitrain.optim import AdamW
from minitrain.schedule import WarmupCosine

EXAMPLES = 100  # seven batches: ten steps reach into the second epoch, where a stale order would show


def build_fresh_with_seed(seed: int) -> Machines:
    """Builds a run over a small part of the corpus; two calls share nothing."""
    train, _ = split_corpus(build_corpus())
    return build_machines(seed, examples=train[::5][:EXAMPLES])


def build_fresh() -> Machines:
    """Builds a run with seed 0."""
    return build_fresh_with_seed(0)


def capture_full_state(
    model: MiniGPT,
    optimizer: AdamW,
    scheduler: WarmupCosine,
    data_iter: DataIterator,
    train_rng: np.random.Generator,
) -> dict[str, Any]:
    """Copies the state of all five machines; the keys lead to single tensors: `optimizer.m.embed.weight`."""
    state = Machines(model, optimizer, scheduler, data_iter, train_rng).state()
    flat: dict[str, Any] = {}
    for machine, parts in state.items():
        for key, value in parts.items():
            if machine == "optimizer" and isinstance(value, dict):
                flat |= {f"{machine}.{key}.{name}": copy.deepcopy(item) for name, item in value.items()}
            else:
                flat[f"{machine}.{key}"] = copy.deepcopy(value)
    return flat


def byte_equal(a: object, b: object) -> bool:
    """Compares exactly: arrays by type, shape and bytes, dictionaries by key, all else by type and value."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(byte_equal(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


def unique_params(model: MiniGPT) -> list[Parameter]:
    """Returns each parameter once, however many names it has."""
    return list(model.unique_parameters().values())
