"""Commands on what is in a commit: ls, cat, checkout, du."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cairn.cli import render, render_space
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import print_json
from cairn.cli.progress import moving_bytes, working
from cairn.cli.text import note, say

if TYPE_CHECKING:
    from cairn.store.store import Store


@click.command()
@click.argument("revision", metavar="REV")
@click.argument("path", metavar="[PATH]", required=False)
@run_option
@json_option
@pass_store
def ls(store: Store, revision: str, path: str | None, run: str | None, as_json: bool) -> None:
    """List the components of a commit, or what is below PATH.

    A path is the component and the keys, joined by slashes; keys that would be read wrongly stand in quotes. For the
    files of a committed folder the component may be left out. A file is listed with the tensors inside it.

    \b
    Example:
      $ cairn ls latest
      $ cairn ls latest model/layers
      $ cairn ls step:500 model.safetensors
    """
    items = store.ls(revision, path, run=run)
    if as_json:
        print_json(items)
    elif not items:
        note("This commit has no components.")
    else:
        say(render.components(items) if path is None else render.items(items))


@click.command()
@click.argument("revision", metavar="REV")
@click.argument("path", metavar="PATH")
@click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Write to FILE; `-` is stdout, always raw.")
@run_option
@pass_store
def cat(store: Store, revision: str, path: str, output: str | None, run: str | None) -> None:
    """Write one value or file of a commit to the output.

    The value is checked; a tensor comes as .npy, files, bytes and text as they are, everything else as JSON. A path may
    lead on into a file, to one of its tensors. On a terminal tensors, bytes, and files that are no text are described
    instead. numpy has no name for types like BF16, so a .npy of one holds its elements as raw bytes of the same size.
    JSON is spelled as in the files that `cairn checkout` writes: a tensor inside it stands as {"$tensor": NAME}.

    \b
    Example:
      $ cairn cat latest model/embed.weight -o embed.npy
      $ cairn cat step:300 scheduler
      $ cairn cat step:500 config.json
      $ cairn cat step:500 model.safetensors/lm_head.weight -o head.npy
    """
    from cairn.cli import value

    found = store.cat(revision, path, run=run, as_numpy=True)
    value.check(path, found)
    if output is None and sys.stdout.isatty():
        say(value.described(path, found))
        return
    with click.open_file(output or "-", "wb") as file:
        value.write(found, file)


@click.command()
@click.argument("revision", metavar="REV")
@click.argument("target", metavar="DEST", type=click.Path(path_type=Path))
@click.option(
    "--only", metavar="PATH", multiple=True, help="Write only this component, file or folder; may be repeated."
)
@click.option("--force", is_flag=True, help="Replace a folder that holds files; only what was committed is in it then.")
@run_option
@json_option
@pass_store
def checkout(
    store: Store, revision: str, target: Path, only: tuple[str, ...], force: bool, run: str | None, as_json: bool
) -> None:
    """Write a commit as files.

    The folder DEST becomes a committed folder, byte for byte, with its links and permissions. Components that were
    committed from Python give NAME.json and, if they have tensors, NAME.safetensors, for plain tools to read. DEST is
    complete or as it was before. What is written is a copy, never a link into the store.

    \b
    Example:
      $ cairn checkout step:500 ./checkpoint-500
      $ cairn checkout latest ./part --only config.json --only tokenizer
      $ cairn checkout best:val_loss:min ./model --only model
    """
    with moving_bytes("Writing files") as bar:
        paths = store.checkout(
            revision, target, run=run, only=only, force=force, expect=bar.expect, advance=bar.advance
        )
    if as_json:
        print_json(paths)
    else:
        say(render.checked_out(paths, target))


@click.command()
@click.argument("revisions", metavar="[REV...]", nargs=-1)
@run_option
@json_option
@pass_store
def du(store: Store, revisions: tuple[str, ...], run: str | None, as_json: bool) -> None:
    """Say what commits and the whole store weigh.

    All commits that are kept are listed, unless some are named. Own bytes are those that no other kept commit
    needs. What a drop frees are the packs that only this commit needs; rewriting packs would free all of its own
    bytes.

    \b
    Example:
      $ cairn du
      $ cairn du latest best:val_loss:min
    """
    with working("Measuring"):
        usage = store.du(revisions, run=run)
    if as_json:
        print_json(usage)
    else:
        say(render_space.usage(usage))


COMMANDS: tuple[click.Command, ...] = (ls, cat, checkout, du)
