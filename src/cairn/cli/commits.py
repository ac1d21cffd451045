"""Commands that make commits of files: commit, import."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cairn.cli import commit_text
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import print_json
from cairn.cli.progress import moving_bytes
from cairn.cli.text import note, say
from cairn.errors import Conflict, UsageError
from cairn.history.commit import check_metrics

if TYPE_CHECKING:
    from cairn.store.store import Store

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_FLOAT = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)


def _metrics(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, float | int]:
    found: dict[str, float | int] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not (_INTEGER.fullmatch(value) or _FLOAT.fullmatch(value)):
            raise click.BadParameter(f"expected a name, = and a number, as in val_loss=0.31, found {text!r}")
        if name in found:
            raise click.BadParameter(f"expected each metric once, found {name!r} again")
        found[name] = int(value) if _INTEGER.fullmatch(value) else float(value)
    try:
        return check_metrics(found)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--step", type=click.IntRange(min=0), metavar="N", help="The training step that this is.")
@click.option("--epoch", type=click.IntRange(min=0), metavar="N", help="The epoch that this is.")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME=NUMBER", callback=_metrics, help="A metric; may be repeated."
)
@click.option("-m", "--message", metavar="TEXT", help="Words to remember it by.")
@click.option("--dry-run", is_flag=True, help="Only say what would be new and what shared.")
@run_option
@json_option
@pass_store
def commit(
    store: Store,
    path: Path,
    step: int | None,
    epoch: int | None,
    metrics: dict[str, float | int],
    message: str | None,
    dry_run: bool,
    run: str | None,
    as_json: bool,
) -> None:
    """Commit a folder or a file as it is.

    It becomes the component `files`. What the store has already is not stored again: not a file, and of the files of
    safetensors, torch, numpy and llama.cpp not a tensor. Links are kept as links, and a store inside the folder is left
    out. A step that the run has with this very content is left as it is.

    \b
    Example:
      $ cairn commit checkpoint-500 --step 500 --metric eval_loss=0.31
      $ cairn commit model.safetensors -m "as released" --dry-run
    """
    from cairn.files.scan import files_of, folder

    handle = store.default_run(run)
    with moving_bytes("Reading files") as bar:
        content = folder(path)
        bar.expect(sum(file.size for file in files_of(content)))
        state = {"files": content}
        plan = handle.plan(state, step=step, advance=bar.advance) if dry_run else None
        if plan is None:
            handle.commit(state, step=step, epoch=epoch, metrics=metrics, message=message, advance=bar.advance)
    if as_json:
        print_json(plan or handle.last)
    elif plan is not None:
        say(commit_text.plan(handle.name, plan))
    elif handle.last is not None:
        say(commit_text.published(handle.last))
        lost = commit_text.not_recorded(handle.last, metrics, message)
        if lost:
            note(lost)
    if plan is not None and plan.conflict is not None:
        raise click.exceptions.Exit(Conflict.exit_code)


@click.command(name="import")
@click.argument("folder", metavar="RUNFOLDER", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would be committed.")
@run_option
@json_option
@pass_store
def import_(store: Store, folder: Path, dry_run: bool, run: str | None, as_json: bool) -> None:
    """Commit all checkpoints in a run's folder.

    These are the folders and files in RUNFOLDER that are called like checkpoint-500, step_500, global_step500,
    iter_0000500 or epoch=3-step=1200.ckpt, in the order of their steps. Metrics and epoch come from trainer_state.json,
    else from the name. What is still being written is left out. Steps that the run has with the same content are passed
    over, so the same command goes on where it was cut short. Nothing is removed from RUNFOLDER.

    \b
    Example:
      $ cairn import outputs/llama-sft
      $ cairn import lightning_logs/version_0/checkpoints --run version-0 --dry-run
    """
    with moving_bytes("Reading checkpoints") as bar:
        made = store.default_run(run).import_folder(folder, dry_run=dry_run, expect=bar.expect, advance=bar.advance)
    if as_json:
        print_json(made)
    else:
        say(commit_text.imported(made, dry_run))
        for remark in commit_text.remarks(made):
            note(remark)
    if any(checkpoint.conflict for checkpoint in made.checkpoints):
        raise click.exceptions.Exit(Conflict.exit_code)


COMMANDS: tuple[click.Command, ...] = (commit, import_)
