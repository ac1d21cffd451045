"""Commands on what is in a commit: ls, cat, checkout, du."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cairn.cli import render
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import print_json
from cairn.cli.progress import working
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
    """List the components of a commit, or the values below PATH.

    A path is the component and the keys, joined by slashes; keys that would be read wrongly stand in quotes.

    \b
    Example:
      $ cairn ls latest
      $ cairn ls latest model/layers
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
    """Write one value of a commit to the output.

    The value is checked; a tensor comes as .npy, bytes and text as they are, everything else as JSON. On a terminal
    a tensor or bytes are described instead. numpy has no name for types like BF16, so a .npy of one holds its
    elements as raw bytes of the same size. JSON is spelled as in the files that `cairn checkout` writes: a tensor
    inside it stands as {"$tensor": NAME}.

    \b
    Example:
      $ cairn cat latest model/embed.weight -o embed.npy
      $ cairn cat step:300 scheduler
    """
    from cairn.cli import value

    found = store.cat(revision, path, run=run, as_numpy=True)
    if output is None and sys.stdout.isatty():
        say(value.described(path, found))
        return
    with click.open_file(output or "-", "wb") as file:
        value.write(found, file)


@click.command()
@click.argument("revision", metavar="REV")
@click.argument("target", metavar="DEST", type=click.Path(path_type=Path))
@click.option("--only", metavar="COMPONENT", multiple=True, help="Write only this component; may be repeated.")
@click.option("--force", is_flag=True, help="Write into a folder that holds files; those of the same name go.")
@run_option
@json_option
@pass_store
def checkout(
    store: Store, revision: str, target: Path, only: tuple[str, ...], force: bool, run: str | None, as_json: bool
) -> None:
    """Write a commit as files that plain tools read.

    They go into the folder DEST: each component gives NAME.json and, if it has tensors, NAME.safetensors.

    \b
    Example:
      $ cairn checkout latest ./latest
      $ cairn checkout best:val_loss:min ./model --only model
    """
    with working("Writing files"):
        paths = store.checkout(revision, target, run=run, only=only, force=force)
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
        say(render.usage(usage))


COMMANDS: tuple[click.Command, ...] = (ls, cat, checkout, du)
