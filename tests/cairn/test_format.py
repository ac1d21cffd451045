"""The bytes of a store are what `store/FORMAT.md` says, seen with other tools than cairn."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tests.cairn import folders, golden
from tests.cairn.describe import describe

import cairn
from cairn.objects import gather, intake, writer

MIB = 1 << 20
READER = Path(__file__).with_name("plain_reader.py")


def wide_state() -> dict[str, Any]:
    """Make a state whose dict, list, tuple and pairs are split into parts, and with a tensor that is cut."""
    tensors = {f"layer.{number}": np.full(3, number, "<f4") for number in range(700)}
    return {
        "model": {**tensors, "last": tensors["layer.5"], "cut": np.arange(17 * MIB, dtype="<i4")},
        "optimizer": {"list": list(tensors.values()), "tuple": tuple(range(20_000))},
        "data_iter": {"pairs": {(number, "seen"): number for number in range(3000)}, "text": "\ud800" * 5000},
        "notes": {"long": "ñ" * 40_000, "bytes": bytes(range(256)) * 20},
    }


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden store with one more, wide commit."""
    root = tmp_path_factory.mktemp("wide") / "store"
    golden.build(root)
    folder = root.with_name("folder")
    folder.mkdir()
    save_file({f"t{number}": np.full(2, number) for number in range(1500)}, folder / "model.safetensors")
    with cairn.open(root) as store:
        store.run("wide").commit({**wide_state(), "files": cairn.folder(folder)}, step=1)
    return root


def test_every_pack_opens_with_the_safetensors_library(wide: Path) -> None:
    """The official loader reads each pack, and every tensor's name is the BLAKE3 of its bytes."""
    packs = folders.packs(wide)
    assert len(packs) > 4
    for pack in packs:
        tensors = load_file(pack)
        assert tensors
        for name, data in tensors.items():
            assert data.dtype == np.uint8
            assert name == blake3(data.tobytes()).hexdigest()
        with safe_open(pack, "numpy") as opened:
            assert opened.metadata()["cairn.pack"] == "1"


def test_a_pack_is_named_by_everything_before_its_data(wide: Path) -> None:
    """The BLAKE3 of length and header is the file's name, and the blobs fill the rest without holes."""
    for pack in folders.packs(wide):
        _, places, length = folders.head(pack)
        assert pack.stem == blake3(pack.read_bytes()[:length]).hexdigest()
        assert pack.parent.name == pack.stem[:2]
        end = length
        for offset, size in places.values():
            assert offset == end
            assert size > 0
            end = offset + size
        assert end == pack.stat().st_size


def test_thirty_lines_of_python_read_a_whole_store(wide: Path, tmp_path: Path) -> None:
    """A reader of 30 lines that cannot import cairn finds every commit's values as cairn loads them, bit for bit."""
    code = READER.read_text().partition("\ndef read")[2].splitlines()
    # Six of them are for files and folders.
    assert len([line for line in code if line.strip() and '"""' not in line]) <= 30 + 6
    script = f"""
import sys
sys.modules["cairn"] = None
sys.path[:0] = {[str(READER.parent)]!r}
import json, pathlib
from blake3 import blake3
from describe import describe
from plain_reader import read
for commit, state in read(pathlib.Path({str(wide)!r})):
    text = json.dumps(commit, ensure_ascii=False, separators=(",", ":")).encode()
    print(blake3(text).hexdigest(), blake3(describe(state).encode()).hexdigest())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    with cairn.open(wide) as store:
        kept = {
            commit.id: commit for run in store.runs() for commit in store._core.journal.run(run).state.commits.values()
        }
        expected = {
            commit.id: blake3(describe(store.load(commit.id)).encode()).hexdigest()
            for commit in kept.values()
            if not commit.is_dropped
        }
    assert len(expected) == 5
    assert found == expected


def test_head_dash_78_checks_every_sealed_file(wide: Path) -> None:
    """`head -c -78 FILE | b3sum` prints what stands in `blake3`, for cairn.json and every entry of its own file."""
    sealed = [wide / "cairn.json", *wide.glob("runs/*/*.json"), *wide.glob("tags/*/*.json")]
    assert len(sealed) > 10
    for path in sealed:
        body = subprocess.run(["head", "-c", "-78", path], capture_output=True, check=True).stdout
        assert blake3(body).hexdigest() == json.loads(path.read_bytes())["blake3"]


def test_trees_are_blobs_like_any_other(wide: Path) -> None:
    """The metadata says how many blobs at a pack's end are trees; each is one line of canonical JSON."""
    counted = 0
    for pack in folders.packs(wide):
        metadata, places, _ = folders.head(pack)
        data, trees = pack.read_bytes(), int(metadata["trees"])
        for number, (offset, size) in enumerate(places.values()):
            if number >= len(places) - trees:
                text = data[offset : offset + size]
                spelled = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")).encode()
                assert spelled == text
                counted += 1
    assert counted > 20


def test_files_of_the_store_are_read_only(wide: Path) -> None:
    """Nobody writes into an entry or a pack by accident: their mode has no write bit."""
    made = [*wide.glob("packs/*/*"), *wide.glob("runs/*/*.json"), *wide.glob("tags/*/*.json"), wide / "cairn.json"]
    assert not [path for path in made if path.stat().st_mode & 0o222]


def test_elements_lie_aligned_in_packs(store: cairn.Store) -> None:
    """Whatever sizes come first, each tensor starts at a multiple of its element size in the file, so mapping works."""
    mixed = {
        f"{dtype} {count}": np.arange(1, count + 1).astype(dtype)
        for dtype in ("u1", "<f2", "<f4", "<f8", "<c16", "?")
        for count in (1, 3, 7)
    }
    store.run().commit({"mixed": mixed, "more": [np.ones(5, "<c16") * 3, np.ones(11, "i1")]}, step=1)
    places = {blob: offset for pack in folders.packs(store.path) for blob, (offset, _) in folders.head(pack)[1].items()}
    items = [*store.ls("latest", "mixed"), *store.ls("latest", "more")]
    assert len(items) == 20
    for item in items:
        (blob,) = item.blobs
        itemsize = item.bytes // int(np.prod(item.shape or ()))
        assert places[blob.id] % itemsize == 0
    loaded = store.load("latest")
    assert all(array.flags.aligned for array in loaded["mixed"].values())
    assert all(mapped(array) for array in loaded["mixed"].values())


def test_headers_are_padded_with_spaces(store: cairn.Store) -> None:
    """Data starts at a multiple of 64 bytes, in packs over 1 MiB of 4096; what fills the header up is spaces."""
    run = store.run()
    sizes = [1, 100, 40_000, MIB - 2000, MIB + 1, 3 * MIB, 20 * MIB]
    for step, size in enumerate(sizes):
        run.commit({"model": np.full(size, step + 1, "u1")}, step=step)
    large = 0
    for pack in folders.packs(store.path):
        _, _, length = folders.head(pack)
        is_large = pack.stat().st_size > MIB
        assert length % (4096 if is_large else 64) == 0
        text = pack.read_bytes()[8:length]
        assert text.rstrip(b" ").endswith(b"}}")
        large += is_large
    assert large == 3


def test_blobs_are_ordered_by_element_size_then_trees(store: cairn.Store) -> None:
    """Larger elements come first and trees last, across the components that share a pack."""
    state = {
        "a": {"small": np.arange(5, dtype="u1"), "wide": np.arange(3, dtype="<c16")},
        "b": {"half": np.arange(5, dtype="<f2"), "double": np.arange(6, dtype="<f8")},
    }
    store.run().commit(state, step=1)
    (pack,) = folders.packs(store.path)
    _, places, _ = folders.head(pack)
    sizes = {ref.id: item.dtype for item in store.ls("latest", "a") + store.ls("latest", "b") for ref in item.blobs}
    assert [sizes.get(blob, "tree") for blob in places] == ["complex128", "F64", "F16", "U8", "tree", "tree", "tree"]


def test_a_large_tensor_is_cut_and_lies_in_one_piece(store: cairn.Store) -> None:
    """Above 64 MiB a tensor is cut at every 16 MiB; the pieces are neighbours in the pack, so it is mapped whole."""
    whole = np.random.default_rng(1).integers(0, 255, 64 * MIB, "u1")
    longer = np.random.default_rng(2).integers(0, 255, (64 * MIB + 8) // 4, "u4")
    store.run().commit({"model": {"small": np.arange(3), "longer": longer, "whole": whole}}, step=1)
    items = {item.path: item for item in store.ls("latest", "model")}
    assert [ref.size for ref in items["model/whole"].blobs] == [64 * MIB]
    assert [ref.size for ref in items["model/longer"].blobs] == [16 * MIB] * 4 + [8]
    places = [folders.head(pack)[1] for pack in folders.packs(store.path)]
    (place,) = [found for found in places if items["model/longer"].blobs[0].id in found]
    ids = list(place)
    start = ids.index(items["model/longer"].blobs[0].id)
    assert ids[start : start + 5] == [ref.id for ref in items["model/longer"].blobs]
    loaded = store.load("latest")["model"]
    assert np.array_equal(loaded["longer"], longer)
    assert mapped(loaded["longer"])
    assert mapped(loaded["whole"])


def test_a_cut_tensor_is_put_together_from_several_packs(store: cairn.Store) -> None:
    """Where the pieces are no neighbours, because one was there before, the tensor is joined in memory."""
    piece = np.random.default_rng(3).integers(0, 255, 16 * MIB, "u1")
    store.run().commit({"model": piece}, step=1)
    longer = np.concatenate([piece, np.arange(48 * MIB + 3, dtype="u4").view("u1")[: 48 * MIB + 3]])
    store.run().commit({"model": longer}, step=2)
    loaded = store.load("latest")["model"]
    assert np.array_equal(loaded, longer)
    assert not loaded.flags.writeable


def test_a_component_with_much_that_is_new_gets_its_own_pack(store: cairn.Store) -> None:
    """From 16 MiB of new bytes on a component has packs of its own; all else and all trees share one more."""
    below = np.random.default_rng(1).integers(0, 255, 16 * MIB - 1, "u1")
    above = np.random.default_rng(2).integers(0, 255, 16 * MIB, "u1")
    store.run().commit({"model": below, "optimizer": above, "rng": [np.arange(3)]}, step=1)
    contents = [(folders.head(pack)[0]["trees"], len(folders.head(pack)[1])) for pack in folders.packs(store.path)]
    assert sorted(contents) == [("0", 1), ("4", 6)]
    # Dropping the optimizer frees its pack with one unlink, and nothing else.
    store.drop(["latest"], only={"optimizer"})
    plan = store.gc()
    assert len(plan.deleted) == 1
    assert plan.freed_bytes > 16 * MIB
    assert np.array_equal(store.load("latest", only={"model"})["model"], below)
    assert store.verify().ok


def test_a_commit_of_many_tensors_costs_two_files(store: cairn.Store) -> None:
    """Three thousand tensors are one pack and one entry."""
    before = set(folders.files(store.path))
    tensors = {f"t{number}": np.array([number]) for number in range(3000)}
    store.run().commit({"model": tensors}, step=1)
    added = set(folders.files(store.path)) - before
    assert sorted(name.split("/")[0] for name in added) == ["packs", "runs"]
    assert len(os.listdir(store.path / "tmp")) == 0


def test_packs_stay_below_their_caps(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pack gets more bytes or blobs than the caps, whether it belongs to one component or is shared."""
    for module in (writer, intake):
        monkeypatch.setattr(module, "MAX_BLOBS", 20)
        monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    monkeypatch.setattr(gather, "OWN_PACK_BYTES", 50_000)
    rng = np.random.default_rng(1)
    state = {
        "own": [rng.integers(0, 255, 9_000, "u1") for _ in range(30)],
        "many": [rng.integers(0, 255, 2_000, "u1") for _ in range(90)],
        **{f"shared{part}": [rng.integers(0, 255, 16_000, "u1") for _ in range(3)] for part in range(9)},
    }
    store.run().commit(state, step=1)
    for pack in folders.packs(store.path):
        assert pack.stat().st_size <= 100_000
        assert len(folders.head(pack)[1]) <= 20
    assert store.verify().ok
    with cairn.open(store.path) as again:
        assert describe(again.load("latest")) == describe(state)


def mapped(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array's memory is a mapped file, not a copy."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)
