"""The states that are saved: seeded, of random normal floats, which no tool can compress or share by luck."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
State = dict[str, dict[str, Array]]
"""Component name to tensor name to tensor."""

STATES = {
    "a": "40 large tensors",
    "b": "10 000 small tensors",
    "c": "GPT-2 124M with AdamW",
}
SEED = 20


def build(name: str, scale: float = 1.0) -> State:
    """Make a state, or one that is about so much smaller."""
    rng = np.random.default_rng(SEED)
    if name == "a":
        return {"model": {f"layer.{n}": _normal(rng, 1 << 10, max(1, round(scale * 6554))) for n in range(40)}}
    if name == "b":
        sizes = rng.integers(1 << 10, 1 << 14, max(2, round(scale * 10_000)), endpoint=True)
        return {"model": {f"layer.{n}": _normal(rng, int(size)) for n, size in enumerate(sizes)}}
    return _gpt2(rng, math.sqrt(scale))


def _gpt2(rng: np.random.Generator, scale: float) -> State:
    """GPT-2 small and the two moments and the step of AdamW; the embedding is tied with the head."""
    shapes = _gpt2_shapes(width=12 * max(1, round(scale * 64)), words=max(64, round(scale * 50_257)))
    model = {name: _normal(rng, *shape) for name, shape in shapes.items()}
    optimizer = {f"step.{name}": np.array(1000, np.float32) for name in shapes}
    for moment in ("exp_avg", "exp_avg_sq"):
        optimizer |= {f"{moment}.{name}": _normal(rng, *shape) for name, shape in shapes.items()}
    return {"model": model | {"lm_head.weight": model["wte.weight"]}, "optimizer": optimizer}


def _gpt2_shapes(width: int, words: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (words, width), "wpe.weight": (1024, width)}
    for n in range(12):
        inside: dict[str, tuple[int, ...]] = {
            "ln_1.weight": (width,),
            "ln_1.bias": (width,),
            "attn.c_attn.weight": (width, 3 * width),
            "attn.c_attn.bias": (3 * width,),
            "attn.c_proj.weight": (width, width),
            "attn.c_proj.bias": (width,),
            "ln_2.weight": (width,),
            "ln_2.bias": (width,),
            "mlp.c_fc.weight": (width, 4 * width),
            "mlp.c_fc.bias": (4 * width,),
            "mlp.c_proj.weight": (4 * width, width),
            "mlp.c_proj.bias": (width,),
        }
        shapes |= {f"h.{n}.{name}": shape for name, shape in inside.items()}
    return shapes | {"ln_f.weight": (width,), "ln_f.bias": (width,)}


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)


def tensors(state: State) -> Iterator[tuple[str, str, Array]]:
    """Yield component, name and tensor, each memory once."""
    seen: set[int] = set()
    for component, named in state.items():
        for name, tensor in named.items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield component, name, tensor


def untied(state: State) -> State:
    """The state without second names, for tools that would store them twice."""
    found: State = {component: {} for component in state}
    for component, name, tensor in tensors(state):
        found[component][name] = tensor
    return found


def flat(state: State) -> dict[str, Array]:
    """The state in one dictionary, without second names."""
    return {f"{component}.{name}": tensor for component, name, tensor in tensors(state)}


def nbytes(state: State) -> int:
    """The bytes of all tensors, each memory once."""
    return sum(tensor.nbytes for _, _, tensor in tensors(state))


def change_nothing(state: State) -> None:
    """Leave it."""


def change_all(state: State) -> None:
    """Change every tensor in place, as an optimizer step does."""
    for _, _, tensor in tensors(state):
        tensor *= np.float32(1.001)


def change_half(state: State) -> None:
    """Change tensors with half of the bytes in place; the others are frozen."""
    seen = changed = 0
    for _, _, tensor in tensors(state):
        seen += tensor.nbytes
        if changed + tensor.nbytes <= seen / 2:
            tensor *= np.float32(1.001)
            changed += tensor.nbytes
