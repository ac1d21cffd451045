"""The races notice: with a rule of the protocol broken, the race that the rule is for is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.races.mutations import MUTATIONS
from tests.races.protocol import Scenes

from cairn.errors import CairnError


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.usefixtures("no_gc_lock", "built")
def test_a_broken_rule_is_noticed(scene: Scenes, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The check that passes for the library as it is fails when it is mutated."""
    mutation = MUTATIONS[name]
    mutation.apply(monkeypatch)
    with pytest.raises((AssertionError, CairnError)):
        mutation.race(scene)


def test_the_page_lists_every_mutation() -> None:
    """`tests/README.md` has a row for each mutation, with the race that fails, and no other rows."""
    page = Path(__file__).parents[1].joinpath("README.md").read_text().partition("### Mutations")[2].partition("\n#")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert rows == [f"| {name} | {m.rule} | `{m.race.__name__}` |" for name, m in MUTATIONS.items()]
