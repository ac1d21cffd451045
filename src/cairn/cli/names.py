"""Commands on names: tag, run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cairn.cli import render
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import print_json
from cairn.cli.text import note, say

if TYPE_CHECKING:
    from cairn.store.store import Store


@click.command()
@click.argument("name", required=False)
@click.argument("revision", metavar="[REV]", required=False)
@click.option("--delete", is_flag=True, help="Delete the tag; the commit stays in the history.")
@run_option
@json_option
@pass_store
def tag(store: Store, name: str | None, revision: str | None, delete: bool, run: str | None, as_json: bool) -> None:
    """Set, delete or list tags.

    Without REV the newest commit is tagged; without NAME all tags are listed. A tagged commit is always kept.
    Setting a tag that exists moves it.

    \b
    Example:
      $ cairn tag paper best:val_loss:min
      $ cairn tag
      $ cairn tag paper --delete
    """
    if name is None:
        if delete:
            raise click.UsageError("--delete needs the NAME of a tag")
        _list_tags(store, as_json)
    elif delete:
        if revision is not None:
            raise click.UsageError("--delete takes no REV")
        store.delete_tag(name)
        _done({"deleted": name}, f"Deleted tag {name}", as_json)
    else:
        commit = store.tag(name, revision or "latest", run=run)
        _done(commit, f"Tag {name} names {render.commit(commit)}", as_json)


def _list_tags(store: Store, as_json: bool) -> None:
    tags = store.tags()
    if as_json:
        print_json(list(tags.values()))
    elif tags:
        say(render.tags(tags))
    else:
        note("No tags yet.")


@click.group()
def run() -> None:
    """List, create, rename, delete and undelete runs.

    \b
    Example:
      $ cairn run list
      $ cairn run create lower-lr step:300
    """


@run.command(name="list")
@click.option("--deleted", is_flag=True, help="List the runs that were deleted instead.")
@json_option
@pass_store
def list_runs(store: Store, deleted: bool, as_json: bool) -> None:
    """List the runs, and the attempts that training left behind.

    Each with the number of commits on its line, those of an attempt without what it shares with the run, and its
    newest commit. Attempts stay until they are dropped.

    \b
    Example:
      $ cairn run list
      $ cairn log main/attempt-1
    """
    if deleted:
        _list_deleted(store, as_json)
        return
    found = [store.run(name).summary() for name in store.runs()]
    if as_json:
        print_json(found)
    elif found:
        say(render.runs(found))
    else:
        note("No runs yet.")


def _list_deleted(store: Store, as_json: bool) -> None:
    names = store.deleted_runs()
    if as_json:
        print_json(names)
    elif names:
        say("\n".join(names))
    else:
        note("No run was deleted.")


@run.command()
@click.argument("name")
@click.argument("revision", metavar="REV")
@json_option
@pass_store
def create(store: Store, name: str, revision: str, as_json: bool) -> None:
    """Make a run that starts from a commit.

    \b
    Example:
      $ cairn run create lower-lr main@300
    """
    origin = store.commit(revision)
    tip = store.create_run(name, origin.id).tip
    _done({"name": name, "tip": tip}, f"Run {name} starts from {render.commit(origin)}", as_json)


@run.command()
@click.argument("old")
@click.argument("new")
@json_option
@pass_store
def rename(store: Store, old: str, new: str, as_json: bool) -> None:
    """Give a run another name; the old one becomes free.

    \b
    Example:
      $ cairn run rename main baseline
    """
    store.rename_run(old, new)
    _done({"renamed": old, "name": new}, f"Run {old} is called {new} now.", as_json)


@run.command()
@click.argument("name")
@json_option
@pass_store
def delete(store: Store, name: str, as_json: bool) -> None:
    """End a run.

    Its content goes with the next gc, except what a tag or another run needs.

    \b
    Example:
      $ cairn run delete lower-lr
    """
    store.delete_run(name)
    hint = f"`cairn gc` frees the space; until then `cairn run undelete {name}` takes it back"
    _done({"deleted": name}, f"Deleted run {name}; {hint}.", as_json)


@run.command()
@click.argument("name")
@click.option("--as", "new", metavar="NEW", help="Another name for it, where its own is in use again.")
@json_option
@pass_store
def undelete(store: Store, name: str, new: str | None, as_json: bool) -> None:
    """Bring a deleted run back, while its content is there.

    \b
    Example:
      $ cairn run undelete lower-lr
      $ cairn run undelete main --as main-before
    """
    back = store.undelete_run(name, new=new)
    tip = back.tip
    where = f"Run {back.name} is back at {render.commit(tip) if tip else 'no commit'}"
    _done({"name": back.name, "tip": tip}, where, as_json)


def _done(document: object, message: str, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        say(message)


COMMANDS: tuple[click.Command, ...] = (tag, run)
