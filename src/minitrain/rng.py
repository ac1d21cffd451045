"""Random streams, and their states as JSON.

All randomness of a run grows from one seed, in streams that do not touch each other: the first weights, the
order of the examples, and dropout. Only dropout's stream is consumed as training goes on, so only it has a
state to save; the other two are recomputed from the seed.

A generator is restored by assigning its state. Building a new one from the seed would start it again at its
first draw: a run that does so looks healthy and silently sees the dropout masks of its first steps once more.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from minitrain.errors import CheckpointError, StateMismatch

INIT, SHUFFLE, DROPOUT = 1, 2, 3
EXACT_IN_JSON = 2**53  # other readers of JSON hold numbers as doubles


def stream(purpose: int, seed: int, index: int = 0) -> np.random.Generator:
    """Starts the stream of one purpose; `index` numbers streams of the same purpose, such as epochs."""
    # The seed stands last: only the last word of a seed sequence may have any length without ambiguity.
    return np.random.default_rng([purpose, index, seed])


def encode_state(value: Any) -> Any:
    """Turns the state of any numpy bit generator into JSON, without loss."""
    if isinstance(value, Mapping):
        return {key: encode_state(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        data = np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")
        text = base64.b64encode(data.tobytes()).decode("ascii")
        return {"dtype": data.dtype.str, "shape": list(data.shape), "base64": text}
    if isinstance(value, int | np.integer):
        number = int(value)
        return number if abs(number) <= EXACT_IN_JSON else {"int": str(number)}
    if isinstance(value, str):
        return value
    raise CheckpointError(f"the random generator's state holds a {type(value).__name__}, which is not expected.")


def decode_state(value: Any) -> Any:
    """Turns JSON from `encode_state` back into what the bit generator's `state` accepts."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"int"}:
        return int(value["int"])
    if value.keys() == {"dtype", "shape", "base64"}:
        flat = np.frombuffer(base64.b64decode(value["base64"], validate=True), dtype=value["dtype"])
        return flat.reshape(value["shape"]).copy()
    return {key: decode_state(item) for key, item in value.items()}


def restore_state(generator: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Puts a live generator where the state was taken."""
    live = type(generator.bit_generator).__name__
    if state.get("bit_generator") != live:
        raise StateMismatch(f"the state is of a {state.get('bit_generator')} generator, the live one is a {live}.")
    generator.bit_generator.state = state
