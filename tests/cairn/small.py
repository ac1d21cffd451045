"""A small store to damage: two commits that share a component, and a tag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
from tests.cairn import folders

import cairn

A, B, C = (np.arange(4.0) + 10 * number for number in range(3))
STATES = {1: {"model": A, "frozen": C}, 2: {"model": B, "frozen": C}}


def build(root: Path) -> Path:
    """Make the store in a new folder, with nothing about this machine in it."""
    with patch("cairn.store.provenance.provenance", dict), cairn.init(root) as store:
        for step, state in STATES.items():
            store.run().commit(state, step=step)
        store.tag("first", "step:1")
    return root


def changed(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of a file."""
    folders.write(path, change(path.read_bytes()))


def flip(data: bytes, place: int) -> bytes:
    """Flip one bit of one byte, another bit at every place."""
    return data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]


def pack_of(root: Path, blob: str) -> Path:
    """Return the only pack that has a blob."""
    (found,) = [pack for pack in folders.packs(root) if blob in folders.head(pack)[1]]
    return found


def blob_of(root: Path, revision: str, path: str) -> str:
    """Return the blob of a tensor."""
    with cairn.open(root) as store:
        (item,) = store.ls(revision, path)
    return item.blobs[0].id


def manifest_of(root: Path, revision: str) -> str:
    """Return the manifest of a commit."""
    with cairn.open(root) as store:
        return store.commit(revision).manifest


def bad_files(root: Path) -> set[str]:
    """Return the files that verify, or opening the store, finds damaged."""
    try:
        with cairn.open(root) as store:
            return {finding.file for finding in store.verify().findings if finding.level == "error"} - {"packs"}
    except cairn.Damaged as error:
        return {"cairn.json"} if "cairn.json" in str(error) else set()
