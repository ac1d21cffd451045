"""The disk refuses one step, and the process lives on: what the error says is true, and the store goes on."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from tests.races.checks import goes_on, sound
from tests.races.harness import Operation, StagedDisk, perform
from tests.races.scenes import (
    Builder,
    Scene,
    build,
    commit,
    compact,
    create,
    delete,
    drop,
    gc,
    keep,
    rename,
    rewind,
    tag,
    undrop,
)

OPERATIONS: dict[str, Operation] = {
    "commit": commit("new", 10),
    "commit to a new run": commit("new", 0, "new"),
    "tag": tag("mark", "main@2"),
    "rewind": rewind("main@2"),
    "drop": drop("main@2"),
    "undrop": undrop("main@1"),
    "create": create("new", "main@2"),
    "rename": rename("side", "moved"),
    "delete": delete("side"),
    "gc": gc(),
    "keep": keep("last:100"),
    "gc --compact": compact(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_error_says_truly_whether_anything_was_published(scene: Callable[[Builder], Scene], name: str) -> None:
    """What was done is reported as done, whatever fails after its entry; else the error says what was published."""
    place = scene(build)
    before = sound(place.copy())
    root = place.copy()
    total = len(perform(root, OPERATIONS[name]).points)
    done = sound(root)
    for at in range(total):
        root = place.copy()
        outcome = perform(root, OPERATIONS[name], failing(at, errno.EIO if at % 2 else errno.ENOSPC))
        view = sound(root) if at % 4 else goes_on(root)
        if outcome.succeeded:
            assert view == done, at
        elif "nothing of it was published" in str(outcome.error):
            assert view == before, (at, outcome)
        else:
            assert "may not survive a power cut" in str(outcome.error) or "both names" in str(outcome.error), outcome


def failing(at: int, code: int) -> StagedDisk:
    """A disk that refuses one step."""

    def refuse(number: int) -> None:
        if number == at:
            raise OSError(code, "refused", str(disk.points[number].path))

    disk = StagedDisk(refuse)
    return disk
