"""Folded entries: a block of a log's old entries, byte for byte, one line each, in one file `<first>-<last>.jsonl`.

Blocks are aligned, and their sizes few, so whoever looks for an entry knows the names of the files that may hold it. A
line says its own number near its start, so one entry of many is found by halving, without reading the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from cairn.io.disk import Disk

SIZES: tuple[int, ...] = (128, 2048, 32_768, 524_288)
"""How many entries a block can have; each size is a multiple of the one before."""

_NAME = re.compile(r"([0-9]{8,15})-([0-9]{8,15})\.jsonl", re.ASCII)
_NUMBER = re.compile(rb'\{"format":[0-9]{1,4},"seq":([0-9]{1,15}),')
_WINDOW = 1 << 13
_CHUNK = 1 << 20


def name_of(first: int, last: int) -> str:
    """Return the name of the file that holds a block."""
    return f"{first:08d}-{last:08d}.jsonl"


def block_of(name: str) -> tuple[int, int] | None:
    """Read the first and last number of a block from its file's name."""
    match = _NAME.fullmatch(name)
    if match is None or name_of(int(match[1]), int(match[2])) != name:
        return None
    first, last = int(match[1]), int(match[2])
    return (first, last) if 0 < first <= last else None


def blocks_with(seq: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks that an entry may be folded into, the largest first."""
    for size in reversed(SIZES):
        first = (seq - 1) // size * size + 1
        yield first, first + size - 1


class FoldedFile:
    """One folded file, read by the numbers of its entries; in their order it is read but once."""

    def __init__(self, disk: Disk, path: Path, first: int, last: int) -> None:
        self.path, self.first, self.last = path, first, last
        self._disk = disk
        size = disk.size(path)
        if size is None:
            raise FileNotFoundError(path)
        self._size = size
        self._next = (first, 0)
        self._buffer, self._from = b"", 0

    def line(self, seq: int) -> bytes:
        """Return an entry's line, as it is; empty when the file ends before it."""
        start = self._next[1] if seq == self._next[0] else self._find(seq)
        line = self._line_at(start)
        self._next = (seq + 1, start + len(line))
        return line

    def lines(self, start: int = 0) -> Iterator[bytes]:
        """Yield all lines from an offset."""
        while start < self._size:
            line = self._line_at(start)
            yield line
            start += len(line)

    def _find(self, seq: int) -> int:
        low, high = 0, self._size
        while high - low > _WINDOW:
            middle = (low + high) // 2
            start = middle + len(self._line_at(middle))
            number = self._number(start) if start < high else seq + 1
            if number is None:
                return self._count(seq)
            if number == seq:
                return start
            if number > seq:
                high = middle + 1
            else:
                low = start
        for line in self.lines(low):
            match = _NUMBER.match(line)
            if match is None:
                return self._count(seq)
            if int(match[1]) >= seq:
                break
            low += len(line)
        return low

    def _count(self, seq: int) -> int:
        """Find a line by counting, in a file where some line does not say its number."""
        start = 0
        for number, line in enumerate(self.lines(), self.first):
            if number == seq:
                break
            start += len(line)
        return start

    def _number(self, start: int) -> int | None:
        match = _NUMBER.match(self._bytes(start, 40))
        return int(match[1]) if match else None

    def _line_at(self, start: int) -> bytes:
        """Return what stands from an offset to the end of its line."""
        size = _WINDOW
        while True:
            data = self._bytes(start, size)
            end = data.find(b"\n")
            if end >= 0 or len(data) < size:
                return data[: end + 1] if end >= 0 else data
            size *= 4

    def _bytes(self, start: int, size: int) -> bytes:
        begin = start - self._from
        if begin < 0 or (begin + size > len(self._buffer) and self._from + len(self._buffer) < self._size):
            # In order a large piece is worth reading; a jump is not.
            ahead = _CHUNK if start == self._next[1] else size
            self._buffer = self._disk.read_at(self.path, start, max(size, ahead))
            self._from, begin = start, 0
        return self._buffer[begin : begin + size]
