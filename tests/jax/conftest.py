"""What the tests with jax share with those of the store. Every file skips itself where jax is missing."""

from __future__ import annotations

from tests.cairn.conftest import _no_open_database, store

__all__ = ["_no_open_database", "store"]
