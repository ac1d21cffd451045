"""README.md names every command and explains every exit status."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cairn.cli.main import cli

README = Path(__file__).parents[2] / "README.md"


def leaves(group: click.Group, before: str = "cairn") -> Iterator[str]:
    """Walk the commands that do something, spelled as they are typed."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before} {name}")
        else:
            yield f"{before} {name}"


def documented() -> set[str]:
    """The commands in the rows of README.md's tables: two words, or three for a command of a group."""
    found = set()
    for line in README.read_text().splitlines():
        if line.startswith("|"):
            for part in line.split("`")[1::2]:
                words = part.split()
                found.update({" ".join(words[:2]), " ".join(words[:3])})
    return found


@pytest.mark.parametrize("command", sorted(leaves(cli)))
def test_every_command_is_in_the_command_table(command: str) -> None:
    """A command that is not in the table is one that nobody finds."""
    assert command in documented()


@pytest.mark.parametrize(
    "option", [name for parameter in cli.params if parameter.expose_value for name in parameter.opts]
)
def test_every_global_option_is_explained(option: str) -> None:
    """Global options stand in the text."""
    assert option in README.read_text()


def test_every_documented_command_exists() -> None:
    """The table does not promise what is not there."""
    known = set(leaves(cli)) | {"cairn"}
    typed = {part for part in documented() if part.startswith("cairn ")}
    first = {" ".join(part.split()[:2]) for part in typed}
    assert first <= {" ".join(name.split()[:2]) for name in known}
