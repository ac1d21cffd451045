"""Where long values are cut into blobs: one rule for tensors, bytes and files."""

from __future__ import annotations

WHOLE_BYTES = 1 << 26
"""Up to this size a value is one blob."""

PIECE_BYTES = 1 << 24
"""Above it, it is cut at every multiple of this."""


def cut(nbytes: int) -> list[tuple[int, int]]:
    """Return the bounds of the blobs that hold this many bytes; none for no bytes."""
    if nbytes <= WHOLE_BYTES:
        return [(0, nbytes)] if nbytes else []
    return [(start, min(start + PIECE_BYTES, nbytes)) for start in range(0, nbytes, PIECE_BYTES)]
