"""Torch tensors in the snapshot that `wait=False` takes: their bytes are those of the moment, whatever their layout."""

from __future__ import annotations

from typing import Any

import pytest
from tests.torch.common import DTYPES, filled, torch
from tests.torch.test_tensors import SHAPES, laid_out

import cairn


@pytest.mark.filterwarnings("ignore:ComplexHalf")  # torch warns, once, when it copies one
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_and_layout_is_committed_as_when_waiting(name: str, store: cairn.Store) -> None:
    """The manifest is the same."""
    state = {"model": {str(shape): laid_out(name, shape) for shape in SHAPES}}
    waited = store.run().commit(state, step=1)
    assert store.run().commit(state, step=2, wait=False).result().manifest == waited.manifest


def test_conjugates_and_negatives_are_committed_as_when_waiting(store: cairn.Store) -> None:
    """Views that torch computes as they are read are values like others."""
    z = torch.arange(6, dtype=torch.float32).reshape(2, 3) + 1j
    state = {"model": {"conjugate": z.conj(), "negative": z.conj().imag, "both": z.conj()[:, ::2]}}
    waited = store.run().commit(state, step=1)
    assert store.run().commit(state, step=2, wait=False).result().manifest == waited.manifest


def test_an_optimizer_step_in_flight_changes_nothing(store: cairn.Store) -> None:
    """Weights and moments are of one step, although the optimizer writes to all of them meanwhile."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters())

    def train() -> None:
        optimizer.zero_grad()
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    for step in range(3):
        train()
        expected = store.run("waited").commit(state(), step=step)
        pending = store.run("async").commit(state(), step=step, wait=False)
        train()
        assert pending.result().manifest == expected.manifest


def test_a_parameter_and_its_kind_stay(store: cairn.Store) -> None:
    """What comes back as a Parameter, and whether it is frozen, is part of the snapshot."""
    parameter = torch.nn.Parameter(filled("float32", (3,)))
    frozen = torch.nn.Parameter(filled("float32", (4,)), requires_grad=False)
    store.run().commit({"model": {"a": parameter, "b": frozen, "tied": parameter}}, wait=False).result()
    found = store.run().load()["model"]
    assert type(found["a"]) is type(found["b"]) is torch.nn.Parameter
    assert (found["a"].requires_grad, found["b"].requires_grad) == (True, False)
    assert found["tied"] is found["a"]
