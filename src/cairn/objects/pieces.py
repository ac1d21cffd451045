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


class Origin(Protocol):
    """Where a blob's bytes can be had again, should its pack be lost before the commit is published."""

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""

    @property
    def is_tree(self) -> bool:
        """Whether the blob is a tree."""

    def words(self) -> str:
        """The words for it in messages."""

    def fetch(self) -> memoryview:
        """Return the bytes as they are now."""


class Piece(Generic[V]):
    """A part of a value that becomes one blob."""

    __slots__ = ("_start", "_stop", "value")
    is_tree = False

    def __init__(self, value: V, start: int, stop: int) -> None:
        self.value, self._start, self._stop = value, start, stop

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return self.value.itemsize

    def words(self) -> str:
        """The words for it in messages."""
        return self.value.path

    def fetch(self) -> memoryview:
        """Return the bytes as they are now."""
        return self.value.data()[self._start : self._stop]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes that came without a value."""

    name: str
    again: Callable[[], memoryview]
    itemsize: int
    is_tree: bool = False

    def words(self) -> str:
        """The words for it in messages."""
        return self.name

    def fetch(self) -> memoryview:
        """Return the bytes as they are now."""
        return self.again()


def again(origin: Origin, ref: BlobRef) -> NewBlob:
    """Make a blob anew. Raises CairnError when its bytes are others now."""
    blob = private(origin.fetch())
    if blob.ref != ref:
        raise CairnError(
            f"{origin.words()} changed while it was being committed: expected bytes that hash to {ref.id}, found "
            f"{blob.ref.id}; nothing was published, commit again"
        )
    return blob


def together(values: Iterable[V]) -> Iterator[tuple[list[Piece[V]], list[memoryview]]]:
    """Cut values into pieces, in the order of a pack, with their bytes; many small ones are dealt with together."""
    pieces: list[Piece[V]] = []
    parts: list[memoryview] = []
    size = 0
    for value in sorted(values, key=_order):
        data = None
        for start, stop in cut(value.nbytes):
            full = size + stop - start > _TOGETHER_BYTES or len(pieces) == _TOGETHER
            if pieces and (full or value.is_private != pieces[0].value.is_private):
                yield pieces, parts
                pieces, parts, size = [], [], 0
            if data is None:
                # Only now: it may be a copy, and so may be what was just dealt with.
                data = value.data()
            pieces.append(Piece(value, start, stop))
            parts.append(data[start:stop])
            size += stop - start
    if pieces:
        yield pieces, parts


def _order(value: Value) -> tuple[int, bool]:
    """Wide elements first, so that each is aligned; whole blocks first, so that they can be written as they lie."""
    return -value.itemsize, value.nbytes % BLOCK_BYTES != 0
