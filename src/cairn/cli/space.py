"""Commands that free space: drop, undrop, gc."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from cairn.cli import render, render_space, text
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import plain, print_json
from cairn.cli.progress import moving_bytes, working
from cairn.cli.text import note, say

if TYPE_CHECKING:
    from cairn.history.commit import Commit
    from cairn.store.store import Store


@click.command()
@click.argument("revisions", metavar="REV...", nargs=-1, required=True)
@click.option("--only", metavar="COMPONENT", multiple=True, help="Drop only this component; may be repeated.")
@run_option
@json_option
@pass_store
def drop(store: Store, revisions: tuple[str, ...], only: tuple[str, ...], run: str | None, as_json: bool) -> None:
    """Give up the content of commits, or of some components.

    The decision is recorded, and the commits stay in the history. The space is freed by `cairn gc`; until then
    `cairn undrop` takes it back. The newest commit of a run, tagged commits and those that a run started from
    cannot be dropped whole.

    \b
    Example:
      $ cairn drop step:100 step:200
      $ cairn drop step:300 --only optimizer
    """
    commits = store.drop(revisions, run=run, only=only or None)
    _decided(commits, f"Dropped {text.safe(', '.join(only)) or 'the content'} of", as_json)
    if commits and not as_json:
        note("`cairn gc` frees the space; until then `cairn undrop` takes it back.")


@click.command()
@click.argument("revisions", metavar="REV...", nargs=-1, required=True)
@run_option
@json_option
@pass_store
def undrop(store: Store, revisions: tuple[str, ...], run: str | None, as_json: bool) -> None:
    """Keep again what was dropped, while the bytes are still there.

    \b
    Example:
      $ cairn undrop step:100
    """
    _decided(store.undrop(revisions, run=run), "Keeping again", as_json)


def _decided(commits: list[Commit], verb: str, as_json: bool) -> None:
    if as_json:
        print_json(commits)
    elif commits:
        say("\n".join(f"{verb} {render.commit(commit)}" for commit in commits))
    else:
        note("Nothing to do: all of it was dropped before.")


@click.command()
@click.option(
    "--keep-last", type=click.IntRange(min=1), metavar="N", help="First drop all but the last N commits of each run."
)
@click.option("--compact", is_flag=True, help="Also rewrite partly dead packs and merge small ones.")
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, max=100, min_open=True),
    metavar="P",
    help="With --compact: rewrite packs of which at least P percent are not needed; 25 if not given.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@run_option
@json_option
@pass_store
def gc(
    store: Store,
    keep_last: int | None,
    compact: bool,
    threshold: float | None,
    dry_run: bool,
    run: str | None,
    as_json: bool,
) -> None:
    """Free the space of what nothing needs.

    Says which commits each rule keeps, which packs go, what was freed, and what has to wait and why. The newest commit
    of a run, tagged commits and those that a run started from are always kept. Others may commit and read meanwhile.
    gc stops, and removes nothing, when something that is needed cannot be read. --run limits --keep-last to one run.

    A pack goes when nothing in it is needed. --compact also frees what is not needed in other packs: it writes the
    rest of them into new ones, which takes room before it gives some; on a full disk it goes as far as it can.

    \b
    Example:
      $ cairn gc --dry-run
      $ cairn gc --keep-last 3
      $ cairn gc --compact
    """
    if run is not None and keep_last is None:
        raise click.UsageError("--run limits --keep-last, which is missing")
    if threshold is not None and not compact:
        raise click.UsageError("--threshold is for --compact, which is missing")
    from cairn.store.compaction import THRESHOLD

    share = threshold / 100 if threshold is not None else THRESHOLD
    collect = partial(store.gc, keep_last=keep_last, run=run, compact=compact, threshold=share)
    if compact and not dry_run:
        with moving_bytes("Rewriting packs") as bar:
            plan = collect(expect=bar.expect, advance=bar.advance)
    else:
        with working("Looking for what nothing needs"):
            plan = collect(dry_run=dry_run)
    if as_json:
        sums = ("dead_bytes", "rewritten_bytes", "compacted_bytes")
        print_json({**plain(plan), **{name: getattr(plan, name) for name in sums}})
    else:
        say(render_space.gc(plan))


COMMANDS: tuple[click.Command, ...] = (drop, undrop, gc)
