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
@click.option(
    "--only",
    metavar="PART",
    multiple=True,
    help="Drop only this component, or files of a folder, as in files:*.pt; may be repeated.",
)
@click.option("--attempt", is_flag=True, help="Drop whole attempts: each REV is one, as in main/attempt-1.")
@run_option
@json_option
@pass_store
def drop(
    store: Store, revisions: tuple[str, ...], only: tuple[str, ...], attempt: bool, run: str | None, as_json: bool
) -> None:
    """Give up the content of commits, or of some parts.

    The decision is recorded, and the commits stay in the history. The space is freed by `cairn gc`; until then
    `cairn undrop` takes it back. The newest commit of a run, tagged commits and those that a run started from
    cannot be dropped whole. A part is a component, or a component and a path in the folder that it is: * and ? stand
    for other characters of a name, ** for any folders, and a folder goes with all that is in it.

    With --attempt all commits go that are only on an attempt that training left behind, except tagged ones and those
    that a run started from.

    \b
    Example:
      $ cairn drop step:100 step:200
      $ cairn drop step:300 --only optimizer
      $ cairn drop step:300 --only 'files:global_step*/*_optim_states.pt'
      $ cairn drop --attempt main/attempt-1
    """
    if attempt and only:
        raise click.UsageError("--attempt drops whole commits; leave out --only")
    if attempt:
        commits = [commit for name in revisions for commit in store.drop_attempt(name)]
        _decided(commits, "Dropped the content of", as_json, "Nothing to do: what is only on it was dropped before.")
    else:
        commits = store.drop(revisions, run=run, only=only or None)
        _decided(commits, f"Dropped {text.safe(', '.join(only)) or 'the content'} of", as_json)
    if commits and not as_json:
        note("`cairn gc` frees the space; until then `cairn undrop` takes it back.")
    for name in revisions if not as_json else ():
        _tell_rest(store, name)
    for commit in commits if only and not as_json else ():
        if commit == store.run(commit.run).tip:
            note(f"{render.commit(commit)} is the newest of its run: training resumes from it only with only=.")


def _tell_rest(store: Store, revision: str) -> None:
    """Say what is left of an attempt, which its name as a revision does not cover."""
    run, is_attempt, _ = revision.partition("/attempt-")
    for left in store.attempts(run) if is_attempt else ():
        if left.name == revision and left.commits:
            count = text.count(len(left.commits), "commit")
            note(f"{revision} has {count} left; --attempt drops all of them that nothing keeps.")
        if left.name == revision and left.shared:
            count = text.count(len(left.shared), "commit")
            note(f"{revision} shares {count} with another attempt; they go when that is given up, too.")


@click.command()
@click.argument("revisions", metavar="REV...", nargs=-1, required=True)
@click.option("--attempt", is_flag=True, help="Keep whole attempts again: each REV is one, as in main/attempt-1.")
@run_option
@json_option
@pass_store
def undrop(store: Store, revisions: tuple[str, ...], attempt: bool, run: str | None, as_json: bool) -> None:
    """Keep again what was dropped, while the bytes are still there.

    \b
    Example:
      $ cairn undrop step:100
      $ cairn undrop --attempt main/attempt-1
    """
    if attempt:
        commits = [commit for name in revisions for commit in store.undrop_attempt(name)]
    else:
        commits = store.undrop(revisions, run=run)
    _decided(commits, "Keeping again", as_json, "Nothing to do: nothing of it was dropped.")


def _decided(
    commits: list[Commit], verb: str, as_json: bool, nothing: str = "Nothing to do: all of it was dropped before."
) -> None:
    if as_json:
        print_json(commits)
    elif commits:
        say("\n".join(f"{verb} {render.commit(commit)}" for commit in commits))
    else:
        note(nothing)


@click.command()
@click.option("--keep-last", type=click.IntRange(min=1), metavar="N", help="Keep the last N commits of each run.")
@click.option(
    "--keep-every", "every", type=click.IntRange(min=1), metavar="N", multiple=True, help="Keep steps N, 2N, …"
)
@click.option(
    "--keep-best", "best", metavar="METRIC[:min|max][:N]", multiple=True, help="Keep the best, or the best N."
)
@click.option("--keep-within", "within", metavar="DURATION", help="Keep the 12h, 30d or 1w before the newest commit.")
@click.option("--drop", "parts", metavar="PART:N", multiple=True, help="Keep a part only in the newest N commits.")
@click.option("--drop-attempts", is_flag=True, help="Give up the attempts that training left behind.")
@click.option("--no-rules", is_flag=True, help="Leave the stored rules of `cairn keep` out.")
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
    every: tuple[int, ...],
    best: tuple[str, ...],
    within: str | None,
    parts: tuple[str, ...],
    drop_attempts: bool,
    no_rules: bool,
    compact: bool,
    threshold: float | None,
    dry_run: bool,
    run: str | None,
    as_json: bool,
) -> None:
    """Free the space of what nothing needs.

    First commits are dropped that no rule keeps: neither a stored one of `cairn keep` nor one given here. Rules add up,
    so what a stored rule keeps goes only with --no-rules, where the options alone decide. Without any rule for whole
    commits none is dropped. The newest commit of a run, tagged commits and those that a run started
    from are always kept, and attempts unless --drop-attempts. --run limits the options to one run.

    Says what each rule keeps, which packs go, what was freed, and what has to wait and why. Others may commit and read
    meanwhile. gc stops, and removes nothing, when something that is needed cannot be read.

    A pack goes when nothing in it is needed. --compact also frees what is not needed in other packs: it writes the
    rest of them into new ones, which takes room before it gives some; on a full disk it goes as far as it can.

    \b
    Example:
      $ cairn gc --dry-run
      $ cairn gc --keep-last 3 --keep-best val_loss:min
      $ cairn gc --keep-every 1000 --drop optimizer:2 --drop 'files:*.pt:2'
      $ cairn gc --compact
    """
    keep = [f"last:{keep_last}"] if keep_last is not None else []
    keep += [f"every:{step}" for step in every]
    keep += [f"best:{metric}" for metric in best]
    keep += [f"within:{within}"] if within is not None else []
    keep += [f"part:{part}" for part in parts]
    if run is not None and not keep and not drop_attempts:
        raise click.UsageError("--run limits rules given here, and none is")
    if threshold is not None and not compact:
        raise click.UsageError("--threshold is for --compact, which is missing")
    from cairn.store.defaults import THRESHOLD

    share = threshold / 100 if threshold is not None else THRESHOLD
    collect = partial(
        store.gc,
        keep=keep,
        run=run,
        stored_rules=not no_rules,
        drop_attempts=drop_attempts,
        compact=compact,
        threshold=share,
    )
    if compact and not dry_run:
        with moving_bytes("Rewriting packs") as bar:
            plan = collect(expect=bar.expect, advance=bar.advance)
    else:
        with working("Looking for what nothing needs"):
            plan = collect(dry_run=dry_run)
    if as_json:
        sums = ("dead_bytes", "rewritten_bytes", "compacted_bytes")
        print_json({**plain(plan), **{name: getattr(plan, name) for name in sums}})
        return
    say(render_space.gc(plan))
    if plan.retention and plan.retention.stored and plan.retention.given:
        note(
            "A commit goes only if neither stored rules nor those given here keep it; --no-rules leaves the stored out."
        )


COMMANDS: tuple[click.Command, ...] = (drop, undrop, gc)
