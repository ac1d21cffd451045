"""What the reading of states asks of those who have the bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from cairn.ids import BlobRef

T = TypeVar("T")


class Fetch(Protocol):
    """Hands bytes out that are read and checked together at the end, before anybody looks at them."""

    def tree(self, ref: BlobRef) -> bytes:
        """The bytes of a tree, checked now. Raises Damaged."""
        ...

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        """The bytes of blobs one after the other, checked now. Raises Damaged."""
        ...

    def view(self, refs: Sequence[BlobRef]) -> memoryview | None:
        """The bytes where they lie, to be checked; None where they can only be filled in elsewhere."""
        ...

    def fill(self, refs: Sequence[BlobRef], target: memoryview) -> None:
        """Have the bytes read into memory that is as long. Raises Damaged."""
        ...

    def after(self, do: Callable[[], None]) -> None:
        """Have something done when everything is read and right, perhaps by another thread."""
        ...


class Source(Protocol):
    """Where blobs come from; every byte it returns was checked against its id."""

    def tree(self, ref: BlobRef) -> bytes:
        """The bytes of a tree. Raises Damaged."""
        ...

    def data(self, refs: Sequence[BlobRef]) -> memoryview:
        """The bytes of the pieces one after the other, read-only. Raises Damaged."""
        ...

    def fetched(self, build: Callable[[Fetch], T], threads: int | None = None) -> T:
        """What is built of what a Fetch hands out; built once more when something was not where it should be.

        Raises Damaged.
        """
        ...
