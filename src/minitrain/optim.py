"""AdamW and gradient clipping.

For each parameter Adam keeps a running mean `m` of the gradients, a running mean `v` of their squares, and the
number `t` of updates it has seen. Both means start at zero and are too small at first; dividing by 1 - βᵗ corrects
that. So `t` is state like any other: a run that forgets it takes wrong steps after it is resumed.

A tied parameter is one parameter. It has one `m`, one `v` and one `t`, and one update per step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minitrain.errors import StateMismatch
from minitrain.module import Parameter, copy_arrays


class AdamW:
    """Adam with decoupled weight decay, on matrices only."""

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        *,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
    ) -> None:
        self.parameters = dict(parameters)
        self.betas, self.eps, self.weight_decay = betas, eps, weight_decay
        self.m = {name: np.zeros_like(p.data) for name, p in self.parameters.items()}
        self.v = {name: np.zeros_like(p.data) for name, p in self.parameters.items()}
        self.t = dict.fromkeys(self.parameters, 0)

    def step(self, lr: float) -> None:
        """Updates every parameter in place from its gradient."""
        beta1, beta2 = self.betas
        for name, parameter in self.parameters.items():
            self.t[name] += 1
            m, v, grad = self.m[name], self.v[name], parameter.grad
            m *= beta1
            m += (1.0 - beta1) * grad
            v *= beta2
            v += (1.0 - beta2) * (grad * grad)
            correction1 = 1.0 - beta1 ** self.t[name]
            correction2 = 1.0 - beta2 ** self.t[name]
            update = m / (np.sqrt(v / correction2) + self.eps)
            # Scales and shifts are no matrices: there is no reason to pull a LayerNorm's scale to zero.
            if self.weight_decay and parameter.data.ndim > 1:
                parameter.data *= 1.0 - lr * self.weight_decay
            parameter.data -= (lr / correction1) * update

    def state_dict(self) -> dict[str, Any]:
        """Returns the live `m` and `v`, and `t` and the hyper-parameters as plain numbers."""
        return {
            "m": dict(self.m),
            "v": dict(self.v),
            "t": dict(self.t),
            "betas": list(self.betas),
            "eps": self.eps,
            "weight_decay": self.weight_decay,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies a state into the live arrays; the hyper-parameters are restored with it."""
        if state["t"].keys() != self.t.keys():
            raise StateMismatch("the optimizer's state counts the updates of other parameters than the live one.")
        copy_arrays(self.m, state["m"], "the optimizer's m")
        copy_arrays(self.v, state["v"], "the optimizer's v")
        self.t.update((name, int(count)) for name, count in state["t"].items())
        beta1, beta2 = state["betas"]
        self.betas, self.eps, self.weight_decay = (beta1, beta2), state["eps"], state["weight_decay"]


def clip_gradients(parameters: Mapping[str, Parameter], limit: float) -> float:
    """Scales all gradients down together if their joint norm exceeds the limit; returns the norm before."""
    norm = math.sqrt(sum(float(np.vdot(p.grad, p.grad)) for p in parameters.values()))
    if norm > limit:
        for parameter in parameters.values():
            parameter.grad *= limit / norm
    return norm
