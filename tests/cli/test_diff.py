"""cairn diff: lines for people, JSON, counts, and the exit status."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import cairn as library

Call = Callable[..., tuple[int, str, str]]

W = np.arange(12, dtype=np.float32).reshape(3, 4)
NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


@pytest.fixture
def compared(cairn: Call, tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """Commits two states as steps 1 and 2 and gives the status and lines of the command."""

    def call(before: dict[str, Any], after: dict[str, Any], *args: object) -> tuple[int, list[str]]:
        path = tmp_path / "compared"
        with library.init(path) as store:
            store.run().commit(before, step=1)
            store.run().commit(after, step=2)
        status, out, err = cairn("--store", path, "diff", "step:1", "step:2", *args)
        assert err == ""
        return status, out.splitlines()

    return call


def test_one_line_for_each_change(store: Path, cairn: Call) -> None:
    """Sorted by path and lined up, then the sum; what is tied is said once."""
    status, out, err = cairn("diff", "step:10", "step:20")
    assert (status, err) == (0, "")
    assert out == (
        "path         change   what     elements  max abs  rel. L2\n"
        "model/w      changed  F32 4×5  20 of 20        1        1\n"
        "optimizer/m  changed  F64 8      8 of 8        1        1\n"
        "optimizer/t  changed  1 → 2\n"
        "\n"
        "3 differences: tensors 2 changed; values 1 changed.\n"
    )


def test_the_exit_status_tells_differences_only_when_asked(store: Path, cairn: Call) -> None:
    """7 with --exit-code, 0 without and for equal states."""
    assert cairn("diff", "step:10", "step:20")[0] == 0
    assert cairn("diff", "step:10", "step:20", "--exit-code")[0] == 7
    assert cairn("diff", "step:10", "step:20", "--exit-code", "--json")[0] == 7
    assert cairn("diff", "step:10", "step:20", "--exit-code", "--stat")[0] == 7
    assert cairn("diff", "step:10", "latest~2", "--exit-code")[0] == 0
    assert cairn("diff", "step:10", "step:20", "model/note", "--exit-code")[0] == 0


def test_equal_states_are_told_by_their_manifest(store: Path, cairn: Call) -> None:
    """With the id, which is copied whole; or what was compared."""
    with library.open(store) as opened:
        manifest = opened.commit("latest").manifest
    assert cairn("diff", "latest", "step:30")[1] == f"No differences: both commits have the manifest {manifest}\n"
    assert cairn("diff", "step:10", "latest", "model/raw")[1] == "No differences at model/raw\n"
    assert cairn("diff", "latest", "step:30", "--only", "model")[1] == "No differences in model\n"


@pytest.mark.parametrize("args", [(), ("--stat",), ("model",), ("--only", "optimizer")])
def test_json_has_the_fields_of_the_library(store: Path, cairn: Call, args: tuple[str, ...]) -> None:
    """Diff, ComponentDiff, Change, Side and Numbers, and a NaN as a string."""
    path = args[0] if args == ("model",) else None
    with library.open(store) as opened:
        found = opened.diff(
            "step:10", "step:20", path, only={"optimizer"} if "--only" in args else None, values="--stat" not in args
        )
    expected = json.loads(json.dumps(dataclasses.asdict(found)), parse_constant=lambda name: name)
    status, out, err = cairn("diff", "step:10", "step:20", *args, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == expected


def test_stat_counts_by_component(compared: Callable[..., tuple[int, list[str]]]) -> None:
    """What is equal, what changed and how, and what is without differences."""
    same = [W + 3, 1]
    before = {"model": {"a": W, "b": W + 1, "c": W + 2, "n": 1}, "old": [W + 4], "equal": same}
    after = {"model": {"a": W * 2, "b": W + 1, "d": W, "n": (1,)}, "equal": same, "new": {}}
    found = "tensors 1 changed, 2 removed, 1 added, 1 equal; values 1 added; containers 1 replaced, 1 added"
    assert compared(before, after, "--stat")[1] == [
        "component  status   tensors                                 values   others",
        "model      changed  1 changed, 1 removed, 1 added, 1 equal  1 added  containers 1 replaced",
        "old        removed  1 removed",
        "equal      same",
        "new        added                                                     containers 1 added",
        "",
        f"7 differences: {found}. The same: equal.",
    ]


ROWS: list[tuple[object, object, str]] = [
    (W, W * 2, "changed  F32 3×4  11 of 12  11  1"),
    (np.array(1.0), np.array(np.nan), "changed  F64 0-d  1 of 1, 1 NaN  0  0"),
    (np.array([1 << 62]), np.array([-(1 << 62)]), "changed  I64 1  1 of 1  9223372036854775808  2"),
    (W, W.astype(ml_dtypes.bfloat16), "retyped  F32 → BF16 3×4  0 of 12  0  0"),
    (W, W.reshape(4, 3), "reshaped  F32 3×4 → 4×3"),
    (W, W.reshape(12).astype("f8"), "reshaped, retyped  F32 3×4 → F64 12"),
    (W, W.astype(">f4"), "byteswapped  F32 3×4, little-endian → big-endian"),
    (W, 5, "replaced  tensor F32 3×4 → value 5"),
    (W, (5,), "replaced  tensor F32 3×4 → container tuple"),
    (1, True, "retyped  int 1 → bool true"),
    (0.0, -0.0, "changed  0.0 → -0.0"),
    (NAN, float("nan"), "changed  7ff8000000000001 → 7ff8000000000000"),
    ("a\x1b[1m", "b\x1b[1m", 'changed  "a\\u001b[1m" → "b\\u001b[1m"'),
    ("x" * 60 + "a" + "y" * 60, "x" * 60 + "b", f'changed  …xxxxxxxxa{"y" * 29}… → …xxxxxxxxb"'),
    ("x" * 70_000, "y", 'changed  str of 68.4 KiB → "y"'),
    (b"\x00" * 5_000, b"\x01" * 5_000, "changed  bytes of 4.9 KiB → bytes of 4.9 KiB"),
    (np.float32(1), np.float32(2), "changed"),
    ([], (), "retyped  list → tuple"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "reordered  order of keys"),
    ({"a": 1, "b": 2}, OrderedDict(b=2, a=1), "retyped, reordered  dict → OrderedDict, order of keys"),
]


@pytest.mark.parametrize(("before", "after", "expected"), ROWS)
def test_every_kind_of_change_has_words(
    compared: Callable[..., tuple[int, list[str]]], before: object, after: object, expected: str
) -> None:
    """Type and shape, or both values, from where they begin to differ."""
    lines = compared({"x": before}, {"x": after})[1]
    row = "  ".join(part.strip() for part in lines[1].split("  ") if part.strip())
    assert row.startswith(f"x  {expected}")
    assert row == f"x  {expected}" or expected == "changed"


def test_ties_and_components(compared: Callable[..., tuple[int, list[str]]]) -> None:
    """A tie that was cut, one that is new, and the order of the components."""
    before = {"a": {"w": W, "head": W}, "b": 1, "c": 1}
    after = {"a": {"w": W, "head": W.copy(), "new": W}, "c": 1, "b": 1}
    assert compared(before, after)[1] == [
        "path          change     what",
        "(components)  reordered  a, b, c → a, c, b",
        "a/head        retied     F32 3×4, tied to a/w → not tied",
        "a/new         added      F32 3×4, tied to a/w",
        "",
        "3 differences: tensors 1 retied, 1 added, 1 equal; containers 1 reordered. The same: b, c.",
    ]


def test_many_values_of_one_list_are_folded(compared: Callable[..., tuple[int, list[str]]]) -> None:
    """The state of a random generator is a few lines; --json has every value."""
    before, after = {"rng": (3, tuple(range(700)))}, {"rng": (3, tuple(range(1, 701)))}
    assert compared(before, after)[1] == [
        "path     change   what",
        "rng/1/0  changed  0 → 1",
        "rng/1/1  changed  1 → 2",
        "rng/1/2  changed  2 → 3",
        "rng/1/…           and 697 more values; --json has them all",
        "",
        "700 differences: values 700 changed.",
    ]


def test_files_and_tensors_inside(tmp_path: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's line, then those of its tensors; a path may lead to one of them."""
    folder, store = tmp_path / "folder", tmp_path / "files"
    (folder / "empty").mkdir(parents=True)
    with library.init(store) as opened:
        for number in (1, 2):
            save_file({"w": W * number, "same": W}, folder / "model.safetensors")
            (folder / "run.sh").write_text("x")
            (folder / "run.sh").chmod(0o644 if number == 1 else 0o755)
            (folder / "empty").chmod(0o755 if number == 1 else 0o700)
            (folder / f"link{number}").symlink_to("run.sh")
            opened.run().commit({"files": library.folder(folder)}, step=number)
    monkeypatch.setenv("CAIRN_STORE", str(store))
    size = (folder / "model.safetensors").stat().st_size
    lines = cairn("diff", "step:1", "step:2")[1].splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "path change what elements max abs rel. L2",
        "files/empty mode 755 → 700",
        'files/link2 added "run.sh"',
        f"files/model.safetensors changed {size} B",
        "files/model.safetensors/w changed F32 3×4 11 of 12 11 1",
        "files/run.sh mode 644 → 755",
        "",
        "5 differences: tensors 1 changed, 1 equal; files 1 changed, 1 mode; folders 1 mode; links 1 added.",
    ]
    alone = cairn("diff", "step:1", "step:2", "model.safetensors/w")[1]
    assert [line.split()[0] for line in alone.splitlines()[:2]] == ["path", "files/model.safetensors/w"]
    assert cairn("diff", "step:1", "step:2", "model.safetensors/same")[1] == (
        "No differences at files/model.safetensors/same\n"
    )


def test_what_is_not_there_is_a_sentence(store: Path, cairn: Call) -> None:
    """An unknown path or component, a revision that is none, and dropped content exit with 4, a wrong use with 2."""
    assert cairn("diff", "step:10", "step:20", "model/typo")[0] == 4
    assert cairn("diff", "step:10", "step:20", "--only", "typo")[0] == 4
    assert cairn("diff", "step:10", "step:11")[0] == 4
    assert cairn("diff", "step:10", "step:20", "model", "--only", "model")[0] == 2
    cairn("drop", "step:10", "--only", "optimizer")
    status, out, err = cairn("diff", "step:10", "step:20")
    assert (status, out) == (4, "")
    assert "optimizer was dropped" in err
    assert cairn("diff", "step:10", "step:20", "model")[0] == 0
