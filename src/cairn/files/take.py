"""Files into the store: several at a time, each read once. One that fails stops the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cairn.files.source import FileSource, Kept, StoredSource
from cairn.files.words import show
from cairn.objects.gather import Gather
from cairn.objects.intake import Intake
from cairn.state.nodes import FileRefs, NewFile
from cairn.state.stored import StoredFile

READERS = 2
"""Files that are read at the same time; each needs up to 64 MiB, and 32 MiB where much of it is no tensor."""

File = NewFile | StoredFile


@dataclass(frozen=True, slots=True)
class Opaque:
    """A file that looks like a known format and was kept as plain bytes, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Files as they are stored, how many there are of each format, and what was noticed on the way."""

    refs: Mapping[File, FileRefs]
    formats: Mapping[str, int]
    opaque: tuple[Opaque, ...]


class _Stopped(Exception):
    """Another reader failed."""


def take_in(intake: Intake, files: Sequence[File], advance: Callable[[int], None]) -> Taken:
    """Store the files of one component; `advance` is told the bytes that were read. Raises CairnError, OSError."""
    gather = intake.gather(len(files))
    readers = _Readers(intake, gather, files, advance)
    try:
        readers.run()
        intake.gathered(gather)
    except BaseException:
        gather.abandon()
        raise
    kept = readers.kept
    formats = Counter(kept[file].format for file in files)
    return Taken(
        {file: found.refs for file, found in kept.items()},
        dict(sorted(formats.items())),
        tuple(Opaque(_words(file), reason) for file in files if (reason := kept[file].reason) is not None),
    )


class _Readers:
    """What the readers of one component share: the files that are left, and the first error."""

    def __init__(self, intake: Intake, gather: Gather, files: Sequence[File], advance: Callable[[int], None]) -> None:
        self._intake, self._gather, self._told = intake, gather, advance
        self._left: Iterator[File] = iter(files)
        self._guard = threading.Lock()
        self.kept: dict[File, Kept] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        """Read all files. Raises the first error."""
        # Not a pool: those take no work any more when the interpreter is about to end, and a commit goes on then.
        threads = [threading.Thread(target=self._read, name=f"cairn-read-{number}") for number in range(1, READERS)]
        try:
            # Without a thread more it only takes longer.
            with suppress(RuntimeError):
                for thread in threads:
                    thread.start()
            self._read()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        except BaseException as error:
            self._stop(error)
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if self.error is not None:
            raise self.error

    def _read(self) -> None:
        try:
            while self.error is None and (file := self._next()) is not None:
                source: FileSource | StoredSource = StoredSource(file) if isinstance(file, StoredFile) else file.bytes
                self.kept[file] = source.take_in(self._intake, self._gather, self._advance)
        except _Stopped:
            return
        except BaseException as error:
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """Let every reader end with the piece it is reading."""
        with self._guard:
            self.error = self.error or error

    def _next(self) -> File | None:
        with self._guard:
            return next(self._left, None)

    def _advance(self, nbytes: int) -> None:
        if self.error is not None:
            raise _Stopped
        self._told(nbytes)


def _words(file: File) -> str:
    """A file's path within what is committed."""
    return file.path if isinstance(file, StoredFile) else show(file.bytes.name) or file.bytes.path
