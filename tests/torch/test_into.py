"""Loading into the tensors of a model and its optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.torch.common import bits, torch

import cairn


def trained(steps: int) -> tuple[Any, Any]:
    """A small model with tied weights, and its optimizer, after some steps."""
    torch.manual_seed(steps)
    embed, head = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7)
    head.weight = embed.weight
    model = torch.nn.Sequential(embed, head)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.arange(7)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def state_of(model: Any, optimizer: Any) -> dict[str, Any]:
    """What is committed of the two."""
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def test_a_model_and_its_optimizer_are_filled_in_place(tmp_path: Path) -> None:
    """The parameters themselves get the committed values, ties included, and no tensor is made."""
    run = cairn.init(tmp_path / "store").run()
    wanted, other = trained(2), trained(3)
    run.commit(state_of(*wanted), step=2)
    target = state_of(*other)
    loaded = run.load(into=target)
    assert bits(loaded) == bits(state_of(*wanted)) == bits(state_of(*other))
    assert other[0][1].weight is other[0][0].weight
    assert other[0][1].weight.requires_grad
    for name, tensor in target["model"].items():
        assert loaded["model"][name] is tensor


def test_parameters_and_views_are_filled(tmp_path: Path) -> None:
    """Parameters, transposed and strided tensors, conjugate views, and arrays of numpy in a tensor's place."""
    run = cairn.init(tmp_path / "store").run()
    values = torch.arange(12.0).reshape(3, 4)
    state = {
        "p": values,
        "t": values + 1,
        "c": values.to(torch.complex64) * 1j,
        "b": values.bfloat16(),
        "n": values + 2,
    }
    run.commit({"x": state}, step=1)
    base = torch.zeros(3, 4, dtype=torch.complex64)
    target = {
        "p": torch.nn.Parameter(torch.zeros(3, 4)),
        "t": torch.zeros(4, 3).t(),
        "c": base.conj(),
        "b": torch.zeros(3, 8, dtype=torch.bfloat16)[:, ::2],
        "n": np.zeros((3, 4), "f4"),
    }
    run.load(into={"x": target})
    for name, value in target.items():
        assert torch.equal(torch.as_tensor(value), state[name]), name
    assert torch.equal(base, state["c"].conj())


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Another dtype, another shape, and tensors that cannot be filled are errors that name the path."""
    run = cairn.init(tmp_path / "store").run()
    run.commit({"x": {"w": torch.ones(4), "v": torch.ones(4)}}, step=1)
    good = torch.zeros(4)
    for wrong, expected in (
        (torch.zeros(4, dtype=torch.bfloat16), "x/w: expected F32 of shape .* found BF16"),
        (torch.zeros(2, 2), "x/w: expected F32 of shape"),
        (torch.zeros(1).expand(4), "x/w: expected elements with a memory of their own"),
        (torch.zeros(4, device="meta"), "x/w in `into`: expected a tensor with values"),
        (good, "x/v: expected a memory of its own"),
    ):
        with pytest.raises(cairn.UsageError, match=expected):
            run.load(into={"x": {"w": wrong, "v": good}})
        assert not good.any()
