"""What a commit adds is the bytes that no commit had before, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.cairn import folders

import cairn


def tree_bytes(store: cairn.Store) -> int:
    """Return the bytes of all trees in the packs."""
    total = 0
    for pack in folders.packs(store.path):
        metadata, places, _ = folders.head(pack)
        sizes = [size for _, size in places.values()]
        total += sum(sizes[len(sizes) - int(metadata["trees"]) :])
    return total


def added(store: cairn.Store, state: dict[str, Any], step: int) -> int:
    """Commit a state; return the bytes of tensors that this added to the packs, by what is on the disk."""
    before = folders.packs(store.path)
    run = store.run()
    run.commit(state, step=step)
    assert run.last is not None
    total = trees = 0
    for pack in set(folders.packs(store.path)) - set(before):
        metadata, places, length = folders.head(pack)
        sizes = [size for _, size in places.values()]
        assert pack.stat().st_size == length + sum(sizes)
        total += sum(sizes)
        trees += sum(sizes[len(sizes) - int(metadata["trees"]) :])
    assert run.last.new_bytes == total
    return total - trees


def test_tied_weights_are_stored_once(store: cairn.Store) -> None:
    """Two names of one memory, in one component or in two, cost its bytes once."""
    embed = np.random.default_rng(1).standard_normal((64, 32))
    state = {"model": {"embed": embed, "head": embed}, "optimizer": {"weights": [embed]}}
    assert added(store, state, 1) == embed.nbytes
    loaded = store.load("latest")
    assert loaded["model"]["embed"] is loaded["model"]["head"]
    assert loaded["model"]["embed"] is loaded["optimizer"]["weights"][0]


def test_equal_bytes_are_shared_and_no_tie(store: cairn.Store) -> None:
    """A copy of a tensor costs nothing and comes back as an array of its own."""
    weight = np.random.default_rng(1).standard_normal(100)
    assert added(store, {"model": [weight, weight.copy()]}, 1) == weight.nbytes
    first, second = store.load("latest", copy=True)["model"]
    first[0] = 7
    assert second[0] == weight[0]


def test_zero_moments_cost_one_blob_for_each_length(store: cairn.Store) -> None:
    """Fresh m and v of Adam are zeros: one blob for each distinct length in bytes, however many tensors there are."""
    shapes = [(64, 32), (32, 64), (32,), (32,), (5, 5)]
    state = {"optimizer": {name: [np.zeros(shape, "<f4") for shape in shapes] for name in "mv"}}
    assert added(store, state, 1) == 4 * (64 * 32 + 32 + 25)


def test_the_name_of_the_type_makes_no_difference(store: cairn.Store) -> None:
    """Equal bytes are shared, whatever they are called and however they are shaped."""
    state = {"model": [np.zeros(8, "<f8"), np.zeros((4, 4), "<i4"), np.zeros(64, "?"), np.zeros(16, ">f4")]}
    assert added(store, state, 1) == 64


def test_a_frozen_layer_costs_nothing(store: cairn.Store) -> None:
    """What did not change since an earlier commit is not written again, not even its tree."""
    run = store.run()
    frozen = {"backbone": np.random.default_rng(1).standard_normal(1000)}
    run.commit({"frozen": frozen, "head": np.arange(4.0)}, step=0)
    packs = set(folders.packs(store.path))
    run.commit({"frozen": frozen, "head": np.arange(4.0) + 1}, step=1)
    (pack,) = set(folders.packs(store.path)) - packs
    metadata, places, _ = folders.head(pack)
    # The head's bytes, the tree of `head`, the manifest.
    assert next(iter(places.values()))[1] == 32
    assert len(places) == 3
    assert metadata["trees"] == "2"


def test_the_same_state_again_adds_no_pack(store: cairn.Store) -> None:
    """Nothing but an entry is written when the state was committed before, however long ago."""
    run = store.run()
    states = [{"model": np.arange(100.0) * factor, "optimizer": {"t": factor}} for factor in (1, 2)]
    for step, state in enumerate(states):
        run.commit(state, step=step)
    before = folders.files(store.path)
    again = run.commit(states[0], step=5)
    assert run.last is not None
    assert run.last.new_bytes == 0
    assert set(folders.files(store.path)) - set(before) == {"runs/main/00000003.json"}
    assert again.manifest == store.commit("step:0").manifest


def test_the_same_content_in_another_run_adds_no_pack(store: cairn.Store) -> None:
    """Runs share their blobs."""
    state = {"model": np.random.default_rng(1).standard_normal(1000)}
    store.run("one").commit(state, step=1)
    before = folders.files(store.path)
    other = store.run("two")
    other.commit(state, step=9)
    assert other.last is not None
    assert other.last.new_bytes == 0
    assert set(folders.files(store.path)) - set(before) == {"runs/two/00000001.json"}


def test_only_the_half_that_changed_is_added(store: cairn.Store) -> None:
    """Of many tensors, those that changed are written, to the byte."""
    tensors = [np.random.default_rng(seed).standard_normal(50 + seed) for seed in range(20)]
    assert added(store, {"model": tensors}, 1) == sum(tensor.nbytes for tensor in tensors)
    changed = [tensor + 1 if number % 2 else tensor for number, tensor in enumerate(tensors)]
    assert added(store, {"model": changed}, 2) == sum(tensor.nbytes for tensor in tensors[1::2])


def test_only_the_pieces_that_changed_are_added(store: cairn.Store) -> None:
    """Of a tensor above 64 MiB, one changed element costs one piece of 16 MiB."""
    large = np.zeros((65 << 20) // 8)
    # Four equal pieces of zeros are one blob; the last, of 1 MiB, is another.
    assert added(store, {"model": large}, 1) == (16 << 20) + (1 << 20)
    large[-1] = 1
    assert added(store, {"model": large}, 2) == 1 << 20
    large[0] = 1
    assert added(store, {"model": large}, 3) == 16 << 20


def test_one_value_among_many_costs_one_part(store: cairn.Store) -> None:
    """A changed tensor among 20 000 rewrites one part of the tree and the lists above it, not the whole tree."""
    run = store.run()
    tensors = {f"layer.{number}": np.array([number]) for number in range(20_000)}
    run.commit({"model": tensors}, step=1)
    whole = tree_bytes(store)
    run.commit({"model": {**tensors, "layer.777": np.array([-1])}}, step=2)
    assert whole > 2_000_000
    assert tree_bytes(store) - whole < 120_000


def test_zeros_of_either_sign_differ(store: cairn.Store) -> None:
    """0.0 and -0.0 are equal numbers and other bytes; so are two NaNs with other payloads."""
    signs = [np.zeros(4), -np.zeros(4)]
    assert added(store, {"model": signs}, 1) == 64
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], "<u8").view("<f8")
    assert added(store, {"model": list(nans.reshape(3, 1))}, 2) == 24


def test_memory_order_makes_no_difference(store: cairn.Store) -> None:
    """F-ordered, strided and big-endian arrays share their bytes with plain ones of equal elements."""
    plain = np.random.default_rng(1).standard_normal((6, 10))
    spread = np.zeros((12, 30))
    spread[::2, ::3] = plain
    state = {"model": [plain, np.asfortranarray(plain), spread[::2, ::3], plain.astype(">f8"), plain.T.copy().T]}
    assert added(store, state, 1) == plain.nbytes
    assert added(store, {"model": [plain.T]}, 2) == plain.nbytes


def test_a_commit_of_equal_state_has_an_equal_manifest(tmp_path: Path) -> None:
    """The manifest's id depends on the state alone: not on the store, the run, the step or what was there before."""
    state = {"model": {"w": np.arange(10.0)}, "rng": {"state": 1 << 100}}
    manifests = set()
    for name in ("one", "two"):
        with cairn.init(tmp_path / name) as store:
            store.run("other").commit({"noise": name}, step=0)
            manifests.add(store.run(name).commit(state, step=len(name), message=name).manifest)
    assert len(manifests) == 1
