"""The memory for snapshots: what is copied into it, and how much of it there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cairn.errors import CairnError
from cairn.state.encode import Leaf, sketch
from cairn.state.staging import Staging


def leaves(state: dict[str, Any]) -> list[Leaf]:
    """The leaves of a component."""
    return sketch({"model": state}).components["model"]


def address(leaf: Leaf) -> int:
    """Where the bytes of a leaf lie."""
    return int(np.frombuffer(leaf.data(), np.uint8).__array_interface__["data"][0])


def test_what_nobody_can_change_is_not_copied() -> None:
    """Text and bytes are what they are; one memory under two names is one copy."""
    tied = np.arange(1000.0)
    memory = Staging()
    found = leaves({"a": tied, "b": tied, "text": "x" * 70_000, "bytes": b"x" * 70_000})
    memory.take(found)
    assert [leaf.nbytes for leaf in found] == [8000, 70_000, 70_000]
    assert memory.nbytes < 16_000
    assert all(leaf.is_private for leaf in found)


def test_the_same_memory_is_used_again() -> None:
    """For a state of the same shape, and for one that grew a little."""
    memory = Staging()
    first, again, larger = (leaves({"w": np.zeros(size)}) for size in (10_000, 10_000, 10_100))
    memory.take(first)
    held = memory.nbytes
    memory.take(again)
    memory.take(larger)
    assert address(first[0]) == address(again[0]) == address(larger[0])
    assert memory.nbytes == held


def test_large_leaves_begin_at_pages_and_small_ones_at_lines() -> None:
    """What may be written from where it lies is aligned for that; the rest is packed."""
    found = leaves({f"w{size}": np.zeros(size, "u1") for size in (1, 63, 64, 65, 4095, 4096, 4097, 10, 5000)})
    Staging().take(found)
    start = address(found[0])
    assert start % 4096 == 0
    assert [(address(leaf) - start) % 64 for leaf in found] == [0] * 9
    assert [(address(leaf) - start) % 4096 for leaf in found if leaf.nbytes >= 4096] == [0] * 3
    assert address(found[1]) - start == 64


def test_memory_grows_at_once_and_is_given_back_after_a_while() -> None:
    """A large state now and then does not need fresh memory each time; one that never comes again is not paid for."""
    memory = Staging()
    memory.take(leaves({"w": np.zeros(1000)}))
    memory.take(leaves({"w": np.zeros(100_000)}))
    held = memory.nbytes
    assert held >= 800_000
    for _ in range(3):
        for _ in range(7):
            memory.take(leaves({"w": np.zeros(1000)}))
        memory.take(leaves({"w": np.zeros(100_000)}))
        assert memory.nbytes == held
    for _ in range(8):
        memory.take(leaves({"w": np.zeros(1000)}))
    assert memory.nbytes < 10_000


def test_a_failed_copy_freezes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of several threads raises is raised, after the others have ended."""
    found = leaves({f"w{number}": np.zeros((3000, 3000))[:, ::2] for number in range(4)})

    def copy(leaf: Leaf, target: object) -> None:
        raise CairnError("the device is gone")

    monkeypatch.setattr(Leaf, "copy_to", copy)
    with pytest.raises(CairnError, match="the device is gone"):
        Staging().take(found, 2)
    assert not any(leaf.is_private for leaf in found)


def test_a_snapshot_without_memory_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In words that say how much was asked for and what to do."""

    def no_memory(*arguments: object) -> object:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("cairn.state.staging.mmap.mmap", no_memory)
    with pytest.raises(CairnError, match="no memory for a snapshot of 80 bytes"):
        Staging().take(leaves({"w": np.zeros(10)}))
