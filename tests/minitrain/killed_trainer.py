"""A training process that kills itself: `killed_trainer.py STORE LOSSES WHERE [--async]`.

WHERE is `disk:N` (before the N-th durable step of the process), `forward:N` (in the N-th forward pass), `never`, or
`count`, which prints the names of all durable steps instead. It trains as `python -m minitrain train` does.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import cairn
from cairn.io.disk import Disk
from minitrain.cli import main
from minitrain.model import MiniGPT

STEPS, COMMIT_EVERY, SEED = 12, 4, 5


class KillingDisk(Disk):
    """Ends the process, with no chance to clean up, before one of its steps."""

    def __init__(self, at: int | None, *, say: bool = False) -> None:
        self._at, self._count, self._say = at, 0, say

    def step(self, name: str, path: Path) -> None:
        self._count += 1
        if self._say:
            print(f"step {name} {path.parent.name}/{path.name}", flush=True)
        if self._count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


def kill_in_forward(at: int) -> None:
    """Make the n-th forward pass the last."""
    forward = MiniGPT.forward
    calls = 0

    def counted(self: MiniGPT, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        result = forward(self, *arguments)
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    MiniGPT.forward = counted  # type: ignore[assignment, method-assign] # the point of this program


def train(store: str, losses: str, where: str, *more: str) -> None:
    """Train to the end, or to the chosen point."""
    kind, _, number = where.partition(":")
    disk = KillingDisk(int(number) if kind == "disk" else None, say=kind == "count")
    if kind == "forward":
        kill_in_forward(int(number))
    for name in ("open", "init"):
        setattr(cairn, name, partial(getattr(cairn, name), disk=disk))
    options = {"--store": store, "--losses": losses, "--steps": STEPS, "--commit-every": COMMIT_EVERY, "--seed": SEED}
    arguments = [str(part) for option in options.items() for part in option]
    main(["train", "--resume", *arguments, *more])


if __name__ == "__main__":
    train(*sys.argv[1:])
