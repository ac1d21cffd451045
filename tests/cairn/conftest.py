"""What the tests of the store share: a fresh store, and no database left open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import cairn
from cairn.objects.index import Index


@pytest.fixture(autouse=True)
def _no_open_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every index that a test opened."""
    connections: list[sqlite3.Connection] = []
    connect = Index._connect

    def connected(index: Index) -> sqlite3.Connection:
        connections.append(connect(index))
        return connections[-1]

    monkeypatch.setattr(Index, "_connect", connected)
    yield
    for connection in connections:
        connection.close()


@pytest.fixture
def store(tmp_path: Path) -> cairn.Store:
    """A new, empty store."""
    return cairn.init(tmp_path / "store")
