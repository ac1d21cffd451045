"""The command verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.cli import render_report
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import plain, print_json
from cairn.cli.progress import working
from cairn.cli.text import say
from cairn.errors import Damaged

if TYPE_CHECKING:
    from cairn.store.store import Store


@click.command()
@click.argument("revisions", metavar="[REV...]", nargs=-1)
@run_option
@json_option
@pass_store
def verify(store: Store, revisions: tuple[str, ...], run: str | None, as_json: bool) -> None:
    """Check every hash and say what is damaged.

    Everything is read, or what the commits that are named need. Nothing is changed. Each finding names the object,
    the file, what was expected and found, which steps it hits and what to do. The exit status is 6 when something
    that was committed is damaged.

    \b
    Example:
      $ cairn verify
      $ cairn verify latest best:val_loss:min
    """
    with working("Reading everything and checking every hash"):
        report = store.verify(revisions, run=run)
    if as_json:
        print_json({"ok": report.ok, **plain(report)})
    else:
        say(render_report.report(report))
    if not report.ok:
        raise click.exceptions.Exit(Damaged.exit_code)


COMMANDS: tuple[click.Command, ...] = (verify,)
