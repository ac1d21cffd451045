"""The decisive moments of the protocol, one by one, and gc without its lock, which the protocol must not need."""

from __future__ import annotations

import pytest
from tests.races.protocol import RACES, Scenes


# Those of the power are among the cuts.
@pytest.mark.parametrize("name", [name for name in RACES if not name.startswith("power")])
@pytest.mark.usefixtures("no_gc_lock")
def test_nothing_is_lost_at_the_decisive_moment(scene: Scenes, name: str) -> None:
    """Each race ends with everything that was published whole."""
    RACES[name](scene)
