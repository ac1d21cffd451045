"""What several test files of the trainer share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TEST_FILES = Path(__file__).parent


@pytest.fixture
def load_tests() -> Callable[[str], ModuleType]:
    """Gives a private copy of a test file, so that a mutant can be put under its very tests."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"mutated_{name}", TEST_FILES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
