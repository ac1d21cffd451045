"""Commands that look whether all is well: verify, doctor."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cairn.cli import render_report
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import plain, print_json
from cairn.cli.progress import moving_bytes, working
from cairn.cli.text import say
from cairn.errors import CairnError, Damaged

if TYPE_CHECKING:
    from cairn.store.store import Store

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _share(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read a share of a whole, `5%` or `0.05`."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise click.BadParameter(f"expected a share such as 5% or 0.05, found {text!r}", context, option)
    return share


def _age(context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """Read a length of time, `30d`."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text, re.ASCII)
    if match is None:
        words = f"expected a number and one of s, m, h, d, w, such as 30d, found {text!r}"
        raise click.BadParameter(words, context, option)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@click.command()
@click.argument("revisions", metavar="[REV...]", nargs=-1)
@click.option("--quick", is_flag=True, help="Read no tensors: entries, headers of packs, and trees.")
@click.option(
    "--sample", callback=_share, metavar="P", help="As --quick, and P of all bytes, such as 5%: those read longest ago."
)
@click.option(
    "--max-age", callback=_age, metavar="TIME", help="Do not read packs again that were read within TIME, such as 30d."
)
@click.option("--repair", is_flag=True, help="Mend what can be proven, and set damaged packs aside.")
@click.option(
    "--from",
    "sources",
    metavar="PATH",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Look for good bytes there, too: a copy of the store, another store, a folder or a file; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only say what --repair would mend, and from where.")
@run_option
@json_option
@pass_store
def verify(
    store: Store,
    revisions: tuple[str, ...],
    quick: bool,
    sample: float | None,
    max_age: timedelta | None,
    repair: bool,
    sources: tuple[Path, ...],
    dry_run: bool,
    run: str | None,
    as_json: bool,
) -> None:
    """Check every hash and say what is damaged.

    Every byte is read, or what the commits that are named need; --quick and --sample read less. Each finding names the
    object, the file, what was expected and found, which steps it hits and what to do. A warning is damage by which
    nothing is lost. The exit status is 6 when something that was committed is damaged.

    Nothing is changed without --repair. That takes good bytes from other packs, from the trash, and from --from: copies
    of the store, and files that happen to hold the same tensors. Only what hashes right is used, so nothing is guessed.
    Entries come from a copy of this very store. Damaged files are kept in the store's folder `damaged`.

    \b
    Example:
      $ cairn verify
      $ cairn verify latest best:val_loss:min
      $ cairn verify --sample 5%
      $ cairn verify --repair --from /backup/store --from runs/checkpoint-500
    """
    if quick and (sample is not None or max_age is not None):
        raise click.UsageError("--quick reads no bytes of which --sample and --max-age could be a part")
    if (sources or dry_run) and not repair:
        raise click.UsageError("--from and --dry-run belong to --repair, which is missing")
    level = "quick" if quick else "sample" if sample is not None else "full"
    with moving_bytes("Checking hashes") as bar:
        report = store.verify(
            revisions,
            run=run,
            level=level,
            sample=sample or 1.0,
            max_age=max_age,
            repair=repair,
            sources=sources,
            dry_run=dry_run,
            expect=bar.expect,
            advance=bar.advance,
        )
    if as_json:
        print_json({"ok": report.ok, **plain(report)})
    else:
        say(render_report.report(report))
    if not report.ok:
        raise click.exceptions.Exit(Damaged.exit_code)


@click.command()
@json_option
@pass_store
def doctor(store: Store, as_json: bool) -> None:
    """Say what the file system lacks and what was left behind.

    Looks at what the store stands on: links, locks, mappings, clocks, space, permissions; at leases, leftovers, the
    trash and the index. What it tries out leaves nothing behind; on a store that cannot be written it only looks. The
    exit status is 1 when something keeps the store from working.

    \b
    Example:
      $ cairn doctor
    """
    with working("Looking at the store and its file system"):
        checks = store.doctor()
    if as_json:
        print_json(checks)
    else:
        say(render_report.checks(checks))
    if any(check.status == "problem" for check in checks):
        raise click.exceptions.Exit(CairnError.exit_code)


COMMANDS: tuple[click.Command, ...] = (verify, doctor)
