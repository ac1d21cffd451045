"""A leaf of a state: a value whose bytes become blobs."""

from __future__ import annotations

from typing import Any

from cairn.state import paths
from cairn.state.arrays import Bytes
from cairn.state.tensors import copy_bytes, data_of, plain_bytes


class Leaf:
    """A tensor, a long str or long bytes; two leaves are the same only if they are one object.

    It refers to the value, so the memory of a tensor is not given back and used anew while addresses are compared.
    """

    __slots__ = ("_component", "_dtype", "_keys", "_private", "_value", "after", "before", "itemsize", "nbytes")

    def __init__(
        self, value: Any, dtype: str, component: str, keys: tuple[object, ...], before: bytes, after: bytes
    ) -> None:
        """Refer to bytes or an accepted tensor; `before` and `after` stand around its blobs in the tree."""
        self._value = value
        self._dtype = dtype
        self._component = component
        self._keys = keys
        self._private = memoryview(value) if isinstance(value, bytes) else None
        self.before = before
        self.after = after
        self.itemsize = 1 if isinstance(value, bytes) else value.dtype.itemsize
        self.nbytes = len(value) if isinstance(value, bytes) else value.nbytes

    @property
    def path(self) -> str:
        """The value's place, as `cairn.state.paths` spells it for people."""
        return paths.readable(self._component, self._keys)

    @property
    def is_private(self) -> bool:
        """Whether nobody can change the bytes while they are stored."""
        return self._private is not None

    def data(self) -> memoryview:
        """The bytes as stored: C order, little-endian, flat; a copy is made only if the memory is not so, and now."""
        return data_of(self._value, self._dtype) if self._private is None else self._private

    def plain(self) -> Bytes | None:
        """The bytes of a tensor where they lie in memory, or None when they do not lie there as they are stored."""
        return plain_bytes(self._value)

    def copy_to(self, target: Bytes) -> None:
        """Copy the bytes of a tensor as they are stored."""
        copy_bytes(self._value, self._dtype, target)

    def freeze(self, data: memoryview) -> None:
        """From now on the bytes are these, which nobody changes: a copy of what `data` returned.

        The value is let go: its owner may want the memory back before the copy is stored.
        """
        self._private = data
        self._value = None

    def __repr__(self) -> str:
        return f"Leaf({self.path}, {self.nbytes} bytes)"
