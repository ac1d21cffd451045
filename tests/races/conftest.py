"""What several races share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.races.scenes import Builder, Scene


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Builder], Scene]:
    """Gives the store that a builder makes, built once and copied for each try."""
    built: dict[Builder, Scene] = {}

    def give(builder: Builder) -> Scene:
        if builder not in built:
            built[builder] = Scene(tmp_path_factory.mktemp("scene"), builder)
        return built[builder]

    return give
