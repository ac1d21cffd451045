"""A training run that lives in a store: it starts or resumes, commits as it goes, and stops at a whole step.

A run may be killed at any moment. What was committed is then all there is, and training goes on from there as if
nothing had happened, because a commit holds all five machines. A polite signal loses nothing at all: the step that is
under way is finished and committed first.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from minitrain.corpus import VerbExample, build_corpus, split_corpus
from minitrain.errors import MinitrainError, StateMismatch
from minitrain.loop import evaluate, train_step
from minitrain.machines import Machines, build_machines

if TYPE_CHECKING:
    from cairn import Commit, Pending, Run, Store

STOPS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Catches Ctrl-C and SIGTERM while it is entered, and remembers the first instead of obeying at once."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in STOPS:
            self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number)


@dataclass(frozen=True, slots=True)
class Start:
    """Where training begins: at step 0, or where a commit left off."""

    machines: Machines
    step: int
    is_resumed: bool


def open_store(path: Path) -> Store:
    """Opens a store; one that does not exist yet is made."""
    import cairn

    try:
        return cairn.open(path)
    except cairn.StoreNotFound:
        return cairn.init(path)


def begin(run: Run, *, resume: bool, seed: int | None) -> Start:
    """Builds fresh machines, or puts them where the newest commit of the run left off.

    A resumed run takes everything from the commit. A seed is a question then: it must be the one of the run.
    """
    tip = run.tip
    if tip is None:
        return Start(build_machines(seed or 0), 0, is_resumed=False)
    if not resume:
        raise MinitrainError(
            f"run {run.name} has commits already, the newest at step {tip.step}. "
            "Continue it with --resume, or give another name with --run."
        )
    machines = build_machines()
    machines.restore(run.resume())
    found = machines.data_iter.seed
    if seed is not None and seed != found:
        raise StateMismatch(
            f"run {run.name} was started with seed {found}, and cannot go on with seed {seed}. "
            "Leave out --seed, or start another run."
        )
    return Start(machines, machines.scheduler.t, is_resumed=True)


def train(
    run: Run,
    machines: Machines,
    stop: StopRequest,
    *,
    steps: int,
    commit_every: int,
    on_step: Callable[[int, float], None],
    wait: bool = True,
) -> Commit | None:
    """Trains up to a step, and commits every so many steps, at the end, and when it is asked to stop.

    Returns the last commit, or None if there was nothing left to train. Without `wait` training goes on while a
    commit is made.
    """
    from cairn import Pending

    _, held_out = split_corpus(build_corpus())
    commit: Commit | Pending | None = None
    for step in range(machines.scheduler.t + 1, steps + 1):
        loss = train_step(*machines)
        on_step(step, loss)
        stopped_by = stop.signal
        if step % commit_every == 0 or step == steps or stopped_by:
            message = f"stopped by {stopped_by.name}" if stopped_by else None
            commit = commit_machines(run, machines, loss, held_out, message, wait=wait)
        if stopped_by:
            break
    return commit.result() if isinstance(commit, Pending) else commit


def commit_machines(
    run: Run,
    machines: Machines,
    loss: float,
    held_out: Sequence[VerbExample],
    message: str | None,
    *,
    wait: bool = True,
) -> Commit | Pending:
    """Commits the whole state, with the loss of its last step and the held-out loss."""
    return run.commit(
        machines.state(),
        step=machines.scheduler.t,
        epoch=machines.data_iter.epoch,
        metrics={"loss": loss, "val_loss": evaluate(machines.model, held_out)},
        message=message,
        wait=wait,
    )
