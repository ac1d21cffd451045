"""A tiny state, that of minitrain: one commit against git add and git commit of its files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from programs import Program
from states import State
from timing import seconds

import cairn
from minitrain.checkpoint import save_checkpoint
from minitrain.loop import train_step
from minitrain.testing import build_fresh


class Git(Program):
    """git on small files, with the fsyncs that it does by itself, or with all it has."""

    command = "git"

    def __init__(self, name: str, *options: str) -> None:
        self.name = name
        self._options = options

    def _setup(self) -> None:
        self.call("git", "init", "--quiet")

    def save(self, state: State) -> None:
        self.call("git", *self._options, "add", "--all")
        self.call("git", *self._options, "commit", "--quiet", "--message", "step")


GITS = (Git("git add, git commit"), Git("git, core.fsync=all", "-c", "core.fsync=all"))


def rounds(folder: Path, repeat: int) -> Iterator[tuple[str, int, float]]:
    """Yield tool, round and seconds; between two rounds is a step of training."""
    machines = build_fresh()
    gits = [git for git in GITS if not git.missing()]
    for number, git in enumerate(gits):
        git.start(folder / f"git-{number}")
    with cairn.init(folder / "tiny") as store:
        run = store.run("main")
        for number in range(repeat + 1):
            loss = train_step(*machines)
            step = machines.scheduler.t
            commit = partial(run.commit, machines.state(), step=step, metrics={"loss": loss})
            took = {"cairn": seconds(commit)}
            for git in gits:
                save_checkpoint(*machines, git.files_in, step, 0, {"loss": loss})
                took[git.name] = seconds(partial(git.save, {}))
            # The first round imports, and makes folders.
            if number:
                yield from ((tool, number, each) for tool, each in took.items())
