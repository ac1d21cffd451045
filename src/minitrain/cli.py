"""The command line: `python -m minitrain train`.

Standard output has plain lines for people and programs; the progress bar goes to standard error, and only to a
terminal. Errors are one sentence. The exit status is 0 when the last step is done, 130 after Ctrl-C and 143 after
SIGTERM (the step was finished and committed), 2 for wrong usage, what the store says for its errors, and else 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

import click

from minitrain.errors import MinitrainError
from minitrain.session import Start, StopRequest, begin, open_store, train

COUNT = click.IntRange(min=1)


@click.group()
def main() -> None:
    """Train a small language model on Spanish verb forms."""


@main.command("train")
@click.option("--store", type=click.Path(path_type=Path), default=Path("store"), show_default=True, help="The store.")
@click.option("--run", "name", default="main", show_default=True, help="The run of the store.")
@click.option("--steps", type=COUNT, default=1000, show_default=True, help="The step to train up to.")
@click.option("--commit-every", type=COUNT, default=100, show_default=True, help="Steps from commit to commit.")
@click.option("--seed", type=click.IntRange(min=0), help="The seed of a fresh run; 0 if it is left out.")
@click.option("--resume", is_flag=True, help="Go on from the newest commit of the run.")
@click.option("--peak-lr", type=click.FloatRange(min=0), help="The highest learning rate, from here on.")
@click.option("--async", "in_background", is_flag=True, help="Train on while a commit is made.")
@click.option("--losses", type=click.Path(path_type=Path), help="Append a line of JSON with each step's loss.")
def train_command(
    store: Path,
    name: str,
    steps: int,
    commit_every: int,
    seed: int | None,
    resume: bool,
    peak_lr: float | None,
    in_background: bool,
    losses: Path | None,
) -> None:
    """Train, and commit the whole state to a store.

    Killed at any moment, the run goes on with --resume from its last commit, to the same bits. Ctrl-C and SIGTERM
    finish and commit the step that is under way.
    """
    from cairn.errors import CairnError

    try:
        status = _train(store, name, steps, commit_every, seed, resume, peak_lr, in_background, losses)
    except CairnError as error:
        _fail(error, error.exit_code)
    except (MinitrainError, OSError) as error:
        _fail(error, 1)
    sys.exit(status)


def _train(
    store: Path,
    name: str,
    steps: int,
    commit_every: int,
    seed: int | None,
    resume: bool,
    peak_lr: float | None,
    in_background: bool,
    losses: Path | None,
) -> int:
    with ExitStack() as stack:
        stop = stack.enter_context(StopRequest())
        run = stack.enter_context(open_store(store)).run(name)
        start = begin(run, resume=resume, seed=seed)
        if peak_lr is not None:
            start.machines.scheduler.peak = peak_lr
        _say(_opening(name, start))
        record = stack.enter_context(_recorder(losses))
        advance = stack.enter_context(_progress(start.step, steps))

        def on_step(step: int, loss: float) -> None:
            record(step, loss)
            advance(step, loss)

        made = train(
            run,
            start.machines,
            stop,
            steps=steps,
            commit_every=commit_every,
            on_step=on_step,
            wait=not in_background,
        )
    if made is None:
        _say(f"step {steps} is reached already; nothing was trained")
    commit = made or run.tip
    if commit is not None:
        _say(f"step {commit.step}")
        _say(f"final loss {commit.metrics['loss']:.6f}")
        _say(f"manifest {commit.manifest}")
    if stop.signal is None:
        return 0
    _say(f"stopped by {stop.signal.name}; go on with --resume")
    return 128 + stop.signal


def _opening(name: str, start: Start) -> str:
    if start.is_resumed:
        return f"resumed from step {start.step}"
    return f"run {name} has no commits yet; starts fresh with seed {start.machines.data_iter.seed}"


@contextmanager
def _recorder(path: Path | None) -> Iterator[Callable[[int, float], None]]:
    """Gives a function that appends a step's loss to a file, every bit of it, at once."""
    if path is None:
        yield lambda step, loss: None
        return
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise MinitrainError(f"the losses cannot be written to {path}: {error.strerror}.") from None
    with file:

        def record(step: int, loss: float) -> None:
            file.write(json.dumps({"step": step, "loss": loss.hex()}) + "\n")
            file.flush()

        yield record


@contextmanager
def _progress(first: int, last: int) -> Iterator[Callable[[int, float], None]]:
    """Gives a function that moves a progress bar, if there is a terminal to show one."""
    if not sys.stderr.isatty():
        yield lambda step, loss: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.3f}"), TimeRemainingColumn())
    # Standard output may be a pipe: what is printed must not be taken over by the bar.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False, transient=True) as bar:
        task = bar.add_task("train", completed=first, total=last, loss=float("nan"))
        yield lambda step, loss: bar.update(task, completed=step, loss=loss)


def _say(line: str) -> None:
    print(line, flush=True)


def _fail(error: Exception, status: int) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(status)
