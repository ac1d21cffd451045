"""Where long containers and long data are cut, and what a change then costs."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cairn.strategies import Memory, exact

from cairn.ids import BlobRef
from cairn.state.decode import load
from cairn.state.encode import cut, sketch
from cairn.state.trees import PART_BYTES, SPLIT_BYTES
from cairn.state.walk import leaves, walk


def trees_of(memory: Memory, state: Mapping[str, object]) -> set[str]:
    """Saves a state and tells which trees it has."""
    ref = memory.save(state)
    return {node.ref.id for node in walk(ref, memory.tree) if node.is_tree}


def root_of(state: Mapping[str, object]) -> tuple[Memory, Any]:
    """Saves a state of one component and reads its tree."""
    memory = Memory()
    manifest = json.loads(memory.tree(memory.save(state)))
    ((ref),) = manifest["components"].values()
    return memory, json.loads(memory.tree(BlobRef(*ref)))


def starts(name: bytes) -> bool:
    """The rule of the format, said once more."""
    return blake3(name).digest()[0] == 0


def names_that_start(parts: int) -> Iterator[str]:
    """Finds keys before each of which a part begins."""
    found = (str(number) for number in range(1 << 30) if starts(str(number).encode()))
    return (name for _, name in zip(range(parts), found, strict=False))


def test_one_changed_tensor_among_100_000_costs_one_part() -> None:
    """A change rewrites the part it is in, the list of parts and the manifest: three trees of about 390."""
    tensors = {f"layers.{number}.weight": np.array([number]) for number in range(100_000)}

    def trees(tensor: int | None) -> set[bytes]:
        state = tensors if tensor is None else tensors | {f"layers.{tensor}.weight": np.array([-1])}
        plan = sketch({"model": state})
        (listed,) = plan.components.values()
        refs = {leaf: (BlobRef(blake3(leaf.data()).hexdigest(), 8),) for leaf in listed}
        found: set[bytes] = set()

        def put_tree(data: bytes) -> BlobRef:
            found.add(data)
            return BlobRef(blake3(data).hexdigest(), len(data))

        plan.manifest(refs, put_tree)
        return found

    before = trees(None)
    after = trees(77_777)
    assert 300 < len(before) < 500
    assert len(after - before) == len(before - after) == 3
    assert sum(map(len, after - before)) < 3 * SPLIT_BYTES


@pytest.mark.parametrize("kind", ["dict", "OrderedDict", "map", "list", "tuple"])
def test_a_change_costs_one_part_in_every_container(kind: str) -> None:
    """Each kind of container of 3 000 entries is split so that a change of one rewrites one part."""

    def state(changed: int) -> dict[str, object]:
        items = [np.array([number if number != changed else -1]) for number in range(3_000)]
        made: dict[str, object] = {
            "dict": {f"w{number}": item for number, item in enumerate(items)},
            "OrderedDict": OrderedDict((f"w{number}", item) for number, item in enumerate(items)),
            "map": dict(enumerate(items)),
            "list": items,
            "tuple": tuple(items),
        }
        return {"x": {"deep": [made[kind]]}, "y": 1}

    memory = Memory()
    before = trees_of(memory, state(-1))
    after = trees_of(memory, state(1_500))
    assert len(before) > 6
    assert len(after - before) == len(before - after) == 3
    ref = memory.save(state(1_500))
    assert exact(load(ref, memory, None, copy=False)) == exact(state(1_500))


def test_a_new_key_costs_the_part_it_falls_into() -> None:
    """An entry put in the middle of a dict moves no boundary but those of its own part."""
    keys = [f"w{number}" for number in range(3_000)]
    memory = Memory()
    before = trees_of(memory, {"x": dict.fromkeys(keys, 0.5)})
    after = trees_of(memory, {"x": dict.fromkeys([*keys[:1_000], "new", *keys[1_000:]], 0.5)})
    assert len(after - before) <= 4


def test_trees_depend_on_nothing_but_the_value() -> None:
    """The same value has the same trees beside other components, in another place and after another history."""
    value = {f"w{number}": np.array([number]) for number in range(2_000)}
    alone, beside = Memory(), Memory()
    first = trees_of(alone, {"x": value})
    beside.save({"other": list(value.values())})
    second = trees_of(beside, {"a": {"b": [1, 2]}, "x": {key: item.copy() for key, item in value.items()}, "z": None})
    assert len(first - second) == 1, "only the manifest differs"


def test_parts_begin_where_the_names_say() -> None:
    """Parts hold runs of about 256 entries, in order, each beginning at a name whose hash begins with zero."""
    value = {f"key {number}": number for number in range(20_000)}
    memory, root = root_of({"x": value})
    assert list(root) == ["$dict"]
    parts = [json.loads(memory.tree(BlobRef(*ref))) for ref in root["$dict"]]
    assert {key: item for part in parts for key, item in part.items()} == value
    assert [key for part in parts for key in part] == list(value)
    for number, part in enumerate(parts):
        assert [key for key in part if starts(key.encode())] == ([next(iter(part))] if number else [])
    assert 150 < len(value) / len(parts) < 400


def test_lists_are_cut_by_place() -> None:
    """The boundaries of a list depend on the places alone, and long lists of parts are split again."""
    memory, root = root_of({"x": [0] * 300_000})
    assert list(root) == ["$list"]
    assert list(root["$list"]) == ["$list"]
    refs = [ref for part in root["$list"]["$list"] for ref in json.loads(memory.tree(BlobRef(*part)))]
    sizes = [len(json.loads(memory.tree(BlobRef(*ref)))) for ref in refs]
    bounds = [sum(sizes[:number]) for number in range(1, len(sizes))]
    assert sum(sizes) == 300_000
    assert bounds == [place for place in range(1, 300_000) if starts(str(place).encode())]


def test_a_long_list_of_parts_is_split_again() -> None:
    """A dict of so many parts that their list is over 64 KiB comes back, and its walk meets every tree."""
    value = {name: np.array([0.5]) for name in names_that_start(1_500)}
    memory, root = root_of({"x": value})
    assert list(root["$dict"]) == ["$list"]
    ref = memory.save({"x": value})
    assert exact(load(ref, memory, None, copy=False)) == exact({"x": value})
    assert {node.ref.id for node in walk(ref, memory.tree)} == set(memory.blobs)


def test_a_part_is_never_over_one_mebibyte() -> None:
    """A part ends before an entry that would make it too long, whatever the names say."""
    value = {f"{number:03}": chr(97 + number % 26) * 60_000 for number in range(50)}
    memory, root = root_of({"x": value})
    sizes = [size for _, size in root["$dict"]]
    assert max(sizes) <= PART_BYTES
    assert max(sizes) > PART_BYTES - 61_000
    ref = memory.save({"x": value})
    assert exact(load(ref, memory, None, copy=False)) == exact({"x": value})


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("kind", ["dict", "list", "tuple", "map"])
def test_a_container_is_split_from_the_first_byte_over_64_kib(kind: str, over: int) -> None:
    """A container of exactly 65 536 bytes stands whole, one of 65 537 is split; and either comes back."""
    frame = {"dict": '{"a":"","b":1}', "list": '["",1]', "tuple": '["",1]', "map": '[[1,""],[2,1]]'}[kind]
    text = "x" * (SPLIT_BYTES - len(frame) + over)
    value = {"dict": {"a": text, "b": 1}, "list": [text, 1], "tuple": (text, 1), "map": {1: text, 2: 1}}[kind]
    memory, root = root_of({"x": value})
    inner = root if kind in ("dict", "list") else root["$tuple"] if kind == "tuple" else root["$map"]["pairs"]
    assert (type(inner) is dict and next(iter(inner)) in ("$dict", "$list")) == bool(over)
    assert exact(load(memory.save({"x": value}), memory, None, copy=False)) == exact({"x": value})


def test_ties_between_components_are_split_like_any_list() -> None:
    """Thousands of ties between components fit into a manifest that stays short."""
    shared = {f"w{number}": np.array([number]) for number in range(2_000)}
    memory = Memory()
    ref = memory.save({"model": shared, "ema": dict(shared)})
    assert ref.size < 4_096
    found: Any = load(ref, memory, None, copy=False)
    assert all(found["model"][key] is found["ema"][key] for key in shared)
    assert {node.ref.id for node in walk(ref, memory.tree)} == set(memory.blobs)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"x" * 4_096, "base64"), (b"x" * 4_097, "blobs"), ("\ud800" + "x" * 4_093, "base64"),
        ("\ud800" + "x" * 4_094, "blobs"), ("x" * 65_536, "text"), ("x" * 65_537, "blobs"), ("é" * 32_768, "text"),
        ("é" * 32_769, "blobs"), ("", "text"), (b"", "base64"), ("\0" * 65_536, "text"),
    ],
    ids=lambda value: f"{len(value)}",
)  # fmt: skip
def test_long_strings_become_blobs(value: str | bytes, kind: str) -> None:
    """bytes over 4 KiB and str over 64 KiB of UTF-8 are blobs; shorter ones stand in the tree."""
    memory, root = root_of({"x": value})
    found = "text" if isinstance(root, str) else "base64" if isinstance(next(iter(root.values())), str) else "blobs"
    assert found == kind
    assert exact(load(memory.save({"x": value}), memory, None, copy=False)) == exact({"x": value})


def test_a_tensor_over_64_mib_is_cut_into_pieces_of_16() -> None:
    """64 MiB are one blob; a byte more are five, and only the changed one is new."""
    tensor = np.zeros(2**26 + 1, np.uint8)
    tensor[:: 2**24] = range(5)
    memory = Memory()
    whole = memory.save({"x": {"w": tensor[:-1]}})
    ref = memory.save({"x": {"w": tensor}})
    assert [entry.nbytes for entry in leaves(whole, memory.tree) for _ in entry.blobs] == [2**26]
    (entry,) = leaves(ref, memory.tree)
    assert [blob.size for blob in entry.blobs] == [2**24] * 4 + [1]
    found: Any = load(ref, memory, None, copy=False)
    assert np.array_equal(found["x"]["w"], tensor)
    before = len(memory.blobs)
    tensor[2**25 + 5] = 1
    memory.save({"x": {"w": tensor}})
    assert len(memory.blobs) == before + 3, "a piece, the component and the manifest"


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.one_of(st.integers(0, 2**40), st.integers(2**26 - 3, 2**26 + 3), st.integers(0, 20).map(lambda n: n << 24)))
def test_pieces_cover_the_data(nbytes: int) -> None:
    """Pieces touch each other from the first byte to the last, none is empty, and only the last may be short."""
    pieces = cut(nbytes)
    bounds = [bound for piece in pieces for bound in piece]
    assert bounds[1:-1:2] == bounds[2::2]
    assert (bounds[0], bounds[-1]) == (0, nbytes) if nbytes else bounds == []
    sizes = [end - start for start, end in pieces]
    assert all(sizes)
    assert sizes == [nbytes] if 0 < nbytes <= 2**26 else set(sizes[:-1]) <= {2**24}
    assert not sizes or sizes[-1] <= (2**26 if len(sizes) == 1 else 2**24)


def test_two_dicts_share_the_parts_they_have_in_common() -> None:
    """A dict that only grew at its end shares all parts but the last with what it was."""

    def keys(count: int) -> Iterable[str]:
        return (f"token {number}" for number in range(count))

    memory = Memory()
    before = trees_of(memory, {"x": dict.fromkeys(keys(10_000), 1)})
    after = trees_of(memory, {"x": dict.fromkeys(keys(10_100), 1)})
    assert len(after - before) <= 4
