"""What every command shares: which store it works on, and the options `--run` and `--json`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

from cairn.errors import StoreNotFound

if TYPE_CHECKING:
    from cairn.store.store import Store

P = ParamSpec("P")
R = TypeVar("R")
Command = TypeVar("Command", bound=Callable[..., object])


def run_option(command: Command) -> Command:
    """Let a command be told which run to look in."""
    return click.option("--run", metavar="NAME", help="The run to work on; needed when there are several.")(command)


def json_option(command: Command) -> Command:
    """Let a command print JSON instead of text for people."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document; see `cairn --help`.")(command)


def pass_store(command: Callable[Concatenate[Store, P], R]) -> Callable[P, R]:
    """Give a command the store as its first argument, and close it when the command is done."""

    @functools.wraps(command)
    def with_store(*args: P.args, **options: P.kwargs) -> R:
        context = click.get_current_context()
        store: Store = context.with_resource(_open(context.obj))
        return command(store, *args, **options)

    return with_store


def _open(named: Path | None) -> Store:
    """Open the store named, else the nearest one. Raises StoreNotFound."""
    import cairn
    from cairn.store.config import find

    path = named or find(Path.cwd())
    if path is None:
        raise StoreNotFound(
            f"no store at or above {Path.cwd()}: make one with `cairn init`, or name one with --store or CAIRN_STORE"
        )
    return cairn.open(path, cache=_cache())


def _cache() -> Path:
    """Where the index of a store on a network file system may lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cairn"
