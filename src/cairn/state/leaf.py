"""A leaf of a state: a value whose bytes become blobs."""

from __future__ import annotations

from typing import Any

from cairn.errors import CairnError
from cairn.state import dtypes, paths
from cairn.state.arrays import Bytes
from cairn.state.tensors import Refused, copy_bytes, data_of, is_immutable, plain_bytes


class Leaf:
    """A tensor, a long str or long bytes; two leaves are the same only if they are one object.

    It refers to the value, so the memory of a tensor is not given back and used anew while addresses are compared.
    """

    __slots__ = (
        "_component",
        "_data",
        "_dtype",
        "_keys",
        "_value",
        "after",
        "before",
        "is_private",
        "itemsize",
        "nbytes",
    )

    def __init__(
        self, value: Any, dtype: str, nbytes: int, component: str, keys: tuple[object, ...], before: bytes, after: bytes
    ) -> None:
        """Refer to bytes or an accepted tensor; `before` and `after` stand around its blobs in the tree."""
        self._value = value
        self._dtype = dtype
        self._component = component
        self._keys = keys
        self._data = memoryview(value) if isinstance(value, bytes) else None
        self.is_private = self._data is not None
        """Whether nobody else can change the bytes: they may be hashed first and then written from where they lie."""
        self.before = before
        self.after = after
        self.itemsize = dtypes.itemsize(dtype) or 1
        self.nbytes = nbytes

    @property
    def path(self) -> str:
        """The value's place, as `cairn.state.paths` spells it for people."""
        return paths.readable(self._component, self._keys)

    @property
    def is_immutable(self) -> bool:
        """Whether the bytes stay as they are for as long as they are held: nobody may change arrays of jax."""
        return self.is_private or is_immutable(self._value)

    def data(self) -> memoryview:
        """The bytes as stored: C order, little-endian, flat; a copy is made only if the memory is not so, and now.

        Who holds those of an array of jax has them, whatever becomes of the array. Raises CairnError when it is gone
        already.
        """
        if self._data is not None:
            return self._data
        try:
            return data_of(self._value, self._dtype)
        except Refused as error:
            raise CairnError(f"{self.path}: {error}; nothing was published") from error

    def hold(self) -> None:
        """Hold the bytes of a leaf that is immutable: they are still there when its owner has let it go."""
        self._data = self.data()
        self._value = None

    def plain(self) -> Bytes | None:
        """The bytes of a tensor where they lie in memory, or None when they do not lie there as they are stored."""
        return plain_bytes(self._value)

    def copy_to(self, target: Bytes) -> None:
        """Copy the bytes of a tensor as they are stored."""
        copy_bytes(self._value, self._dtype, target)

    def freeze(self, data: memoryview) -> None:
        """From now on the bytes are these, which nobody else has: a copy of what `data` returned.

        The value is let go: its owner may want the memory back before the copy is stored.
        """
        self._data = data
        self.is_private = True
        self._value = None

    def __repr__(self) -> str:
        return f"Leaf({self.path}, {self.nbytes} bytes)"
