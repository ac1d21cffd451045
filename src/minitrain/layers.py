"""The layers, each with its backward pass written by hand.

Every layer keeps what its backward pass needs from its last forward pass. `backward` takes the gradient of the
loss by the layer's output, *adds* the gradients of its parameters to `Parameter.grad` (so a tied parameter
collects from both of its uses), and returns the gradient by its input.

Shapes: B sequences of T tokens, D the width of the model, H heads of width K = D / H, F the width of the MLP.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from minitrain.module import FloatArray, Module, Parameter


class Linear(Module):
    """y = x Wᵀ, without a bias."""

    def __init__(self, fan_in: int, fan_out: int, rng: np.random.Generator, gain: float = 1.0) -> None:
        scale = gain / math.sqrt(fan_in)
        self.weight = Parameter(rng.normal(0.0, scale, (fan_out, fan_in)).astype(np.float32))  # (out, in)

    def forward(self, x: FloatArray) -> FloatArray:
        """Maps (..., in) to (..., out)."""
        self._rows = x.reshape(-1, x.shape[-1])  # (N, in): one large product beats many small ones
        return (self._rows @ self.weight.data.T).reshape(*x.shape[:-1], -1)

    def backward(self, dy: FloatArray) -> FloatArray:
        """Adds dW and returns dx."""
        dy_rows = dy.reshape(-1, dy.shape[-1])  # (N, out)
        self.weight.grad += dy_rows.T @ self._rows  # (out, in)
        return (dy_rows @ self.weight.data).reshape(*dy.shape[:-1], -1)


class Embedding(Module):
    """A row of the weight for each token."""

    def __init__(self, vocab_size: int, width: int, rng: np.random.Generator) -> None:
        # Small, because the tied head multiplies by the same rows: the first logits then are close to uniform.
        self.weight = Parameter(rng.normal(0.0, 0.05, (vocab_size, width)).astype(np.float32))  # (V, D)

    def forward(self, tokens: npt.NDArray[np.int64]) -> FloatArray:
        """Maps (B, T) tokens to (B, T, D)."""
        self._tokens = tokens
        return self.weight.data[tokens]  # (B, T, D)

    def backward(self, dx: FloatArray) -> None:
        """Adds each position's gradient to the row of its token."""
        one_hot = np.eye(len(self.weight.data), dtype=dx.dtype)[self._tokens.reshape(-1)]  # (B·T, V)
        # A product sums in one fixed order and is faster here than numpy.add.at.
        self.weight.grad += one_hot.T @ dx.reshape(-1, dx.shape[-1])  # (V, D)


class LayerNorm(Module):
    """Centres each position, scales it to variance one, then applies a learned scale and shift."""

    def __init__(self, width: int) -> None:
        self.weight = Parameter(np.ones(width, dtype=np.float32))  # (D,)
        self.bias = Parameter(np.zeros(width, dtype=np.float32))  # (D,)

    def forward(self, x: FloatArray, eps: float = 1e-5) -> FloatArray:
        """Maps (B, T, D) to (B, T, D)."""
        centred = x - x.mean(-1, keepdims=True)
        variance = np.einsum("btd,btd->bt", centred, centred)[..., None] / x.shape[-1]  # (B, T, 1)
        self._inverse = 1.0 / np.sqrt(variance + eps)
        self._normed = centred * self._inverse  # (B, T, D)
        y: FloatArray = self._normed * self.weight.data + self.bias.data
        return y

    def backward(self, dy: FloatArray) -> FloatArray:
        """Adds the gradients of scale and shift and returns dx."""
        width = dy.shape[-1]
        self.weight.grad += np.einsum("btd,btd->d", dy, self._normed)
        self.bias.grad += dy.reshape(-1, width).sum(0)
        dn = dy * self.weight.data  # (B, T, D)
        along = np.einsum("btd,btd->bt", dn, self._normed)[..., None] / width  # (B, T, 1)
        dx: FloatArray = (dn - dn.mean(-1, keepdims=True) - self._normed * along) * self._inverse
        return dx


class Dropout(Module):
    """Zeroes a random part of its input and scales up the rest; without a generator it does nothing."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def forward(self, x: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        """Draws a new mask from the generator on each call."""
        self._mask: FloatArray | None = None
        if rng is None or self.rate == 0.0:
            return x
        keep = rng.random(x.shape, dtype=np.float32) >= self.rate
        self._mask = keep.astype(x.dtype) * (1.0 / (1.0 - self.rate))
        return x * self._mask

    def backward(self, dy: FloatArray) -> FloatArray:
        """Lets through the gradients of what was kept."""
        return dy if self._mask is None else dy * self._mask


class RotaryPositions:
    """RoPE: turns each pair of features by an angle that grows with the position.

    The score of two turned vectors depends on the distance of their positions only, and so attention learns
    "three tokens back" without any parameters. It is a rotation; its backward pass turns the other way.
    """

    def __init__(self, width: int, context_len: int) -> None:
        frequencies = 10_000.0 ** (-np.arange(0, width, 2) / width)  # (K/2,)
        angles = np.outer(np.arange(context_len), frequencies)  # (context, K/2)
        self._cos, self._sin = np.cos(angles), np.sin(angles)

    def turn(self, x: FloatArray, direction: int = 1) -> FloatArray:
        """Rotates (B, H, T, K) forward, or back with direction -1."""
        length, half = x.shape[-2], x.shape[-1] // 2
        cos = self._cos[:length].astype(x.dtype)  # (T, K/2)
        sin = (direction * self._sin[:length]).astype(x.dtype)
        first, second = x[..., :half], x[..., half:]  # (B, H, T, K/2) each
        turned = np.empty_like(x)
        turned[..., :half] = first * cos - second * sin
        turned[..., half:] = first * sin + second * cos
        return turned


class CausalSelfAttention(Module):
    """Each position mixes the values of the positions up to itself, weighted by how well they match.

    Sequences are padded on the right, and no position looks to its right. So the causal mask alone keeps
    padding away from real tokens, and no second mask is needed.
    """

    def __init__(self, width: int, n_heads: int, context_len: int, rng: np.random.Generator, gain: float) -> None:
        self.n_heads = n_heads
        self.query = Linear(width, width, rng)
        self.key = Linear(width, width, rng)
        self.value = Linear(width, width, rng)
        self.output = Linear(width, width, rng, gain)
        self._positions = RotaryPositions(width // n_heads, context_len)
        self._future = np.triu(np.ones((context_len, context_len), dtype=bool), k=1)

    def forward(self, x: FloatArray) -> FloatArray:
        """Maps (B, T, D) to (B, T, D)."""
        length = x.shape[1]
        self._q = self._positions.turn(self._split(self.query.forward(x)))  # (B, H, T, K)
        self._k = self._positions.turn(self._split(self.key.forward(x)))
        self._v = self._split(self.value.forward(x))
        self._scale = 1.0 / math.sqrt(self._q.shape[-1])
        scores = (self._q @ self._k.swapaxes(-1, -2)) * self._scale  # (B, H, T, T)
        scores[..., self._future[:length, :length]] = -np.inf
        self._attention = softmax(scores)  # (B, H, T, T)
        return self.output.forward(self._merge(self._attention @ self._v))

    def backward(self, dy: FloatArray) -> FloatArray:
        """Adds the gradients of the four projections and returns dx."""
        dmixed = self._split(self.output.backward(dy))  # (B, H, T, K)
        dattention = dmixed @ self._v.swapaxes(-1, -2)  # (B, H, T, T)
        along = np.einsum("bhij,bhij->bhi", dattention, self._attention)[..., None]  # (B, H, T, 1)
        dscores = self._attention * (dattention - along) * self._scale
        dq = self._positions.turn(dscores @ self._k, -1)  # (B, H, T, K)
        dk = self._positions.turn(dscores.swapaxes(-1, -2) @ self._q, -1)
        dv = self._attention.swapaxes(-1, -2) @ dmixed
        dx = self.query.backward(self._merge(dq))
        dx += self.key.backward(self._merge(dk))
        dx += self.value.backward(self._merge(dv))
        return dx

    def _split(self, x: FloatArray) -> FloatArray:
        batch, length, width = x.shape
        heads = x.reshape(batch, length, self.n_heads, width // self.n_heads)
        return heads.transpose(0, 2, 1, 3)  # (B, H, T, K)

    def _merge(self, x: FloatArray) -> FloatArray:
        batch, heads, length, width = x.shape
        return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)  # (B, T, D)


class MLP(Module):
    """Two linear maps with a GELU between them."""

    def __init__(self, width: int, hidden: int, rng: np.random.Generator, gain: float) -> None:
        self.up = Linear(width, hidden, rng)
        self.down = Linear(hidden, width, rng, gain)

    def forward(self, x: FloatArray) -> FloatArray:
        """Maps (B, T, D) to (B, T, D)."""
        self._hidden = self.up.forward(x)  # (B, T, F)
        activated, self._slope = gelu(self._hidden)
        return self.down.forward(activated)

    def backward(self, dy: FloatArray) -> FloatArray:
        """Adds the gradients of both maps and returns dx."""
        return self.up.backward(self.down.backward(dy) * self._slope)


def gelu(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the tanh form of GELU and its derivative."""
    scale, cubic = math.sqrt(2.0 / math.pi), 0.044715
    square = x * x
    tanh = np.tanh(x * (scale + scale * cubic * square))
    half = 0.5 + 0.5 * tanh
    slope = half + 0.5 * x * (1.0 - tanh * tanh) * (scale + 3.0 * scale * cubic * square)
    return x * half, slope


def softmax(scores: FloatArray) -> FloatArray:
    """Normalises the exponentials over the last axis; the largest score is subtracted against overflow."""
    exponentials: FloatArray = np.exp(scores - scores.max(-1, keepdims=True))
    exponentials /= exponentials.sum(-1, keepdims=True)
    return exponentials
