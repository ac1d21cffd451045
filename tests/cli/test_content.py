"""ls, cat, checkout and du."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

import cairn as library
from cairn.cli import value

Call = Callable[..., tuple[int, str, str]]


def test_ls_lists_components_then_values(store: Path, cairn: Call) -> None:
    """Without a path the components; with one the values, a tie named as such."""
    assert [line.split()[0] for line in cairn("ls", "latest")[1].splitlines()] == ["component", "model", "optimizer"]
    out = cairn("ls", "latest", "model")[1]
    assert "model/w     F32    4×5     80 B\n" in out
    assert "same memory as model/w" in out
    assert "líne\\n\\u001b[31mred" in out


def test_ls_below_a_path(store: Path, cairn: Call) -> None:
    """A path lists only what stands there."""
    assert [line.split()[0] for line in cairn("ls", "latest", "optimizer/m")[1].splitlines()[1:]] == ["optimizer/m"]
    assert cairn("ls", "latest", "optimizer/nothing")[0] == 4


@pytest.mark.parametrize("args", [(), ("-o", "-")])
def test_cat_writes_a_tensor_as_npy_to_a_pipe(store: Path, args: tuple[str, ...]) -> None:
    """What numpy reads from the pipe is the tensor."""
    command = [sys.executable, "-W", "error", "-m", "cairn", "cat", "step:20", "model/w", *args]
    done = subprocess.run(command, capture_output=True, check=True, cwd=store.parent)
    np.testing.assert_array_equal(np.load(io.BytesIO(done.stdout)), np.full((4, 5), 2, np.float32))


def test_cat_writes_values_to_a_file(store: Path, cairn: Call, tmp_path: Path) -> None:
    """Bytes and text as they are, everything else as JSON."""
    at = tmp_path / "value"
    assert cairn("cat", "latest", "model/raw", "-o", at) == (0, "", "")
    assert at.read_bytes() == b"\x00\x01"
    cairn("cat", "latest", "model/note", "-o", at)
    assert at.read_bytes() == "líne\n\x1b[31mred".encode()
    cairn("cat", "latest", "optimizer", "-o", at)
    parts = json.loads(at.read_text())
    assert (parts["t"], parts["m"]) == (3, {"$tensor": "m"})


def test_cat_of_a_type_that_numpy_lacks_keeps_its_bytes(tmp_path: Path, cairn: Call) -> None:
    """A .npy of BF16 holds elements of two bytes that can be viewed as what they are."""
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    with library.init(tmp_path / "s") as made:
        made.run("main").commit({"model": {"w": array}})
    assert cairn("--store", tmp_path / "s", "cat", "latest", "model/w", "-o", tmp_path / "w.npy")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy").view(ml_dtypes.bfloat16), array)


def test_cat_describes_values_on_a_terminal(store: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor is summed up, bytes are shown as hex, and text cannot move the cursor."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = cairn("cat", "latest", "model/w")[1]
    assert "4×5" in out
    assert "3 to 3, mean 3" in out
    assert cairn("cat", "latest", "model/raw")[1] == "2 B: 00 01\n"
    assert cairn("cat", "latest", "model/note")[1] == "líne\n\\x1b[31mred\n"
    assert cairn("cat", "latest", "optimizer/t")[1] == "3\n"


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.zeros((0, 3)), "0×3"),
        (np.array(2.5, np.float32), "0-d"),
        (
            np.array([np.nan, np.inf, 1.0], ml_dtypes.bfloat16),
            "NaN         1\ninfinite    1\nrange       1 to 1, mean 1",
        ),
        (np.array([True, False]), "BOOL"),
        (np.array([1 + 2j]), "1.+2.j"),
        (np.array([np.nan]), "NaN         1"),
    ],
)
def test_every_kind_of_tensor_can_be_described(
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], shown: str
) -> None:
    """Empty, without dimensions, of types that numpy lacks, and full of NaN."""
    text = value.described("w", array)
    assert shown in text.replace("to save it", "")


def test_checkout_writes_files_that_plain_tools_read(store: Path, cairn: Call) -> None:
    """The safetensors library reads the tensors; the paths are named."""
    status, out, _ = cairn("checkout", "step:20", "out")
    assert status == 0
    assert out.endswith("Wrote 4 files to out\n")
    np.testing.assert_array_equal(load_file("out/model.safetensors")["w"], np.full((4, 5), 2, np.float32))


def test_checkout_of_one_component_leaves_the_others(store: Path, cairn: Call) -> None:
    """--only may be repeated; an unknown component is not found."""
    assert cairn("checkout", "latest", "out", "--only", "optimizer")[0] == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["optimizer.json", "optimizer.safetensors"]
    assert cairn("checkout", "latest", "new", "--only", "scheduler")[0] == 4


def test_checkout_overwrites_only_by_force(store: Path, cairn: Call) -> None:
    """A folder in use is a conflict without --force."""
    cairn("checkout", "step:10", "out")
    assert cairn("checkout", "step:20", "out")[0] == 5
    assert load_file("out/model.safetensors")["w"][0, 0] == 1
    assert cairn("checkout", "step:20", "out", "--force")[0] == 0
    assert load_file("out/model.safetensors")["w"][0, 0] == 2


def test_du_says_what_commits_and_the_store_weigh(store: Path, cairn: Call) -> None:
    """A line for each commit, one for each component, then the sums."""
    lines = cairn("du")[1].splitlines()
    assert [line.split()[2] for line in lines[1:4]] == ["30", "20", "10"]
    words = [line.split()[0] for line in lines[5:] if line]
    assert words == ["component", "manifest", "model", "optimizer", "each", "needed", "stored"]
    assert len(cairn("du", "latest", "step:10")[1].splitlines()) == len(lines) - 1
