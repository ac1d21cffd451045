"""Committed bytes into new files in one pass: copied to where they are written from, and hashed there.

Nothing is checked before it is copied, so a file may turn out wrong when it is written. It is then written once more,
of bytes that were checked first, which other packs may have; when none has them, that raises Damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cairn.ids import BlobRef, new_hasher
from cairn.io.buffers import BUFFER_BYTES
from cairn.io.disk import Disk
from cairn.io.handles import NewFile
from cairn.io.stream import Stream

AHEAD_BYTES = 128 << 20
"""How far ahead the system is asked to read."""
_WORTH_ASKING = 1 << 18


@dataclass(frozen=True, slots=True)
class Tap:
    """Where committed bytes come from."""

    peek: Callable[[BlobRef], memoryview]
    """A blob, unchecked."""
    read: Callable[[BlobRef], memoryview]
    """A blob, checked. Raises Damaged."""
    ask_for: Callable[[BlobRef], object]
    """Has a blob read ahead."""
    advance: Callable[[int], None]
    """Told the bytes that were written; those that are written once more count again."""

    def ahead(self, refs: Sequence[BlobRef]) -> Iterator[BlobRef]:
        """Yield blobs, the next ones asked for."""
        asked = done = at = 0
        for ref in refs:
            while at < len(refs) and asked < done + AHEAD_BYTES:
                if refs[at].size >= _WORTH_ASKING:
                    self.ask_for(refs[at])
                asked += refs[at].size
                at += 1
            yield ref
            done += ref.size


class Pour:
    """A new file that is being filled, front to back."""

    def __init__(self, file: NewFile, read: Callable[[BlobRef], memoryview], advance: Callable[[int], None]) -> None:
        self._stream = Stream(file, 0)
        self.read = read
        """Gives a blob, which may be wrong."""
        self._advance = advance

    def put(self, data: memoryview, update: Callable[[memoryview], object] | None = None) -> None:
        """Append bytes; `update` sees the copies of what was committed, and only such bytes count as progress."""
        for start in range(0, data.nbytes, BUFFER_BYTES):
            copies = self._stream.put(data[start : start + BUFFER_BYTES])
            if update is not None:
                for copy in copies:
                    update(copy)
                    self._advance(copy.nbytes)
            self._stream.keep()

    def put_blob(self, ref: BlobRef) -> bool:
        """Append a blob; say whether it is right."""
        hasher = new_hasher(ref.size)
        self.put(self.read(ref), hasher.update)
        return hasher.hexdigest() == ref.id

    def finish(self) -> None:
        """Write what is left."""
        self._stream.finish()

    def abandon(self) -> None:
        """Stop writing."""
        self._stream.abandon()


def write_file(disk: Disk, path: Path, mode: int, tap: Tap, fill: Callable[[Pour], bool], *, sync: bool) -> bool:
    """Create a file and fill it; its mode is set when it is whole.

    `fill` says whether what it wrote is right; what is not is written once more, of checked bytes. Raises Damaged.
    """
    if _written(disk, path, mode, partial(Pour, read=tap.peek, advance=tap.advance), fill, sync=sync):
        return True
    disk.unlink(path)
    return _written(disk, path, mode, partial(Pour, read=tap.read, advance=tap.advance), fill, sync=sync)


def _written(
    disk: Disk, path: Path, mode: int, begin: Callable[[NewFile], Pour], fill: Callable[[Pour], bool], *, sync: bool
) -> bool:
    file = disk.create(path, 0o600)
    try:
        pour = begin(file)
        try:
            right = fill(pour)
            pour.finish()
        except BaseException:
            pour.abandon()
            raise
        file.set_mode(mode)
        if sync:
            file.sync()
        return right
    finally:
        file.close()
