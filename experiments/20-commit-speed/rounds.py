"""One round of one tool on one state: saves, saves in the background, and loads."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from states import State, change_all, change_half, change_nothing
from timing import evict, seconds, warm
from tool import Tool

Found = Iterator[tuple[str, float]]

FIRST = "first save"
SAVES: dict[str, Callable[[State], None]] = {
    FIRST: change_nothing,
    "nothing changed": change_nothing,
    "half changed": change_half,
    "all changed": change_all,
}
LOAD = "load"
COLD = "load, cold"
LOADS = (LOAD, COLD, "load, copies", "load into", "load lazily", "one tensor", "to files")
"""All but `COLD` from the page cache."""
STALL, LATER_STALL, IN_BACKGROUND = "stall, first", "stall, later", "durable after, later"


def one_round(tool: Tool, state: State, folder: Path) -> Found:
    """Yield what was done and the seconds it took; the folder is made, and removed in the end."""
    try:
        tool.start(folder)
        yield from _saves(tool, state)
        yield from _loads(tool, state)
        tool.stop()
        shutil.rmtree(folder)
        if tool.has_later:
            tool.start(folder)
            yield from _stalls(tool, state)
            tool.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _saves(tool: Tool, state: State) -> Found:
    for what, change in SAVES.items():
        change(state)
        tool.prepare(state)
        yield what, seconds(lambda: tool.save(state))
        if not tool.does_share:
            return


def _stalls(tool: Tool, state: State) -> Found:
    """Save three times what has changed; each save ends before the next begins."""
    for number in range(3):
        change_all(state)
        tool.prepare(state)
        waits: list[Callable[[], object]] = []

        def begin(waits: list[Callable[[], object]] = waits) -> None:
            wait = tool.save_later(state)
            assert wait is not None
            waits.append(wait)

        stall = seconds(begin)
        start = time.perf_counter()
        waits.pop()()
        rest = time.perf_counter() - start
        yield (STALL if number == 0 else LATER_STALL), stall
        if number:
            yield IN_BACKGROUND, stall + rest


def _loads(tool: Tool, state: State) -> Found:
    for what, work in tool.loads(state).items():
        warm(tool.files())
        yield what, seconds(work)
        if what == LOAD:
            tool.forget()
            evict(tool.files())
            yield COLD, seconds(work)
