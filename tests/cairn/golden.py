"""The golden store: a small store of fixed bytes that every version must read and, as long as the format stays, write.

`python tests/cairn/golden.py` writes it to `store/golden`, and its bytes into `store/FORMAT.md`. It holds every kind of
entry, and every kind of value that is not split into parts.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import OrderedDict
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np

import cairn
from cairn.io.disk import Disk

GOLDEN = Path(__file__).parents[2] / "store" / "golden"
PAGE = GOLDEN.with_name("FORMAT.md")
START = datetime(2026, 1, 1, tzinfo=UTC)
PROVENANCE = {
    "versions": {"cairn": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
    "git": None,
    "host": "example",
    "hardware": {"machine": "x86_64", "system": "Linux", "cores": 2},
}
KEPT = ("cairn.json", "runs", "tags", "packs")
"""What a reader needs; all else is derived or belongs to live processes."""


class FixedDisk(Disk):
    """A disk whose clock and ids depend only on the number of the operation."""

    def __init__(self) -> None:
        self.operation = 0
        self.count = 0

    def next(self) -> None:
        """Begin the next operation, an hour later."""
        self.operation, self.count = self.operation + 1, 0

    def now(self) -> datetime:
        return START + timedelta(hours=self.operation)

    def new_id(self) -> str:
        self.count += 1
        return f"{self.operation:016x}{self.count:016x}"


def state(step: int) -> dict[str, Any]:
    """Make the state of a step; `frozen` and `values` are the same at every step."""
    embed = np.arange(12, dtype="<f4").reshape(3, 4) * step
    bias = np.full(4, -0.0)
    return {
        "model": {"embed": embed, "head": embed, "bias": bias},
        "optimizer": {
            "moments": {0: (np.zeros(6), np.zeros(6)), 1: np.ones(2, "<f4")},
            "updates": np.array(step, "<i8"),
            "weights": [embed, bias],
        },
        "frozen": {"backbone": np.arange(8).astype(ml_dtypes.bfloat16).reshape(2, 2, 2)},
        "rng": {"bit_generator": "PCG64", "state": {"state": (1 << 127) + step, "inc": -(1 << 64)}, "has_uint32": 0},
        "values": values(),
    }


def values() -> dict[str, Any]:
    """Make one of each kind of value."""
    return {
        "plain": [None, True, False, 1 << 53, -7, 'ñ \u2028 \x7f \x1b\n"\\', {}, []],
        "floats": [0.1, -0.0, 1e23, float("inf"), nan("fff8000000000001"), float("nan")],
        "ints": [(1 << 53) + 1, -(1 << 80)],
        "complex": complex(-0.0, float("inf")),
        "tuples": ((), (1, ("x",))),
        "bytes": b"\x00\xff",
        "surrogate": "\ud800",
        "keys": {1: "int", True + 1: "int too", (None, 0.5): "tuple", "$": "dollar", b"k": "bytes"},
        "ordered": OrderedDict(b=1, a=2),
        "scalars": [np.float32(1.5), np.bool_(True), np.datetime64("2026-01-01", "D"), ml_dtypes.float8_e4m3fn(2)],
        "scalar array": np.array(2.5),
        "empty": np.zeros((0, 3), "<i8"),
        "nan": np.array([0x7FF0000000000001, 0xFFF8000000000000, 1 << 63], "<u8").view("<f8"),
        "big-endian": np.array([1, 2, 3], ">i2"),
        "fortran": np.asfortranarray(np.arange(6, dtype="<i2").reshape(2, 3)),
        "complex array": np.array([1 - 2j], "<c16"),
        "bits": np.array([-1, 2]).astype(ml_dtypes.int4),
        "flags": np.array([True, False]),
    }


def write_files(root: Path) -> None:
    """Make a folder as a trainer of other habits leaves it: a tensor file, a script, a link, a name that is no text."""
    (root / "bin").mkdir(mode=0o755)
    weight = state(100)["model"]["embed"].tobytes()
    header = b'{"embed":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}}   '
    (root / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + weight)
    (root / "empty").write_bytes(b"")
    (root / "bin" / "train.sh").write_bytes(b"#!/bin/sh\nexec train\n")
    (root / "latest").symlink_to("model.safetensors")
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9")).write_bytes(b"Latin-1\n")
    for path in (root, root / "bin", root / "bin" / "train.sh"):
        path.chmod(0o755)
    for name in os.listdir(root):
        if (root / name).is_file():
            (root / name).chmod(0o644)


def nan(digits: str) -> float:
    """Make the NaN of these 16 hex digits."""
    return float(np.array(int(digits, 16), "<u8").view("<f8"))


def build(root: Path) -> None:
    """Make the golden store in a new folder."""
    disk = FixedDisk()
    with ExitStack() as fixed:
        fixed.enter_context(patch("cairn.store.provenance.provenance", lambda: PROVENANCE))
        # Files that are read at the same time would lie in the pack in any order.
        fixed.enter_context(patch("cairn.files.take.READERS", 1))
        store = fixed.enter_context(cairn.init(root, disk=disk))
        _fill(store, disk)
    fold(root / "runs" / "main", 3)
    for path in root.iterdir():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _fill(store: cairn.Store, disk: FixedDisk) -> None:
    main = store.run("main")
    disk.next()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        first = {**state(100), "files": cairn.folder(folder)}
        main.commit(first, step=100, epoch=0, metrics={"loss": 2.5, "tokens": 4096}, message="first\nlight")
    disk.next()
    main.commit(state(200), step=200, epoch=1, metrics={"loss": 1.25, "best": float("inf")})
    disk.next()
    main.commit(state(666), step=300, metrics={"loss": float("nan")}, message="diverged")
    disk.next()
    store.rewind("step:200")
    disk.next()
    store.run("main").commit(state(300), step=300, metrics={"loss": 0.625})
    disk.next()
    store.tag("stable", "main@200")
    disk.next()
    trial = store.create_run("trial", "stable")
    disk.next()
    trial.commit({**state(250), "note": "halved"}, step=250)
    disk.next()
    store.rename_run("trial", "probe")
    disk.next()
    store.drop(["main/attempt-1"], run="main")
    disk.next()
    store.drop(["main@100"], only={"optimizer"}, run="main")
    disk.next()
    store.undrop(["main@100"], run="main")
    disk.next()
    store.gc()


def fold(log: Path, last: int) -> None:
    """Put the first entries of a log together, byte for byte."""
    singles = [log / f"{seq:08d}.json" for seq in range(1, last + 1)]
    (log / f"{1:08d}-{last:08d}.jsonl").write_bytes(b"".join(single.read_bytes() for single in singles))
    for single in singles:
        single.unlink()


def main() -> None:
    """Write the golden store and the example in the format's page anew."""
    # Run as a script, so the packages of the tests are not on the path yet.
    sys.path.insert(0, str(GOLDEN.parents[1]))
    from tests.cairn import examples

    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder) / "golden")
        shutil.rmtree(GOLDEN, ignore_errors=True)
        shutil.copytree(Path(folder) / "golden", GOLDEN)
    PAGE.write_text(examples.render(PAGE.read_text(), GOLDEN))


if __name__ == "__main__":
    main()
