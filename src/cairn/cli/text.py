"""Text for terminals: nothing that a name or message holds can move the cursor, and columns line up."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

import click

SHORT = 12
"""Digits of an id that people are shown."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def safe(text: str) -> str:
    """Return the text with every character that is not plainly printable spelled as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def first_line(text: str | None) -> str:
    """Return the first line of a message, made safe."""
    lines = (text or "").strip().splitlines()
    return safe(lines[0]) + (" …" if len(lines) > 1 else "") if lines else ""


def short(commit_id: str) -> str:
    """Return the digits of an id that people are shown."""
    return commit_id[:SHORT]


def size(count: int) -> str:
    """Spell a number of bytes in binary units."""
    if count < 1024:
        return f"{count} B"
    amount, power = count / 1024, 0
    while amount >= 1023.95 and power < len(_UNITS) - 1:
        amount, power = amount / 1024, power + 1
    return f"{amount:.1f} {_UNITS[power]}"


def count(number: int, one: str, many: str | None = None) -> str:
    """Spell a number of things."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def seconds(time: str) -> str:
    """Trim a stored time to seconds; it stays in UTC."""
    whole, dot, _ = time.partition(".")
    return safe(whole + "Z" if dot and time.endswith("Z") else time)


def number(value: float | int) -> str:
    """Spell a metric for a narrow column."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Line cells up under their heads, columns in `right` to the right; on a terminal lines are cut to its width."""
    lines = [tuple(head), *map(tuple, rows)]
    kept = [at for at in range(len(head)) if any(line[at] for line in lines[1:])]
    widths = {at: max(_width(line[at]) for line in lines) for at in kept}
    limit = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
    return "\n".join(_cut(_line(line, widths, right), limit) for line in lines)


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Line up names and values; a value of several lines is indented, an empty one left out."""
    shown = [(name, value) for name, value in rows if value]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name:{width}}  {value.replace(chr(10), chr(10) + ' ' * (width + 2))}" for name, value in shown)


def say(message: str) -> None:
    """Print a line of output."""
    if message:
        click.echo(message)


def note(message: str) -> None:
    """Print a remark beside the output."""
    click.echo(message, err=True)


def _line(cells: Sequence[str], widths: dict[int, int], right: Sequence[int]) -> str:
    padded = []
    for at, width in widths.items():
        space = " " * (width - _width(cells[at]))
        padded.append(space + cells[at] if at in right else cells[at] + space)
    return "  ".join(padded).rstrip()


def _cut(line: str, limit: int | None) -> str:
    if limit is None or _width(line) <= limit:
        return line
    while line and _width(line) > limit - 1:
        line = line[:-1]
    return line + "…"


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )
