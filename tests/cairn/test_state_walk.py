"""What a commit is made of: its blobs for gc and verify, its values for listings, one value by its path."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from tests.cairn.strategies import Memory, exact

from cairn.errors import Damaged, NotFound, UsageError
from cairn.ids import BlobRef, blob_id
from cairn.state.decode import load, read_manifest
from cairn.state.find import find
from cairn.state.manifest import Spot, Tie
from cairn.state.paths import Scalar
from cairn.state.walk import Seen, leaves, walk

W = np.arange(3.0)
STATE: dict[str, object] = {
    "model": {"embed.weight": W, "head": W, "a/b": np.zeros((0, 2), "f4"), "layers": [{"w": W + 1}]},
    "optimizer": OrderedDict([("m", {0: W, (1, "k"): 2.5}), ("betas", (0.9, 0.99)), ("e", {})]),
    "rng": b"x" * 5_000,
    "step": 7,
}


def saved(state: dict[str, object]) -> tuple[Memory, BlobRef]:
    """Saves a state."""
    memory = Memory()
    return memory, memory.save(state)


def many(changed: int = -1) -> dict[str, object]:
    """Makes a state whose component is in several parts."""
    return {"x": {f"w{number}": np.array([number if number != changed else -1]) for number in range(2_000)}, "y": 1}


def test_a_walk_names_blobs_by_path() -> None:
    """The manifest comes first, then each component's tree before its blobs, with paths that people read."""
    memory, ref = saved(STATE)
    nodes = list(walk(ref, memory.tree))
    assert [(node.path, node.is_tree) for node in nodes] == [
        ("manifest", True),
        ("model", True),
        ("model/embed.weight", False),
        ("model/layers/0/w", False),
        ("optimizer", True),
        ("optimizer/m/0", False),
        ("rng", True),
        ("rng", False),
        ("step", True),
    ]
    assert nodes[0].ref == ref
    assert nodes[2].ref == nodes[5].ref == (blob_id(W.data), 24)


def test_skipped_components_are_not_read() -> None:
    """A component that was dropped may be gone: its tree is not looked at, and unknown names do not matter."""
    memory, ref = saved(STATE)
    del memory.blobs[read_manifest(ref, memory).components["model"].id]
    assert {node.path.split("/")[0] for node in walk(ref, memory.tree, skip=["model", "other"])} == {
        "manifest",
        "optimizer",
        "rng",
        "step",
    }
    with pytest.raises(Damaged):
        list(walk(ref, memory.tree))


def test_walking_does_not_import_numpy() -> None:
    """Listing a commit starts fast, so it must do without numpy."""
    code = "import sys, cairn.state.walk; sys.exit('numpy' in sys.modules or 'ml_dtypes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_was_seen_is_not_read_again() -> None:
    """Walking a second commit with what the first saw reads its manifest, its list of parts and one part."""
    memory, first = saved(many())
    second = memory.save(many(changed=1_000))
    seen: Seen = {}
    everything = {node.ref.id for node in walk(first, memory.tree, seen=seen)}
    memory.reads.clear()
    everything |= {node.ref.id for node in walk(second, memory.tree, seen=seen)}
    assert len(memory.reads) == 3
    assert everything == set(memory.blobs)
    memory.reads.clear()
    assert {node.ref.id for node in walk(second, memory.tree, seen=seen)} <= everything
    assert memory.reads == [second.id]


@pytest.mark.parametrize("kind", ["dict", "map", "ordered", "list", "tuple"])
def test_seen_parts_do_not_disturb_the_others(kind: str) -> None:
    """Around parts that were seen before, the paths and the checks of the others stay right."""

    def state(changed: int) -> dict[str, object]:
        items = [np.array([number if number != changed else -1]) for number in range(1_500)]
        made: dict[str, object] = {
            "dict": {f"w{number}": item for number, item in enumerate(items)},
            "ordered": OrderedDict((f"w{number}", item) for number, item in enumerate(items)),
            "map": dict(enumerate(items)),
            "list": items,
            "tuple": tuple(items),
        }
        return {"x": made[kind]}

    memory = Memory()
    first, second = memory.save(state(-1)), memory.save(state(700))
    seen: Seen = {}
    list(walk(first, memory.tree, seen=seen))
    new = {node.path for node in walk(second, memory.tree, seen=seen) if node.ref.id == blob_id(np.array([-1]).data)}
    assert new == {"x/w700" if kind in ("dict", "ordered") else "x/700"}


def test_a_walk_that_was_cut_short_has_seen_nothing() -> None:
    """Only trees that were walked to their end count as seen."""
    memory, ref = saved(many())
    seen: Seen = {}
    for _ in zip(range(100), walk(ref, memory.tree, seen=seen), strict=False):
        pass
    assert {node.ref.id for node in walk(ref, memory.tree, seen=seen)} == set(memory.blobs)


def test_the_same_tree_in_two_roles_is_walked_in_both() -> None:
    """A list that looks like a list of blobs, and a part that looks like pairs, are told apart by their roles."""
    memory = Memory()
    pairs = [[f"{number}", np.array([number])] for number in range(1_500)]
    ref = memory.save({"list": pairs, "map": OrderedDict(pairs), "odd": [["0" * 64, 5]] * 3})  # type: ignore[arg-type]
    seen: Seen = {}
    assert {node.ref.id for node in walk(ref, memory.tree, seen=seen)} == set(memory.blobs)


def test_damage_is_told_and_the_walk_goes_on() -> None:
    """With `damaged` every unreadable tree is named with its path, and what lies beside it is still listed."""
    memory = Memory()
    ref = memory.save({"bad": [1, 2], **many(), "z": {"w": W}})
    parts = [node for node in walk(ref, memory.tree) if node.path == "x" and node.is_tree]
    bad = read_manifest(ref, memory).components["bad"]
    lost = [bad, parts[2].ref]
    for gone in lost:
        del memory.blobs[gone.id]
    told: list[str] = []
    seen: Seen = {}
    nodes = list(walk(ref, memory.tree, seen=seen, damaged=lambda path, error: told.append(f"{path} {error}")))
    assert [words.split(" ")[0] for words in told] == ["bad", "x"]
    assert [gone.id in words for gone, words in zip(lost, told, strict=True)] == [True, True]
    assert {node.ref.id for node in nodes} >= {gone.id for gone in lost}
    tensors = [node.path for node in nodes if not node.is_tree]
    assert "x/w0" in tensors
    assert "x/w1999" in tensors
    assert tensors[-1] == "z/w"
    memory.save({"bad": [1, 2], **many(), "z": {"w": W}})
    again = {node.path for node in walk(ref, memory.tree, seen=seen)}
    assert "bad" in again
    assert {f"x/w{number}" for number in range(2_000)} == {path for path in again | set(tensors) if path[:3] == "x/w"}


def test_a_malformed_value_does_not_hide_its_neighbours() -> None:
    """A node that says what no node says is told with its path; the manifest is all that must be good."""
    memory = Memory()
    data = memory.put(bytes(4))
    good = f'{{"$tensor":{{"dtype":"F32","shape":[1],"blobs":[["{data.id}",4]]}}}}'
    tree = memory.put(f'{{"a":{{"$what":1}},"b":{good},"c":[{{"$tuple":2}}]}}'.encode())
    ref = memory.put(f'{{"components":{{"x":["{tree.id}",{tree.size}]}},"ties":[]}}'.encode())
    told: list[str] = []
    nodes = list(walk(ref, memory.tree, damaged=lambda path, _: told.append(path)))
    assert told == ["x/a", "x/c/0"]
    assert [node.path for node in nodes] == ["manifest", "x", "x/b"]
    with pytest.raises(Damaged):
        list(walk(tree, memory.tree, damaged=lambda path, _: told.append(path)))


def test_leaves_tell_what_is_in_a_commit() -> None:
    """Each tensor, tie and value has an entry with its keys, in the order of the state."""
    memory, ref = saved(STATE)
    entries = list(leaves(ref, memory.tree))
    assert [(entry.path, entry.kind, entry.dtype, entry.shape, entry.nbytes) for entry in entries] == [
        (("model", "embed.weight"), "tensor", "F64", (3,), 24),
        (("model", "head"), "tie", "F64", (3,), 24),
        (("model", "a/b"), "tensor", "F32", (0, 2), 0),
        (("model", "layers", 0, "w"), "tensor", "F64", (3,), 24),
        (("optimizer", "m", 0), "tensor", "F64", (3,), 24),
        (("optimizer", "m", (1, "k")), "value", "float", None, 0),
        (("optimizer", "betas", 0), "value", "float", None, 0),
        (("optimizer", "betas", 1), "value", "float", None, 0),
        (("optimizer", "e"), "value", "dict", None, 0),
        (("rng",), "value", "bytes", None, 5_000),
        (("step",), "value", "int", None, 0),
    ]
    assert [entry.tie for entry in entries if entry.tie] == [("model", "embed.weight")] * 2
    assert [entry.value for entry in entries if entry.kind == "value"] == [2.5, 0.9, 0.99, {}, None, 7]
    assert [len(entry.blobs) for entry in entries] == [1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0]
    assert entries[6].within == ("OrderedDict", "tuple")
    assert [entry.path for entry in leaves(ref, memory.tree, only={"step"})] == [("step",)]


def test_leaves_show_numpy_scalars_without_numpy() -> None:
    """A numpy scalar is listed as its type and its bytes, also as a key."""
    memory, ref = saved({"x": {np.int16(-2): np.float32(1), "b": np.datetime64(1, "s")}})
    first, second = leaves(ref, memory.tree)
    assert first.path == ("x", Scalar("I16", b"\xfe\xff"))
    assert first.value == Scalar("F32", b"\0\0\x80\x3f")
    assert repr(first.value) == "F32(0x3f800000)"
    assert second.dtype == "datetime64[s]"


def test_a_manifest_lists_components_and_ties() -> None:
    """The manifest knows the order of the components and which tensors of different ones are one memory."""
    memory, ref = saved(STATE)
    manifest = read_manifest(ref, memory)
    assert list(manifest.components) == list(STATE)
    assert manifest.ties == (Tie(Spot("optimizer", (0, 0)), Spot("model", ("embed.weight",))),)


def test_ties_to_another_component_are_listed_with_keys() -> None:
    """A tensor that is the memory of another component's is listed with the path of that one."""
    memory, ref = saved({"model": OrderedDict(w=W), "ema": [W, W]})
    assert [entry.tie for entry in leaves(ref, memory.tree)] == [None, ("model", "w"), ("ema", 0)]


def test_an_unknown_component_is_not_found() -> None:
    """Asking for a component that is not there names those that are; a str is no set of names."""
    memory, ref = saved(STATE)
    with pytest.raises(NotFound, match=r"'modell'.*model, optimizer, rng, step"):
        load(ref, memory, ["modell"], copy=False)
    with pytest.raises(UsageError, match="set of component names"):
        load(ref, memory, "model", copy=False)
    assert load(ref, memory, [], copy=False) == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("step", 7),
        ("model/embed.weight", W),
        ("model/head", W),
        ("model/a/b", np.zeros((0, 2), "f4")),
        ('model/"a/b"', np.zeros((0, 2), "f4")),
        ("model/layers/0/w", W + 1),
        ("model/layers", [{"w": W + 1}]),
        ("optimizer/m/0", W),
        ("optimizer/m/(1, 'k')", 2.5),
        ("optimizer/betas/1", 0.99),
        ("optimizer/betas", (0.9, 0.99)),
        ("optimizer/e", {}),
        ("rng", b"x" * 5_000),
    ],
)
def test_a_value_is_found_by_its_path(path: str, value: object) -> None:
    """The path that listings show leads back to the value, ties and whole containers included."""
    memory, ref = saved(STATE)
    assert exact(find(ref, memory, path)) == exact(value)


def test_every_path_of_a_listing_leads_back() -> None:
    """What `walk` calls a tensor is what `find` finds under that name."""
    memory, ref = saved(STATE)
    for node in walk(ref, memory.tree):
        if not node.is_tree and node.path != "rng":
            found: Any = find(ref, memory, node.path)
            assert blob_id(found.tobytes()) == node.ref.id


def test_a_path_that_fits_several_values_names_them() -> None:
    """A path that may be read in two ways is refused with the two exact paths, and each of these works."""
    memory, ref = saved({"x": {"a/b": 1, "a": {"b": 2, "": 3}, "n": {"0": 4, 0: 5}}})
    with pytest.raises(NotFound, match=r'x/"a/b", x/"a"/"b"') as error:
        find(ref, memory, "x/a/b")
    assert "several" not in str(error.value)
    assert find(ref, memory, 'x/"a/b"') == 1
    assert find(ref, memory, 'x/"a"/"b"') == 2
    assert find(ref, memory, "x/a/") == 3
    assert find(ref, memory, 'x/n/"0"') == 4
    assert find(ref, memory, 'x/"n"/0') == 5
    with pytest.raises(NotFound, match='x/"n"/"0", x/"n"/0'):
        find(ref, memory, "x/n/0")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("", "begins with one of model"),
        ("modell/w", "begins with one of model"),
        ("model/embed.wait", 'model has embed.weight, head, "a/b", layers'),
        ("model/layers/1", "model/layers has 0"),
        ("optimizer/betas/1/x", "optimizer/betas has 0, 1"),
        ("step/x", "a value without parts"),
        ("optimizer/e/x", "optimizer/e has nothing in it"),
    ],
)
def test_a_path_that_leads_nowhere_says_how_far_it_led(path: str, hint: str) -> None:
    """A wrong path is answered with what is there."""
    memory, ref = saved(STATE)
    with pytest.raises(NotFound, match=hint):
        find(ref, memory, path)


def test_many_candidates_are_not_all_listed() -> None:
    """A path that fits very many values, or misses among very many keys, still gives a short answer."""
    deep: object = 1
    for _ in range(8):
        deep = {"a": deep, "a/a": deep, "": deep}
    memory, ref = saved({"x": deep, "y": {str(number): number for number in range(5_000)}})
    for path in ("x/" + "a/" * 8, "y/z"):
        with pytest.raises(NotFound) as error:
            find(ref, memory, path)
        assert len(str(error.value)) < 1_000
