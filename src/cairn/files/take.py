"""Files into the store: several at a time, each read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cairn.files.source import FileSource, StoredSource
from cairn.objects.intake import Intake
from cairn.state.nodes import FileRefs, NewFile
from cairn.state.stored import StoredFile

READERS = 2
"""Files that are read at the same time; each needs up to 128 MiB."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A file that looks like a known format and was kept as plain bytes, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Files as they are stored, and what was noticed on the way."""

    refs: dict[NewFile | StoredFile, FileRefs]
    opaque: tuple[Opaque, ...]


def take_in(intake: Intake, files: Sequence[NewFile | StoredFile], advance: Callable[[int], None]) -> Taken:
    """Store the files of one component; `advance` is told the bytes that were read. Raises CairnError, OSError."""
    gather = intake.gather(len(files) * 16)
    refs: dict[NewFile | StoredFile, FileRefs] = {}
    opaque: list[Opaque] = []
    try:
        with ThreadPoolExecutor(READERS, thread_name_prefix="cairn-read") as pool:
            jobs = [(file, pool.submit(_source(file).take_in, intake, gather, advance)) for file in files]
            try:
                for file, job in jobs:
                    refs[file], reason = job.result()
                    if reason is not None:
                        opaque.append(Opaque(_source(file).path, reason))
            finally:
                for _, job in jobs:
                    job.cancel()
        intake.gathered(gather)
    except BaseException:
        gather.abandon()
        raise
    return Taken(refs, tuple(opaque))


def _source(file: NewFile | StoredFile) -> FileSource | StoredSource:
    if isinstance(file, StoredFile):
        return StoredSource(file)
    source: FileSource = file.bytes
    return source
