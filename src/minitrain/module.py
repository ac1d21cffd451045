"""Parameters, and modules that know the names of theirs.

A network is a tree of modules with parameters at its leaves. A parameter's name is its path in that tree:
`blocks.1.mlp.up.weight`. One parameter may hang in two places. It then has two names, and the second is an
*alias* of the first: weight tying is a fact about identity, never about equal values.

Everything that must happen once for each parameter (an update, a write to disk) walks `unique_parameters`;
everything that speaks of the state by name (saving, loading) sees all the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from minitrain.errors import StateMismatch

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]


class Parameter:
    """An array that training changes in place, and the gradient that the backward pass adds up for it."""

    __slots__ = ("data", "grad")

    def __init__(self, data: FloatArray) -> None:
        self.data = data
        self.grad: FloatArray = np.zeros_like(data)

    def numel(self) -> int:
        """Counts the elements."""
        return self.data.size


class Module:
    """A node of the network: its attributes that are modules, lists of modules or parameters are its children."""

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """Yields every name in definition order; a tied parameter comes once for each of its names."""
        for key, child in vars(self).items():
            if isinstance(child, Parameter):
                yield prefix + key, child
            elif isinstance(child, Module):
                yield from child.named_parameters(f"{prefix}{key}.")
            elif isinstance(child, list):
                for index, item in enumerate(child):
                    if isinstance(item, Module):
                        yield from item.named_parameters(f"{prefix}{key}.{index}.")

    def unique_parameters(self) -> dict[str, Parameter]:
        """Returns each parameter once, under the first of its names."""
        first_names: dict[int, str] = {}
        unique = {}
        for name, parameter in self.named_parameters():
            if first_names.setdefault(id(parameter), name) == name:
                unique[name] = parameter
        return unique

    def zero_grad(self) -> None:
        """Sets every gradient to zero."""
        for parameter in self.unique_parameters().values():
            parameter.grad.fill(0)

    def to_dtype(self, dtype: npt.DTypeLike) -> None:
        """Rebinds every parameter to a converted copy; only before an optimizer exists."""
        for parameter in self.unique_parameters().values():
            parameter.data = parameter.data.astype(dtype)
            parameter.grad = parameter.grad.astype(dtype)

    def state_dict(self) -> dict[str, FloatArray]:
        """Returns the live arrays, not copies: tied names hold the very same array."""
        return {name: parameter.data for name, parameter in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, FloatArray]) -> None:
        """Copies a state into the live arrays.

        In place, because an optimizer or a tied name may hold the same array: a new array would leave it
        behind on the old one. Nothing is converted, and nothing is copied unless everything fits.
        """
        live = self.state_dict()
        if ties(live) != ties(state):
            raise StateMismatch(f"the model ties {_describe(ties(live))}, the state ties {_describe(ties(state))}.")
        copy_arrays(live, state, "the model")


def array_key(array: FloatArray) -> tuple[object, ...]:
    """Identifies the memory that an array looks at; two arrays with one key are one tensor."""
    return array.__array_interface__["data"][0], array.dtype, array.shape, array.strides


def ties(arrays: Mapping[str, FloatArray]) -> dict[str, str]:
    """Maps each alias to the name, the first in alphabetical order, that it shares its memory with."""
    first_names: dict[tuple[object, ...], str] = {}
    aliases = {}
    for name in sorted(arrays):
        first = first_names.setdefault(array_key(arrays[name]), name)
        if first != name:
            aliases[name] = first
    return aliases


def copy_arrays(live: Mapping[str, FloatArray], state: Mapping[str, FloatArray], owner: str) -> None:
    """Copies arrays by name into arrays of the same names, types and shapes; refuses any other."""
    if live.keys() != state.keys():
        missing, unknown = sorted(live.keys() - state.keys()), sorted(state.keys() - live.keys())
        raise StateMismatch(f"the state does not fit {owner}: it lacks {missing} and has unknown {unknown}.")
    for name, array in live.items():
        found = state[name]
        if (found.dtype, found.shape) != (array.dtype, array.shape):
            raise StateMismatch(
                f"tensor {name} of {owner} is {array.dtype} {array.shape}, in the state {found.dtype} {found.shape}."
            )
    for name, array in live.items():
        array[...] = state[name]


def _describe(aliases: Mapping[str, str]) -> str:
    return ", ".join(f"{alias} to {name}" for alias, name in aliases.items()) or "nothing"
