"""Commands on history: log, show, reflog, rewind."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import click

from cairn.cli import render
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import print_json
from cairn.cli.text import note, safe, say
from cairn.errors import Damaged, Dropped, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.history.commit import Commit
    from cairn.store.store import Store


@click.command()
@click.argument("revision", metavar="[REV]", required=False)
@click.option("-n", "count", type=click.IntRange(min=1), metavar="N", help="Show only the newest N commits.")
@run_option
@json_option
@pass_store
def log(store: Store, revision: str | None, count: int | None, run: str | None, as_json: bool) -> None:
    """List a run's commits, newest first.

    Those of the current line, or from REV back. Attempts that training left behind are not on the line;
    `cairn run list` shows them. Times are UTC.

    \b
    Example:
      $ cairn log -n 5 --run main
      $ cairn log main/attempt-1
    """
    line = store.log(run, revision=revision) if run or revision else store.default_run().log()
    commits, error = _readable(line, None if count is None else min(count, sys.maxsize))
    if as_json:
        print_json(commits)
    elif commits:
        say(render.log(commits, store.tags()))
    elif error is None:
        note("No commits yet.")
    if error is None and commits and revision is None:
        # Of a line that was not walked to its end, too, the beginning must be known.
        store.run(commits[0].run).check()
    if error is not None:
        raise error


def _readable(line: Iterator[Commit], count: int | None) -> tuple[list[Commit], Damaged | None]:
    """Take commits as far as they can be read, and what is wrong with the next."""
    commits: list[Commit] = []
    try:
        commits.extend(islice(line, count))
    except Damaged as error:
        return commits, error
    return commits, None


@click.command()
@click.argument("revision", metavar="REV")
@run_option
@json_option
@pass_store
def show(store: Store, revision: str, run: str | None, as_json: bool) -> None:
    """Show one commit.

    That is its step, metrics, message and parents, what is in it, and where it was made.

    \b
    Example:
      $ cairn show step:300
      $ cairn show best:val_loss:min --json
    """
    commit = store.commit(revision, run)
    if as_json:
        print_json(commit)
    else:
        tags = [name for name, tag in store.tags().items() if tag.commit.id == commit.id]
        say(render.show(commit, tags, _content(store, commit)))


def _content(store: Store, commit: Commit) -> str:
    """The words for what is in a commit, whose content may be gone or damaged."""
    try:
        return render.content(store.ls(commit.id))
    except Dropped:
        return ""
    except Damaged as error:
        return f"cannot be read: {safe(str(error))}"


@click.command()
@run_option
@json_option
@pass_store
def reflog(store: Store, run: str | None, as_json: bool) -> None:
    """List what happened to a run, newest first.

    That is its commits, rewinds and drops. A run that was deleted can be named, too. Commits that were left behind
    can be named by their id.

    \b
    Example:
      $ cairn reflog --run main
    """
    handle = store.default_run(run)
    moves = handle.reflog()
    if not moves and run:
        raise NotFound(f"run {run!r} has no entries: expected one of {', '.join(store.runs()) or 'no runs yet'}")
    if as_json:
        print_json(moves)
    elif moves:
        say(render.reflog(moves))
    else:
        note("No entries yet.")
    handle.check()


@click.command()
@click.argument("revision", metavar="REV")
@run_option
@json_option
@pass_store
def rewind(store: Store, revision: str, run: str | None, as_json: bool) -> None:
    """Move a run back to one of its commits.

    The next commit continues from there. Nothing is removed: what was left behind stays as an attempt, which `cairn
    reflog` shows.

    \b
    Example:
      $ cairn rewind step:200
      $ cairn rewind latest~1
    """
    commit = store.rewind(revision, run)
    if as_json:
        print_json(commit)
    else:
        say(f"The run is back at {render.commit(commit)}")


COMMANDS: tuple[click.Command, ...] = (log, show, reflog, rewind)
