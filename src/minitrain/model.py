"""MiniGPT: a decoder-only transformer with pre-normalised blocks, rotary positions and a tied head.

The default configuration has 103 040 parameters in 23 tensors. The head has no weights of its own: it scores a
position against the rows of the embedding. `model.embed.weight` and `model.lm_head.weight` are one `Parameter`
under two names, and that is exactly what a checkpoint must bring back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minitrain.errors import MinitrainError
from minitrain.layers import MLP, CausalSelfAttention, Dropout, Embedding, LayerNorm, Linear, softmax
from minitrain.module import FloatArray, Module
from minitrain.rng import INIT, stream


@dataclass(frozen=True, slots=True)
class MiniGPTConfig:
    """The shape of the network; a checkpoint fits only a model of the same configuration."""

    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 2
    d_ff: int = 256
    vocab_size: int = 64
    context_len: int = 32
    dropout: float = 0.1

    def __post_init__(self) -> None:
        for name in ("d_model", "n_heads", "n_layers", "d_ff", "vocab_size", "context_len"):
            if getattr(self, name) < 1:
                raise MinitrainError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.d_model % (2 * self.n_heads):
            raise MinitrainError(
                f"d_model {self.d_model} does not split into {self.n_heads} heads of even width, which RoPE needs."
            )
        if not 0.0 <= self.dropout < 1.0:
            raise MinitrainError(f"dropout must be at least 0 and below 1, not {self.dropout}.")


DEFAULT = MiniGPTConfig()


class Block(Module):
    """Attention, then an MLP, each on a normalised copy of the stream and added back to it."""

    def __init__(self, config: MiniGPTConfig, rng: np.random.Generator) -> None:
        # Each block adds to the stream twice; smaller outputs keep its variance independent of the depth.
        gain = 1.0 / math.sqrt(2 * config.n_layers)
        self.ln1 = LayerNorm(config.d_model)
        self.attn = CausalSelfAttention(config.d_model, config.n_heads, config.context_len, rng, gain)
        self.drop1 = Dropout(config.dropout)
        self.ln2 = LayerNorm(config.d_model)
        self.mlp = MLP(config.d_model, config.d_ff, rng, gain)
        self.drop2 = Dropout(config.dropout)

    def forward(self, x: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        """Maps (B, T, D) to (B, T, D)."""
        x = x + self.drop1.forward(self.attn.forward(self.ln1.forward(x)), rng)
        return x + self.drop2.forward(self.mlp.forward(self.ln2.forward(x)), rng)

    def backward(self, dx: FloatArray) -> FloatArray:
        """Runs the block in reverse; the stream's gradient flows past each branch and through it."""
        dx = dx + self.ln2.backward(self.mlp.backward(self.drop2.backward(dx)))
        return dx + self.ln1.backward(self.attn.backward(self.drop1.backward(dx)))


class MiniGPT(Module):
    """The whole network, from tokens to logits."""

    def __init__(self, config: MiniGPTConfig, *, tie_weights: bool, rng: np.random.Generator) -> None:
        self.config = config
        self.embed = Embedding(config.vocab_size, config.d_model, rng)
        self.drop = Dropout(config.dropout)
        self.blocks = [Block(config, rng) for _ in range(config.n_layers)]
        self.final_ln = LayerNorm(config.d_model)
        self.lm_head = Linear(config.d_model, config.vocab_size, rng)
        if tie_weights:
            self.lm_head.weight = self.embed.weight

    def forward(self, tokens: npt.NDArray[np.int64], rng: np.random.Generator | None = None) -> FloatArray:
        """Maps (B, T) tokens to (B, T, V) logits; dropout is active only when a generator is given."""
        if tokens.shape[1] > self.config.context_len:
            raise MinitrainError(f"{tokens.shape[1]} tokens do not fit a context of {self.config.context_len}.")
        x = self.drop.forward(self.embed.forward(tokens), rng)  # (B, T, D)
        for block in self.blocks:
            x = block.forward(x, rng)
        return self.lm_head.forward(self.final_ln.forward(x))  # (B, T, V)

    def backward(self, dlogits: FloatArray) -> None:
        """Adds the gradients of all parameters for the last forward pass."""
        dx = self.final_ln.backward(self.lm_head.backward(dlogits))  # (B, T, D)
        for block in reversed(self.blocks):
            dx = block.backward(dx)
        self.embed.backward(self.drop.backward(dx))


def build_minigpt(config: MiniGPTConfig = DEFAULT, *, tie_weights: bool = True, seed: int = 0) -> MiniGPT:
    """Builds a model whose first weights depend on the configuration and the seed alone."""
    return MiniGPT(config, tie_weights=tie_weights, rng=stream(INIT, seed))


def cross_entropy(
    logits: FloatArray, targets: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]
) -> tuple[float, FloatArray]:
    """Returns the mean loss in nats over the tokens that the mask keeps, and its gradient by the logits."""
    probabilities = softmax(logits)  # (B, T, V)
    chosen = np.take_along_axis(probabilities, targets[..., None], axis=-1)  # (B, T, 1)
    count = int(mask.sum())
    # The smallest normal number stands in for a probability that underflowed to zero.
    losses = -np.log(np.maximum(chosen[..., 0], np.finfo(logits.dtype).tiny))  # (B, T)
    dlogits = probabilities
    np.put_along_axis(dlogits, targets[..., None], chosen - 1.0, axis=-1)
    dlogits *= mask[..., None] / logits.dtype.type(count)
    return float(losses[mask].sum()) / count, dlogits
