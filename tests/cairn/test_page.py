"""`store/FORMAT.md` states the numbers, names and kinds that the code has."""

from __future__ import annotations

import re

import pytest
from tests.cairn.golden import PAGE

from cairn import canonical
from cairn.history import names
from cairn.history.replay import Replay
from cairn.history.run import MAX_RENAMES
from cairn.io import entry, leases
from cairn.objects import cutting, gather, pack
from cairn.state import dtypes, nodes, syntax, trees
from cairn.store import collecting, compaction, config


def section(title: str) -> str:
    """Return the text of a section or subsection."""
    found = re.search(rf"^#+ {re.escape(title)}.*?(?=^##)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[0]


@pytest.mark.parametrize(
    ("title", "words", "value"),
    [
        ("4.", "`[A-Za-z0-9][A-Za-z0-9._-]{0,99}`", trees.COMPONENT_NAME.pattern == "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"),
        ("5.", "2^53", canonical.MAX_INT == 2**53),
        ("5.", "at most 500 containers", canonical.MAX_NESTING == 500),
        ("5.", "the last 78 bytes", canonical.SEAL_BYTES == 78),
        ("6.", "`version`: 1", config.VERSION == 1),
        ("7.", "| `format` | 1 |", entry.FORMAT == 1),
        ("7.1", "More than 50", MAX_RENAMES == 50),
        ("8.", "| `cairn.pack` | `1` |", pack.FORMAT == "1"),
        (
            "8.",
            "multiple of 64 bytes, and of 4096",
            (pack.ALIGN, pack.ALIGN_LARGE, pack.LARGE_BYTES) == (64, 4096, 2**20),
        ),
        ("8.", "4 GiB for a file", pack.MAX_BYTES == 2**32),
        ("8.", "100 000 000 bytes for a header", pack.MAX_HEADER == 100_000_000),
        ("8.", "500 000 blobs", pack.MAX_BLOBS == 500_000),
        ("8.", "16 MiB or more are new", gather.OWN_PACK_BYTES == 2**24),
        ("9.", "up to 2^26 bytes", cutting.WHOLE_BYTES == 2**26),
        ("9.", "for every 2^24 bytes", cutting.PIECE_BYTES == 2**24),
        ("10.", "at most 2^24 bytes", trees.MAX_TREE_BYTES == 2**24),
        ("10.2", "a string of at most 65 536 bytes", trees.INLINE_TEXT == 65_536),
        ("10.2", "at most 2^20 characters", trees.MAX_INT_TEXT == 2**20),
        ("10.2", "DATA of at most 4096 bytes", trees.INLINE_BYTES == 4096),
        ("10.5", "longer than 65 536 bytes", trees.SPLIT_BYTES == 65_536),
        ("10.5", "longer than 2^20 bytes", trees.PART_BYTES == 2**20),
        ("10.6", "At most 100 containers", trees.MAX_DEPTH == 100),
        ("10.6", "16 tuples inside each other", trees.MAX_KEY_DEPTH == 16),
        ("10.6", "at most 64 dimensions", trees.MAX_DIMENSIONS == 64),
        ("10.6", "at most 2^40 bytes", trees.MAX_DATA_BYTES == 2**40),
        ("10.6", "at most 2^28 bytes", trees.MAX_EXPANDED_BYTES == 2**28),
        ("10.4", "1 to 255 bytes", nodes.MAX_NAME_BYTES == 255),
        ("10.4", "its nine permission bits", nodes.MAX_MODE == 0o777),
        ("11.", "less than 24 hours", leases.EXPIRY_SECONDS == 24 * 3600),
        ("11.", "space (1 MiB", config.RESERVE_BYTES == 2**20),
        ("13.", "24 hours by the store's clock", collecting.NETWORK_SECONDS == 24 * 3600),
        ("13.", "less than 1 MiB that is needed", compaction.SMALL_BYTES == 2**20),
        ("13.", "up to 16 MiB and 10 000 blobs", (compaction.MERGED_BYTES, compaction.MERGED_BLOBS) == (2**24, 10_000)),
    ],
)
def test_the_page_states_the_numbers_of_the_code(title: str, words: str, value: bool) -> None:
    """A number that changes in the code is a change of the format, and stands in the page."""
    assert re.sub(r"\s+", " ", words) in re.sub(r"\s+", " ", section(title))
    assert value


def test_the_page_lists_what_the_code_knows() -> None:
    """Operations, kinds of values, element types and reserved names are those of the code, no more and no less."""
    operations = {name[1:-6] for name in vars(Replay) if name.endswith("_entry")}
    assert set(re.findall(r"^\| `(\w+)` \|", section("7.1"), re.MULTILINE)) - {"op"} == operations
    rows = re.findall(r"^\| (`\$[^|]*) \|", section("10.2"), re.MULTILINE)
    kinds = set(re.findall(r"\$\w+", " ".join(rows)))
    assert kinds == set(syntax._KINDS)
    types = set(re.findall(r"`(\w+)`", section("10.3"))) - {"D", "25s"}
    assert types == {*dtypes.ITEMSIZES, "F4"}
    words = re.search(r"one of `([a-z ]+)`", section("4."))
    assert words is not None
    assert set(words[1].split()) == names.RESERVED
