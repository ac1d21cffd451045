"""A leaf of a state: a value whose bytes become blobs."""

from __future__ import annotations

from typing import Any

from cairn.errors import CairnError
from cairn.state import dtypes, paths
from cairn.state.tensors import Refused, data_of, is_immutable


class Leaf:
    """A tensor, a long str or long bytes; two leaves are the same only if they are one object.

    It refers to the value, so the memory of a tensor is not given back and used anew while addresses are compared.
    """

    __slots__ = ("_component", "_dtype", "_keys", "_private", "_value", "after", "before", "itemsize", "nbytes")

    def __init__(
        self, value: Any, dtype: str, nbytes: int, component: str, keys: tuple[object, ...], before: bytes, after: bytes
    ) -> None:
        """Refer to bytes or an accepted tensor; `before` and `after` stand around its blobs in the tree."""
        self._value = value
        self._dtype = dtype
        self._component = component
        self._keys = keys
        self._private = memoryview(value) if isinstance(value, bytes) else None
        self.before = before
        self.after = after
        self.itemsize = dtypes.itemsize(dtype) or 1
        self.nbytes = nbytes

    @property
    def path(self) -> str:
        """The value's place, as `cairn.state.paths` spells it for people."""
        return paths.readable(self._component, self._keys)

    @property
    def is_private(self) -> bool:
        """Whether nobody can change the bytes while they are stored; those of an array of jax, while they are held."""
        return self._private is not None or is_immutable(self._value)

    def data(self) -> memoryview:
        """The bytes as stored: C order, little-endian, flat; a copy is made only if the memory is not so, and now.

        Who holds those of an array of jax has them, whatever becomes of the array. Raises CairnError when it is gone
        already.
        """
        if self._private is not None:
            return self._private
        try:
            return data_of(self._value, self._dtype)
        except Refused as error:
            raise CairnError(f"{self.path}: {error}; nothing was published") from error

    def freeze(self, data: memoryview) -> None:
        """From now on the bytes are these, which nobody changes: a copy of what `data` returned."""
        self._private = data

    def __repr__(self) -> str:
        return f"Leaf({self.path}, {self.nbytes} bytes)"
