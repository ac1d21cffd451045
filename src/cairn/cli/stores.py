"""Commands on a store as such: init, reindex."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cairn.cli import text
from cairn.cli.context import json_option, pass_store
from cairn.cli.jsonout import print_json
from cairn.cli.progress import working
from cairn.cli.text import say

if TYPE_CHECKING:
    from cairn.store.store import Store


@click.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@json_option
@click.pass_obj
def init(named: Path | None, path: Path | None, as_json: bool) -> None:
    """Make a store in a new or empty folder.

    That is PATH, else --store, else ./store.

    \b
    Example:
      $ cairn init
      $ cairn init /data/checkpoints
    """
    import cairn

    place = path or named or Path("store")
    with cairn.init(place) as store:
        if as_json:
            print_json({"path": place, "id": store.id})
        else:
            say(f"Made a store in {text.safe(str(place))}")


@click.command()
@json_option
@pass_store
def reindex(store: Store, as_json: bool) -> None:
    """Build the index anew from packs and entries.

    The index only makes things faster: every answer is the same without it.

    \b
    Example:
      $ cairn reindex
    """
    with working("Reading packs"):
        packs = store.reindex()
    if as_json:
        print_json({"packs": packs})
    else:
        say(f"Indexed {text.count(packs, 'pack')}.")


COMMANDS: tuple[click.Command, ...] = (init, reindex)
