"""Sizes, columns and escapes."""

from __future__ import annotations

import pytest

from cairn.cli import text


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (1024**2, "1.0 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (1024**4, "1.0 TiB"),
        (5000 * 1024**5, "5000.0 PiB"),
    ],
)
def test_sizes_are_in_binary_units(count: int, shown: str) -> None:
    """The unit changes where the number would need four digits."""
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("pläin 重み", "pläin 重み"),
        ("a\x1b[31m\n\t", "a\\x1b[31m\\n\\t"),
        ("\u202egnp", "\\u202egnp"),
        ("\ud800", "\\ud800"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_what_is_not_printable_is_escaped(raw: str, shown: str) -> None:
    """Escapes, newlines, direction marks and lone surrogates; everything else stays."""
    assert text.safe(raw) == shown


def test_columns_line_up_for_wide_and_combining_characters() -> None:
    """A column is as wide as what the terminal shows."""
    lines = text.table(("a", "b"), [("重み", "1"), ("e\u0301", "2"), ("plain", "3")]).splitlines()
    assert lines == ["a      b", "重み   1", "e\u0301      2", "plain  3"]


def test_empty_columns_are_left_out() -> None:
    """A column where no row has anything is not shown."""
    assert text.table(("a", "b", "c"), [("1", "", "2"), ("10", "", "3")], (0,)) == " a  c\n 1  2\n10  3"


def test_times_are_trimmed_to_seconds_in_utc() -> None:
    """A time of another form stays as it is."""
    assert text.seconds("2026-01-02T03:04:05.678901Z") == "2026-01-02T03:04:05Z"
    assert text.seconds("yesterday") == "yesterday"


def test_messages_are_cut_to_their_first_line() -> None:
    """A mark says that there is more."""
    assert text.first_line("one\ntwo") == "one …"
    assert text.first_line("\n one \n") == "one"
    assert text.first_line(None) == ""
