"""The hand-written backward passes against finite differences in float64.

For a loss L and a number x anywhere in the parameters or the input, (L(x + h) - L(x - h)) / 2h must be what the
backward pass says. With h = 1e-6 in float64 the two agree to six digits or more where the pass is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pytest

from minitrain.corpus import build_corpus
from minitrain.data import collate
from minitrain.layers import MLP, CausalSelfAttention, Dropout, Embedding, LayerNorm, Linear
from minitrain.model import MiniGPTConfig, build_minigpt, cross_entropy
from minitrain.module import FloatArray, Module

STEP = 1e-6
SAMPLES = 12


def check(loss: Callable[[], float], array: FloatArray, gradient: FloatArray, name: str) -> None:
    """Compares the gradient with finite differences at some places of an array."""
    places: Iterable[int] = np.random.default_rng(0).permutation(array.size)[:SAMPLES]
    flat, flat_gradient = array.reshape(-1), gradient.reshape(-1)
    assert np.shares_memory(flat, array)
    for place in places:
        kept = flat[place]
        flat[place] = kept + STEP
        above = loss()
        flat[place] = kept - STEP
        below = loss()
        flat[place] = kept
        expected = (above - below) / (2 * STEP)
        assert flat_gradient[place] == pytest.approx(expected, rel=1e-5, abs=1e-8), f"{name}[{place}]"


def normal(*shape: int) -> npt.NDArray[np.float64]:
    """Draws an array that is the same on every call."""
    return np.random.default_rng(1).normal(size=shape)


RNG = np.random.default_rng(2)
LAYERS: list[Linear | LayerNorm | CausalSelfAttention | MLP] = [
    Linear(8, 8, RNG),
    LayerNorm(8),
    CausalSelfAttention(8, 2, 5, RNG, gain=1.0),
    MLP(8, 16, RNG, gain=1.0),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_each_layer_differentiates_itself(layer: Linear | LayerNorm | CausalSelfAttention | MLP) -> None:
    """The gradients by the input and by each parameter are those of a random weighing of the output."""
    layer.to_dtype(np.float64)
    x, weighing = normal(2, 5, 8), normal(2, 5, 8) * 0.5

    def loss() -> float:
        return float((layer.forward(x) * weighing).sum())

    loss()
    layer.zero_grad()
    check(loss, x, layer.backward(weighing).copy(), "x")
    for name, parameter in layer.named_parameters():
        check(loss, parameter.data, parameter.grad, name)


def test_the_embedding_adds_up_repeated_tokens() -> None:
    """A token that occurs twice gets the sum of both gradients."""
    layer = Embedding(6, 4, np.random.default_rng(0))
    layer.to_dtype(np.float64)
    layer.forward(np.array([[1, 5, 1]]))
    gradient = normal(1, 3, 4)
    layer.backward(gradient)
    np.testing.assert_allclose(layer.weight.grad[1], gradient[0, 0] + gradient[0, 2])
    np.testing.assert_allclose(layer.weight.grad[5], gradient[0, 1])
    assert not layer.weight.grad[[0, 2, 3, 4]].any()


def test_dropout_passes_gradients_where_it_passed_values() -> None:
    """What was dropped gets no gradient, what was kept is scaled alike in both directions."""
    layer = Dropout(0.5)
    x = np.ones((4, 4, 4))
    y = layer.forward(x, np.random.default_rng(0))
    assert set(np.unique(y)) == {0.0, 2.0}
    np.testing.assert_array_equal(layer.backward(np.ones_like(x)), y)


@pytest.mark.parametrize("tie_weights", [True, False])
def test_the_whole_model_differentiates_itself(tie_weights: bool) -> None:
    """The gradient of the loss holds for every parameter, with dropout, padding and the tied head at work."""
    config = MiniGPTConfig(d_model=16, n_heads=2, n_layers=2, d_ff=24, dropout=0.2)
    model = build_minigpt(config, tie_weights=tie_weights)
    model.to_dtype(np.float64)
    batch = collate(build_corpus()[::200])
    assert not batch.mask.all()

    def loss() -> float:
        logits = model.forward(batch.inputs, np.random.default_rng(3))
        return cross_entropy(logits, batch.targets, batch.mask)[0]

    logits = model.forward(batch.inputs, np.random.default_rng(3))
    model.zero_grad()
    model.backward(cross_entropy(logits, batch.targets, batch.mask)[1])
    for name, parameter in model.unique_parameters().items():
        check(loss, parameter.data, parameter.grad, name)


def test_no_position_sees_the_future_or_the_padding() -> None:
    """Changing later tokens, or padding further, leaves the logits of earlier positions as they are."""
    model = build_minigpt()
    tokens = collate(build_corpus()[:1]).inputs
    changed = tokens.copy()
    changed[:, 6:] = 7
    longer = np.concatenate([tokens, np.zeros((1, 5), dtype=np.int64)], axis=1)
    logits = model.forward(tokens)
    np.testing.assert_allclose(model.forward(changed)[:, :6], logits[:, :6], atol=1e-5)
    np.testing.assert_allclose(model.forward(longer)[:, : tokens.shape[1]], logits, atol=1e-5)


def test_the_default_model_has_its_parameters_in_float32() -> None:
    """103 040 parameters in 23 tensors, the head being the embedding."""
    model: Module = build_minigpt()
    unique = model.unique_parameters()
    assert len(unique) == 23
    assert sum(parameter.numel() for parameter in unique.values()) == 103_040
    assert {parameter.data.dtype for parameter in unique.values()} == {np.dtype(np.float32)}
    assert dict(model.named_parameters()).keys() - unique.keys() == {"lm_head.weight"}
