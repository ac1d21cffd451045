"""Checkout copies bytes before it checks them; what it puts in place is right all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.cairn import folders

import cairn

SIZES = (3, 1 << 16, (9 << 20) + 5, (65 << 20) + 3)
"""Bytes: within a buffer, across buffers, and in pieces."""


def arrays(seed: int = 0) -> dict[str, Any]:
    """Arrays of all sizes."""
    generator = np.random.default_rng(seed)
    return {f"a{size}": np.frombuffer(generator.bytes(size), "u1") for size in SIZES}


def folder(path: Path) -> Path:
    """A folder with a file of each size."""
    path.mkdir()
    for name, array in arrays(1).items():
        (path / name).write_bytes(array.tobytes())
    np.savez(path / "both.npz", **arrays(1))
    return path


def commit(store: cairn.Store, source: Path, step: int) -> None:
    """Commit arrays and files."""
    store.run().commit({"model": arrays(), "files": cairn.folder(source)}, step=step)


def check(store: cairn.Store, source: Path, target: Path) -> None:
    """Check a commit out and compare every byte."""
    told: list[int] = []
    done: list[int] = []
    store.checkout("step:1", target, expect=told.append, advance=done.append)
    for name, array in load_file(target / "model.safetensors").items():
        assert np.array_equal(array, arrays()[name]), name
    for file in source.iterdir():
        assert (target / "files" / file.name).read_bytes() == file.read_bytes(), file.name
    assert sum(done) >= sum(told) > 0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder that is committed."""
    return folder(tmp_path / "source")


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read, as on a network file system"])
def test_every_byte_comes_back(store: cairn.Store, source: Path, tmp_path: Path, *, mapped: bool) -> None:
    """Files of any size, tensors in pieces, and what is in between, past the page cache or through it."""
    commit(store, source, 1)
    with cairn.open(store.path) as again:
        again._core.blobs.mapped = mapped
        check(again, source, tmp_path / "out")


def damage(store: cairn.Store) -> None:
    """Flip a bit in the last data of each large pack."""
    for pack in folders.packs(store.path):
        data = bytearray(pack.read_bytes())
        if len(data) > 1 << 20:
            data[folders.head(pack)[2] + (1 << 20)] ^= 1
            folders.write(pack, bytes(data))


def test_nothing_damaged_is_put_in_place(store: cairn.Store, source: Path, tmp_path: Path) -> None:
    """A wrong bit in a source is found although it was copied first; the target does not appear, nothing is left."""
    commit(store, source, 1)
    damage(store)
    before = sorted(tmp_path.iterdir())
    for only in (["model"], ["files"], []):
        with (
            cairn.open(store.path) as again,
            pytest.raises(cairn.Damaged, match=r"blob [0-9a-f]{64} in .*: expected bytes"),
        ):
            again.checkout("step:1", tmp_path / "out", only=only)
        assert sorted(tmp_path.iterdir()) == before


def test_of_two_copies_the_good_one_is_written(store: cairn.Store, source: Path, tmp_path: Path) -> None:
    """A file that turned out wrong is written once more, of the bytes that another pack has."""
    commit(store, source, 1)
    damage(store)
    with cairn.open(store.path) as again:
        assert not again.verify().ok
        commit(again, source, 2)
    with cairn.open(store.path) as again:
        check(again, source, tmp_path / "out")
