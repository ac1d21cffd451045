"""Every command explains itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import click
import pytest

from cairn.cli.main import cli

Call = Callable[..., tuple[int, str, str]]


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Walk all commands, groups included."""
    for name, command in group.commands.items():
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))


ALL = list(commands(cli))
IDS = [" ".join(path) for path, _ in ALL]


@pytest.mark.parametrize(("path", "command"), ALL, ids=IDS)
def test_help_says_what_a_command_does_with_an_example(
    cairn: Call, path: tuple[str, ...], command: click.Command
) -> None:
    """A sentence, and an example of this very command."""
    for flag in ("--help", "-h"):
        status, out, _ = cairn(*path, flag)
        assert status == 0
    assert "  Example:\n    $ cairn " + " ".join(path) in out
    summary = command.get_short_help_str(limit=200)
    assert summary.endswith(".")
    assert "..." not in command.get_short_help_str(limit=66)


@pytest.mark.parametrize(("path", "command"), ALL, ids=IDS)
def test_examples_have_arguments_that_the_command_takes(path: tuple[str, ...], command: click.Command) -> None:
    """Every example line can be parsed."""
    lines = [line.strip()[2:] for line in (command.help or "").splitlines() if line.strip().startswith("$ cairn ")]
    assert lines
    for line in lines:
        parent: click.Command = cli
        words = shlex.split(line)[1:]
        context = click.Context(cli, info_name="cairn")
        while isinstance(parent, click.Group):
            name, found, words = parent.resolve_command(context, words)
            assert name is not None
            assert found is not None
            parent = found
        parent.make_context(name, list(words), parent=context)


@pytest.mark.parametrize(("path", "command"), ALL, ids=IDS)
def test_every_option_has_help(path: tuple[str, ...], command: click.Command) -> None:
    """An option without words is one that nobody finds."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} of {' '.join(path)}"


def test_the_groups_help_lists_commands_revisions_and_exit_statuses(cairn: Call) -> None:
    """One page says how to name a commit and what every exit status means."""
    status, out, _ = cairn("--help")
    assert status == 0
    for path, _ in ALL:
        assert f"\n  {path[0]} " in out
    for number in (0, 1, 2, 3, 4, 5, 6, 130):
        assert f"\n    {number:<3}  " in out
    for word in ("step:N", "best:METRIC", "~N", "CAIRN_STORE", '"NaN"', "[id, bytes]"):
        assert word in out
    assert "..." not in out.split("Commands:")[1]
