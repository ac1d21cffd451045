"""What several races share."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from tests.races.scenes import Builder, Scene, build, build_with_copies, build_with_needed_trash, build_with_trash

import cairn.store
from cairn.io import leases

# Operations are imported where they are used. One that is first imported while a test has replaced what it imports
# would keep the replacement for ever.
for _module in pkgutil.iter_modules(cairn.store.__path__, "cairn.store."):
    importlib.import_module(_module.name)


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Builder], Scene]:
    """Gives the store that a builder makes, built once and copied for each try."""
    built: dict[Builder, Scene] = {}

    def give(builder: Builder) -> Scene:
        if builder not in built:
            built[builder] = Scene(tmp_path_factory.mktemp("scene"), builder)
        return built[builder]

    return give


@pytest.fixture
def no_gc_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets several gcs run at the same time: the lock spares them work, it is not what keeps content."""
    monkeypatch.setattr(leases, "sole_gc", lambda disk, layout: nullcontext())


@pytest.fixture
def built(scene: Callable[[Builder], Scene]) -> None:
    """Makes sure that every store was built before a test breaks the library."""
    for builder in (build, build_with_trash, build_with_needed_trash, build_with_copies):
        scene(builder)
