"""Values of a state as the blobs they become: cut where they are long, taken together where they are short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cairn.errors import CairnError
from cairn.ids import BlobRef
from cairn.io.handles import BLOCK_BYTES
from cairn.objects.cutting import cut
from cairn.objects.writer import NewBlob, private

_TOGETHER = 256
_TOGETHER_BYTES = 2 << 20
"""So many small values, or bytes of them, are looked up at once."""

V = TypeVar("V", bound="Value")


class Value(Protocol):
    """A value of the state whose bytes become blobs."""

    @property
    def path(self) -> str:
        """The words for it in messages."""

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""

    @property
    def nbytes(self) -> int:
        """The size of all in bytes; never 0."""

    @property
    def is_private(self) -> bool:
        """Whether nobody can change the bytes while they are stored."""

    def data(self) -> memoryview:
        """Return the bytes, flat."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a blob's bytes can be had again, should its pack be lost before the commit is published."""

    words: Callable[[], str]
    fetch: Callable[[], memoryview]
    itemsize: int
    is_tree: bool = False

    def again(self, ref: BlobRef) -> NewBlob:
        """Return the blob anew. Raises CairnError when its bytes are others now."""
        blob = private(self.fetch())
        if blob.ref != ref:
            raise CairnError(
                f"{self.words()} changed while it was being committed: expected bytes that hash to {ref.id}, found "
                f"{blob.ref.id}; nothing was published, commit again"
            )
        return blob


@dataclass(frozen=True, slots=True)
class Piece(Generic[V]):
    """A part of a value that becomes one blob."""

    value: V
    start: int
    stop: int
    data: memoryview

    def origin(self) -> Origin:
        """Where the bytes can be had again; refers to the value alone, for the bytes may be a copy."""
        value, start, stop = self.value, self.start, self.stop
        return Origin(lambda: value.path, lambda: value.data()[start:stop], value.itemsize)


def together(values: Iterable[V]) -> Iterator[list[Piece[V]]]:
    """Cut values into pieces, in the order of a pack; many small ones are dealt with together."""
    pieces: list[Piece[V]] = []
    size = 0
    for value in sorted(values, key=_order):
        data = value.data()
        for start, stop in cut(value.nbytes):
            full = size + stop - start > _TOGETHER_BYTES or len(pieces) == _TOGETHER
            if pieces and (full or value.is_private != pieces[0].value.is_private):
                yield pieces
                pieces, size = [], 0
            pieces.append(Piece(value, start, stop, data[start:stop]))
            size += stop - start
    if pieces:
        yield pieces


def _order(value: Value) -> tuple[int, bool]:
    """Wide elements first, so that each is aligned; whole blocks first, so that they can be written as they lie."""
    return -value.itemsize, value.nbytes % BLOCK_BYTES != 0
