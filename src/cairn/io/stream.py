"""Writing a long file at the speed of the disk.

Bytes are copied once, into page-aligned buffers. Full buffers are written past the page cache by a thread of their own,
while the next are filled; a file that is shorter than a buffer is written without that thread. Where the file system
cannot write past the cache, the same writes go through it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np

from cairn.io import buffers
from cairn.io.buffers import BUFFER_BYTES
from cairn.io.handles import BLOCK_BYTES, NewFile

_BACKLOG = 4
"""Writes that wait while the next bytes are copied and hashed; each is of one buffer."""
_DIRECT_BYTES = 1 << 20
"""From this size on, bytes that lie well are written from where they are."""
_LARGE_COPY = 1 << 16
"""From this size on, other threads may run while bytes are copied."""


@dataclass(frozen=True, slots=True)
class _Buffer:
    memory: memoryview
    base: int
    """Where in the file its first byte goes."""


class Stream:
    """Appends to a file that nobody else writes, from `start` on; end it with `finish` or `abandon`.

    What is `put` can be taken back until it is kept, so that bytes can be hashed where they are written from.
    """

    def __init__(self, file: NewFile, start: int) -> None:
        self._file = file
        self._end = self._kept = start
        self._filling: list[_Buffer] = []
        self._writing: _Writing | None = None

    def put(self, data: memoryview) -> list[memoryview]:
        """Copy bytes to the end; return where the copy lies, until it is kept."""
        copied = []
        for room in self._rooms(data.nbytes):
            part, data = data[: room.nbytes], data[room.nbytes :]
            if part.nbytes < _LARGE_COPY:
                room[:] = part
            else:
                np.copyto(np.frombuffer(room, np.uint8), np.frombuffer(part, np.uint8))
            copied.append(room)
        return copied

    def keep(self) -> None:
        """Let what was put be written."""
        self._kept = self._end
        while self._filling and self._filling[0].base + BUFFER_BYTES <= self._kept:
            buffer = self._filling.pop(0)
            self._send(buffer.base, buffer.memory, buffer)

    def discard(self) -> None:
        """Take back what was put since the last time it was kept."""
        self._end = self._kept
        while self._filling and self._filling[-1].base >= self._end:
            buffers.give(self._filling.pop().memory)

    def write(self, data: memoryview) -> None:
        """Append bytes that nobody changes until `finish`; long ones that lie well are not copied."""
        whole = data.nbytes // BLOCK_BYTES * BLOCK_BYTES
        if whole >= _DIRECT_BYTES and self._end % BLOCK_BYTES == 0 and _address(data) % BLOCK_BYTES == 0:
            for buffer in self._filling:
                self._send(buffer.base, buffer.memory[: self._end - buffer.base], buffer)
            self._filling.clear()
            for start in range(0, whole, BUFFER_BYTES):
                part = data[start : min(start + BUFFER_BYTES, whole)]
                self._send(self._end, part, None)
                self._end += part.nbytes
            self._kept = self._end
            data = data[whole:]
        while data.nbytes:
            self.put(data[:BUFFER_BYTES])
            self.keep()
            data = data[BUFFER_BYTES:]

    def finish(self) -> None:
        """Write what is left. Raises OSError when anything could not be written."""
        if self._writing is not None:
            self._writing.end()
        for buffer in self._filling:
            used = self._end - buffer.base
            whole = used // BLOCK_BYTES * BLOCK_BYTES if self._writing is not None else 0
            for start, stop in ((0, whole), (whole, used)):
                if start != stop:
                    self._file.write_at(buffer.base + start, buffer.memory[start:stop])
            buffers.give(buffer.memory)
        self._filling.clear()

    def abandon(self) -> None:
        """Stop writing."""
        if self._writing is not None:
            self._writing.stop()

    def _rooms(self, size: int) -> Iterator[memoryview]:
        """Parts of the buffers that hold the next bytes."""
        while size:
            if not self._filling or self._end == self._filling[-1].base + BUFFER_BYTES:
                self._filling.append(_Buffer(buffers.take(), self._end))
            at = self._end - self._filling[-1].base
            room = self._filling[-1].memory[at : at + size]
            self._end += room.nbytes
            size -= room.nbytes
            yield room

    def _send(self, offset: int, data: memoryview, buffer: _Buffer | None) -> None:
        if self._writing is None:
            self._file.bypass_cache()
            self._writing = _Writing(self._file)
        self._writing.take(offset, data, buffer)


_Item = tuple[int, memoryview, _Buffer | None]


class _Writing:
    """Writes what it is given, in that order and by a thread of its own, and gives buffers back."""

    def __init__(self, file: NewFile) -> None:
        self._file = file
        self._error: BaseException | None = None
        self._stopped = False
        self._ended = threading.Event()
        # Tokens, not a semaphore: Ctrl-C at a bad moment leaves that locked, and then nobody writes on.
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(_BACKLOG):
            self._room.put(None)
        self._work: SimpleQueue[_Item | None] = SimpleQueue()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="cairn-write", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # There is none to be had, at the end of the interpreter for one: without it, it only takes longer.
            self._thread = None

    def take(self, offset: int, data: memoryview, buffer: _Buffer | None) -> None:
        """Take bytes to write; waits while there are too many. Raises what went wrong so far."""
        self._room.get()
        if self._thread is None:
            self._write((offset, data, buffer))
        if self._error is not None:
            raise self._error
        if self._thread is not None:
            self._work.put((offset, data, buffer))

    def end(self) -> None:
        """Wait until all is written. Raises what went wrong."""
        self._join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Wait until nothing is being written."""
        self._stopped = True
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._work.put(None)
            # A join that is interrupted takes the thread for ended, and its file would be closed while it writes.
            self._ended.wait()
            self._thread.join()

    def _run(self) -> None:
        try:
            while (item := self._work.get()) is not None:
                self._write(item)
        finally:
            self._ended.set()

    def _write(self, item: _Item) -> None:
        """Write, unless something went wrong before."""
        offset, data, buffer = item
        try:
            if self._error is None and not self._stopped:
                self._file.write_at(offset, data)
        except BaseException as error:
            self._error = error
        if buffer is not None:
            buffers.give(buffer.memory)
        self._room.put(None)


def _address(data: memoryview) -> int:
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address
