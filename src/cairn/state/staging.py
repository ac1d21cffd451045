"""Memory for one snapshot of a state: the bytes that its owner may change, copied so that they can be stored later.

It is kept from one snapshot to the next, because the first touch of fresh memory costs several times the copy. It is
shared, not private, memory: else every page would be copied once more after each fork of the process, and held twice.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

import numpy as np

from cairn.errors import CairnError
from cairn.state.arrays import Bytes
from cairn.state.leaf import Leaf

Job = Callable[[], object]

PAGE_BYTES = 4096
"""Leaves of this size and more begin at a multiple of it, so that they can be written from where they lie."""

_LINE_BYTES = 64
_JOB_BYTES = 8 << 20
_MOST_THREADS = 8
_SPARE = 4
_PATIENCE = 8


class Staging:
    """Takes one snapshot at a time; the one before must not be needed any more.

    The memory grows to what a snapshot needs. It is given back when it was four times too large eight times in a row.
    """

    def __init__(self) -> None:
        self._memory: Bytes | None = None
        self._owner = os.getpid()
        self._too_large = 0

    @property
    def nbytes(self) -> int:
        """How much memory is held."""
        return 0 if self._memory is None else self._memory.nbytes

    def take(self, leaves: Iterable[Leaf], threads: int | None = None) -> None:
        """Copy what can be changed of leaves, on so many cores or on all, and freeze them; the rest as it is.

        Raises CairnError when there is not memory enough.
        """
        changeable = []
        for leaf in leaves:
            if leaf.is_immutable:
                leaf.hold()
            else:
                changeable.append(leaf)
        places, need = _places([leaf.nbytes for leaf in changeable])
        memory = self._reserve(need)
        copies = [memory[at : at + leaf.nbytes] for leaf, at in zip(changeable, places, strict=True)]
        _run([*_jobs(changeable, copies)], threads)
        for leaf, copy in zip(changeable, copies, strict=True):
            leaf.freeze(copy.data)

    def _reserve(self, need: int) -> Bytes:
        if self._owner != os.getpid():
            # Forked: the memory is the parent's, whose commit may be reading it.
            self._memory, self._owner = None, os.getpid()
        self._too_large = self._too_large + 1 if need * _SPARE < self.nbytes else 0
        if self._too_large == _PATIENCE or need > self.nbytes:
            self._too_large = 0
            # The old memory goes first: both at once may be more than there is.
            self._memory = None
            self._memory = _fresh(need)
        return np.empty(0, np.uint8) if self._memory is None else self._memory


def _fresh(need: int) -> Bytes:
    # With some room, so that a state that grows a little each time does not need fresh memory each time.
    size = max(need + need // 16, PAGE_BYTES)
    try:
        return np.frombuffer(mmap.mmap(-1, size), np.uint8)
    except (OSError, ValueError, OverflowError) as error:
        raise CairnError(
            f"no memory for a snapshot of {need} bytes ({error}); commit with wait=True, which takes none"
        ) from error


def _places(sizes: list[int]) -> tuple[list[int], int]:
    """Where copies of such sizes begin, and how much they take together."""
    places = []
    end = 0
    for size in sizes:
        unit = PAGE_BYTES if size >= PAGE_BYTES else _LINE_BYTES
        at = -(-end // unit) * unit
        places.append(at)
        end = at + size
    return places, end


def _jobs(leaves: list[Leaf], copies: list[Bytes]) -> Iterator[Job]:
    """The copying, in portions of some MiB: a large leaf is several, many small ones are one."""
    small: list[tuple[Bytes, Bytes]] = []
    size = 0
    for leaf, copy in zip(leaves, copies, strict=True):
        plain = leaf.plain()
        if plain is None:
            yield partial(leaf.copy_to, copy)
        elif plain.nbytes > _JOB_BYTES:
            for start in range(0, plain.nbytes, _JOB_BYTES):
                yield partial(np.copyto, copy[start : start + _JOB_BYTES], plain[start : start + _JOB_BYTES])
        else:
            small.append((copy, plain))
            size += plain.nbytes
            if size >= _JOB_BYTES:
                yield partial(_copy_each, small)
                small, size = [], 0
    yield partial(_copy_each, small)


def _copy_each(pairs: list[tuple[Bytes, Bytes]]) -> None:
    for copy, plain in pairs:
        np.copyto(copy, plain)


def _run(jobs: list[Job], threads: int | None) -> None:
    """Do jobs on several threads, this one among them; when one raises, the others end with what they are doing."""
    left = iter(jobs)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for job in left:
                if errors:
                    return
                job()
        except BaseException as error:
            errors.append(error)

    most = min(threads or len(os.sched_getaffinity(0)), _MOST_THREADS, len(jobs))
    helpers = []
    # Without a thread more it only takes longer.
    with suppress(RuntimeError):
        for _ in range(most - 1):
            helper = threading.Thread(target=work, name="cairn-copy")
            helper.start()
            helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
