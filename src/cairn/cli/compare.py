"""The command diff: what changed between two commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.cli import render_diff
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import print_json
from cairn.cli.progress import working
from cairn.cli.text import say

if TYPE_CHECKING:
    from cairn.store.store import Store

DIFFERENT = 7
"""Exit status of `--exit-code` for commits that differ."""


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.argument("path", metavar="[PATH]", required=False)
@click.option("--only", metavar="COMPONENT", multiple=True, help="Compare only this component; may be repeated.")
@click.option("--stat", is_flag=True, help="Count changes by component; reads trees only, no tensor.")
@click.option("--exit-code", is_flag=True, help="Leave with status 7 when there are differences.")
@run_option
@json_option
@pass_store
def diff(
    store: Store,
    before: str,
    after: str,
    path: str | None,
    only: tuple[str, ...],
    stat: bool,
    exit_code: bool,
    run: str | None,
    as_json: bool,
) -> int:
    """Say what changed from commit A to commit B.

    PATH is a component, a value in it, or a file or folder; it may lead on to a tensor in a file. Without it everything
    is compared. Equal states are told at once, and of tensors only those are read that differ. A tensor's line has how
    many elements changed, the largest distance of two elements, and the norm of the difference by the norm of A.

    \b
    Example:
      $ cairn diff step:100 step:200
      $ cairn diff latest~1 latest model --stat
      $ cairn diff main@100 other@100 --exit-code
    """
    with working("Comparing"):
        found = store.diff(before, after, path, run=run, only=only or None, values=not stat)
    if as_json:
        print_json(found)
    else:
        say(render_diff.stat(found) if stat else render_diff.diff(found))
    return DIFFERENT if exit_code and not found.same else 0


COMMANDS: tuple[click.Command, ...] = (diff,)
