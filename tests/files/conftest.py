"""What the tests of folders share: a store, and a user who is not root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cairn

NOBODY = 65534


@pytest.fixture
def store(tmp_path: Path) -> Iterator[cairn.Store]:
    """A new, empty store."""
    with cairn.init(tmp_path / "store") as made:
        yield made


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """A folder of a user whom permissions hold for, and that user's rights while the test runs."""
    place = Path(tempfile.mkdtemp(prefix="cairn-user-"))
    root = os.geteuid() == 0
    if root:
        os.chown(place, NOBODY, -1)
        os.seteuid(NOBODY)
    try:
        yield place
    finally:
        if root:
            os.seteuid(0)
        for folder, _, _ in os.walk(place):
            Path(folder).chmod(0o700)
        shutil.rmtree(place)
