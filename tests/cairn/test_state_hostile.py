"""Trees that no cairn wrote: whatever they say, reading them ends in an error of cairn's own, soon."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cairn.strategies import Memory

from cairn import canonical
from cairn.errors import CairnError, Damaged
from cairn.ids import BlobRef
from cairn.state import reader
from cairn.state.assemble import list_text
from cairn.state.decode import load
from cairn.state.find import find
from cairn.state.lazy import LazyMapping, LazyState
from cairn.state.walk import leaves, walk

BLOB = ["0" * 64, 8]
KEYS = "jax.random.key(impl='threefry2x32')"


def manifest_of(memory: Memory, tree: bytes, ties: Any = ()) -> BlobRef:
    """Makes a commit of one component, whatever its tree."""
    ref = memory.put(tree)
    return memory.put(canonical.encode({"components": {"x": list(ref)}, "ties": list(ties)}))


def touch(value: object) -> None:
    """Touches everything in a lazy state."""
    if isinstance(value, LazyState | LazyMapping):
        for item in (*value.values(), getattr(value, "_metadata", None)):
            touch(item)


READERS: dict[str, Callable[[BlobRef, Memory], object]] = {
    "load": lambda ref, memory: load(ref, memory, None, copy=False),
    "lazy": lambda ref, memory: touch(LazyState(ref, memory)),
    "walk": lambda ref, memory: list(walk(ref, memory.tree)),
    "leaves": lambda ref, memory: list(leaves(ref, memory.tree)),
    "find": lambda ref, memory: [find(ref, memory, name) for name in LazyState(ref, memory)],
}


def refused(ref: BlobRef, memory: Memory, expected: str, *names: str) -> None:
    """Checks that readers refuse a commit, each with a sentence that names a tree and a path."""
    for name in names or READERS:
        with pytest.raises(Damaged, match=expected) as error:
            READERS[name](ref, memory)
        assert "tree " in str(error.value)


def tensor(**changed: object) -> dict[str, object]:
    """Spells a tensor of one float64, with something changed."""
    return {"$tensor": {"dtype": "F64", "shape": [], "blobs": [BLOB]} | changed}


def pairs(*found: object, kind: object = "dict") -> dict[str, object]:
    """Spells a map."""
    return {"$map": {"type": kind, "pairs": list(found)}}


def nested(value: object, depth: int, wrap: Callable[[object], object]) -> object:
    """Wraps a value again and again."""
    for _ in range(depth):
        value = wrap(value)
    return value


MALFORMED: list[tuple[str, object, str]] = [
    ("two members", {"$tie": ["a"], "b": 1}, "one member"),
    ("dollar key beside others", {"a": 1, "$b": 1}, "one member"),
    ("unknown kind", {"$set": [1]}, "kind of value this version knows"),
    ("file", {"$file": {}}, "an object with size, mode"),
    ("shelf", {"$shelf": {}}, "kind of value this version knows"),
    ("tensor no object", {"$tensor": []}, "an object with dtype"),
    ("tensor order of members", {"$tensor": {"shape": [], "dtype": "F64", "blobs": [BLOB]}}, "an object with dtype"),
    ("tensor more members", tensor(strides=[]), "an object with dtype"),
    ("tensor little", tensor(order="little"), "an object with dtype"),
    ("tensor big byte", tensor(dtype="U8", order="big", shape=[8]), "element type.*big-endian"),
    ("tensor of nobody", tensor(**{"as": "numpy"}), "an object with dtype"),
    ("tensor of none", tensor(**{"as": None}), "an object with dtype"),
    ("tensor of several", tensor(**{"as": ["torch"]}), "an object with dtype"),
    ("tensor big of torch", tensor(order="big", **{"as": "torch"}), "an object with dtype"),
    ("tensor of torch first", {"$tensor": {"as": "torch"} | tensor()["$tensor"]}, "an object with dtype"),  # type: ignore[operator]  # a dict at run time
    ("dtype torch lacks", tensor(dtype="datetime64[s]", **{"as": "torch"}), "element type.* of torch"),
    ("parameter of ints", tensor(dtype="I64", **{"as": "torch.nn.Parameter"}), "element type.* of torch.nn.Parameter"),
    ("packed of numpy", tensor(dtype="F4", shape=[16]), "element type"),
    ("packed odd", tensor(dtype="F4", shape=[2, 15], **{"as": "torch"}), "element type.*15"),
    ("packed without shape", tensor(dtype="F4", **{"as": "torch"}), "element type"),
    ("tensor big of jax", tensor(order="big", **{"as": "jax"}), "an object with dtype"),
    ("dtype jax lacks", tensor(dtype="complex32", **{"as": "jax"}), "element type.* of jax"),
    ("weak packed", tensor(dtype="F4", shape=[8], **{"as": "jax(weak_type=True)"}), "element type.* of jax"),
    ("strong said", tensor(**{"as": "jax(weak_type=False)"}), "an object with dtype"),
    ("keys of bytes", tensor(dtype="U8", shape=[4, 4], **{"as": KEYS}), "element type.* of jax.random.key"),
    ("keys of three", tensor(dtype="U32", shape=[2, 3], **{"as": KEYS}), "element type.* of jax.random.key"),
    ("keys without words", tensor(dtype="U32", shape=[], **{"as": KEYS}), "element type.* of jax.random.key"),
    ("unknown keys", tensor(**{"as": "jax.random.key(impl='dice')"}), "an object with dtype"),
    ("packed and bytes", tensor(dtype="F4", shape=[8], **{"as": "torch"}), "4 bytes in 1 pieces"),
    ("dtype unknown", tensor(dtype="F128"), "element type"),
    ("dtype of numpy", tensor(dtype="float64"), "element type"),
    ("dtype no text", tensor(dtype=["F64"]), "element type"),
    ("dtype object", tensor(dtype="object"), "element type"),
    ("dtype unit", tensor(dtype="datetime64[ns/3]"), "element type"),
    ("dtype one unit", tensor(dtype="datetime64[1s]"), "element type"),
    ("shape negative", tensor(shape=[-1]), "whole numbers"),
    ("shape bool", tensor(shape=[True]), "whole numbers"),
    ("shape text", tensor(shape="1"), "whole numbers"),
    ("shape long", tensor(shape=[1] * 65), "at most 64 whole numbers"),
    ("shape overflow", tensor(shape=[1 << 40, 1 << 40]), "fits in memory"),
    ("shape overflow empty", tensor(shape=[0, 1 << 40, 1 << 40], blobs=[]), "fits in memory"),
    ("shape overflow wrapping", tensor(shape=[1 << 32, 1 << 32, 1]), "fits in memory"),
    ("shape huge", tensor(shape=[1 << 45]), "at most 1099511627776 bytes"),
    ("shape and bytes", tensor(shape=[2]), "16 bytes in 1 pieces"),
    ("no blobs", tensor(blobs=[]), "8 bytes in 1 pieces"),
    ("blobs of empty", tensor(shape=[0]), "0 bytes in 0 pieces"),
    ("pieces", tensor(shape=[2], blobs=[BLOB, BLOB]), "16 bytes in 1 pieces"),
    ("blobs no list", tensor(blobs={}), "list of blobs"),
    ("blob short id", tensor(blobs=[["0" * 63, 8]]), "a blob as"),
    ("blob upper case", tensor(blobs=[["A" * 64, 8]]), "a blob as"),
    ("blob empty", tensor(blobs=[["0" * 64, 0]]), "a blob as"),
    ("blob negative", tensor(blobs=[["0" * 64, -8]]), "a blob as"),
    ("blob bool", tensor(dtype="U8", blobs=[["0" * 64, True]]), "a blob as"),
    ("blob no pair", tensor(blobs=["0" * 64]), "a blob as"),
    ("tie no list", {"$tie": "a"}, "keys and places"),
    ("tie bool", {"$tie": [True]}, "keys and places"),
    ("tie negative", {"$tie": [-1]}, "keys and places"),
    ("tie long", {"$tie": ["a"] * 101}, "keys and places"),
    ("scalar short", {"$scalar": {"dtype": "F32", "data": "00"}}, "8 lower-case hex digits"),
    ("scalar upper", {"$scalar": {"dtype": "F32", "data": "AA000000"}}, "8 lower-case hex digits"),
    ("scalar spaces", {"$scalar": {"dtype": "F32", "data": "00 00 00"}}, "8 lower-case hex digits"),
    ("scalar no text", {"$scalar": {"dtype": "F32", "data": 0}}, "8 lower-case hex digits"),
    ("scalar packed", {"$scalar": {"dtype": "F4", "data": "00"}}, "element type"),
    ("scalar dtype", {"$scalar": {"dtype": "S4", "data": "00000000"}}, "element type"),
    ("scalar no object", {"$scalar": 1}, "an object with dtype, data"),
    ("float spelling", {"$float": "1.50"}, "shortest text"),
    ("float nan", {"$float": "nan"}, "shortest text"),
    ("float no text", {"$float": 1}, "shortest text"),
    ("int small", {"$int": "0x5"}, "beyond 2"),
    ("int decimal", {"$int": "99999999999999999999"}, "beyond 2"),
    ("int upper", {"$int": "0xFFFFFFFFFFFFFFFFFF"}, "beyond 2"),
    ("int underscore", {"$int": "0xffff_ffff_ffff_ffff"}, "beyond 2"),
    ("int long", {"$int": "0x" + "f" * (1 << 20)}, "beyond 2"),
    ("complex", {"$complex": ["1.0"]}, "imaginary part"),
    ("complex part", {"$complex": ["1.0", "1"]}, "shortest text"),
    ("tuple no list", {"$tuple": 1}, "whole or in parts"),
    ("tuple two members", {"$tuple": {"$list": [], "a": 1}}, "whole or in parts"),
    ("map type", pairs([1, 2], kind="defaultdict"), "one of the mappings"),
    ("map type no text", pairs([1, 2], kind=[]), "one of the mappings"),
    ("map plain", pairs(["a", 1]), "stand for itself"),
    ("map empty", pairs(), "stand for itself"),
    ("map attributes", {"$map": {"type": "dict", "pairs": [[1, 2]], "_metadata": 1}}, "an object with type, pairs"),
    ("map attribute first", {"$map": {"_metadata": 1, "type": "OrderedDict", "pairs": []}}, "an object with type"),
    ("map other attribute", {"$map": {"type": "OrderedDict", "pairs": [], "metadata": 1}}, "an object with type"),
    ("map attribute bad", {"$map": {"type": "OrderedDict", "pairs": [], "_metadata": {"$x": 1}}}, "kind of value"),
    ("map attribute of a counter", {"$map": {"type": "Counter", "pairs": [], "_metadata": 1}}, "an object with type"),
    ("map long attribute", {"$map": {"type": "OrderedDict", "pairs": [], "_metadata": ["x" * 90] * 999}}, "in parts"),
    ("map no pair", pairs([1, 2, 3]), "a pair"),
    ("map pair no list", pairs({"1": 2}), "a pair"),
    ("map list key", pairs([[1], 2]), "expected a key"),
    ("map dict key", pairs([{"a": 1}, 2]), "expected a key"),
    ("map tensor key", pairs([tensor(), 2]), "expected a key"),
    ("map tuple key in parts", pairs([{"$tuple": {"$list": []}}, 2]), "expected a key"),
    ("ordered bad key", pairs([{"$tie": ["a"]}, 2], kind="OrderedDict"), "expected a key"),
    ("map deep key", pairs([nested(1, 17, lambda key: {"$tuple": [key]}), 2]), "expected a key"),
    ("map key twice", pairs([1, 1], [1, 2]), "every key once"),
    ("map long key", pairs([{"$tuple": ["a" * 40_000, "b" * 40_000]}, 1]), "whole|keys of up to"),
    ("str plain", {"$str": "YWJj"}, "stands for itself"),
    ("str no utf8", {"$str": "/w=="}, "UTF-8"),
    ("str no base64", {"$str": "a"}, "base64"),
    ("str no text", {"$str": 1}, "base64"),
    ("bytes spelling", {"$bytes": "YR=="}, "one spelling"),
    ("bytes newline", {"$bytes": "YWJj\n"}, "base64"),
    ("bytes long", {"$bytes": "YWJj" * 2_000}, "at most 4096 bytes"),
    ("bytes short in blobs", {"$bytes": [BLOB]}, "8 bytes to stand in the tree"),
    ("bytes in other pieces", {"$bytes": [["0" * 64, 3_000], ["0" * 64, 3_000]]}, "6000 bytes in 1 pieces"),
    ("text long", "x" * 65_537, "a text over 64 KiB"),
    ("key long", {"x" * 65_537: 1}, "short keys|whole"),
    ("parts of nothing", {"$dict": []}, "to stand whole"),
    ("parts of little", {"$list": [BLOB]}, "to stand whole"),
    ("parts no list", {"$dict": 1}, "list of blobs"),
    ("parts of parts", {"$dict": {"$list": {"$list": []}}}, "to stand whole"),
    ("parts far too deep", {"$dict": nested([], 40, lambda inner: {"$list": inner})}, "list of blobs"),
    ("parts too large", {"$dict": [["0" * 64, 1 << 25]]}, "trees of at most"),
    ("long list whole", ["x" * 90] * 1_000, "in parts"),
    ("long dict whole", {str(number): "x" * 90 for number in range(1_000)}, "in parts"),
    ("long tuple whole", {"$tuple": ["x" * 90] * 1_000}, "in parts"),
    ("long map whole", pairs(*[[number, "x" * 90] for number in range(1_000)]), "in parts"),
    ("long list inside", {"a": 1, "b": [["x" * 90] * 1_000]}, "in parts"),
    ("deep lists", nested(0, 101, lambda value: [value]), "at most 100 containers"),
    ("deep tuples", nested(0, 101, lambda value: {"$tuple": [value]}), "at most 100 containers"),
    ("deep maps", nested(0, 101, lambda value: pairs([1, value])), "at most 100 containers"),
]


@pytest.mark.parametrize(("tree", "expected"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
def test_malformed_nodes_are_refused(tree: object, expected: str) -> None:
    """Every reader refuses a spelling that cairn does not use, at the root and inside, before it trusts a number."""
    memory = Memory()
    refused(manifest_of(memory, canonical.encode(tree)), memory, expected)
    if len(canonical.encode(tree)) < 60_000:
        refused(manifest_of(memory, canonical.encode({"a": [tree]})), memory, f"(?s)x/a/0|{expected}")


@pytest.mark.parametrize(
    "tree", [b"nan", b"1.5", b'{"a":1,"a":2}', b" 1", b"[1", b"\xff", b'"\\ud800"', b"1e3", b"-0", b"[" * 5_000]
)
def test_bytes_that_are_no_tree_are_refused(tree: bytes) -> None:
    """What is not canonical JSON is refused, whatever else it is."""
    memory = Memory()
    refused(manifest_of(memory, tree), memory, "expected canonical JSON")


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"a": {"$tie": ["b"]}, "b": tensor()}, "earlier tensor"),
        ({"a": {"$tie": ["a"]}}, "earlier tensor"),
        ({"a": tensor(), "b": {"$tie": ["a", "c"]}}, "earlier tensor"),
        ({"a": tensor(), "b": {"$tie": [0]}}, "earlier tensor"),
        ({"a": [1], "b": {"$tie": ["a", 0]}}, "earlier tensor"),
        ({"a": {"$tie": []}}, "earlier tensor"),
        ({"a": tensor(shape=[0], blobs=[]), "b": {"$tie": ["a"]}}, "earlier tensor"),
        ({"$tie": ["a"]}, "earlier tensor"),
    ],
)
def test_ties_to_anything_but_an_earlier_tensor_are_refused(tree: object, expected: str) -> None:
    """Whoever gives out values refuses a tie that does not lead back to a tensor."""
    memory = Memory()
    data = canonical.encode(tree).replace(b"0" * 64, memory.put(bytes(8)).id.encode())
    names = ("load", "leaves") if b'"b":{"$tensor"' in data else ("load", "lazy", "leaves", "find")
    refused(manifest_of(memory, data), memory, expected, *names)


@pytest.mark.parametrize(
    "key",
    [{"$scalar": {"dtype": "timedelta64", "data": "01" * 8}}, {"$float": "1.0"}, True, {"$complex": ["1.0", "0.0"]}],
)
def test_keys_that_python_cannot_hold_side_by_side_are_refused(key: object) -> None:
    """Two keys that are equal to Python, or that it cannot hash, would silently become one or raise."""
    memory = Memory()
    ref = manifest_of(memory, canonical.encode(pairs([1, 0], [key, 0])))
    refused(ref, memory, "keys that differ|can be hashed", "load", "lazy", "find")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"\xff" * 5_000, "UTF-8"),
        (b"x" * 5_000, "cannot stand for itself"),
        (b"\xed\xa0\x80" + b"\xff" * 5_000, "UTF-8"),
    ],
)
def test_long_texts_are_judged_too(text: bytes, expected: str) -> None:
    """A long str must be UTF-8 and need its blob: it is longer than 64 KiB or has lone surrogates."""
    memory = Memory()
    ref = manifest_of(memory, canonical.encode({"$str": [list(memory.put(text))]}))
    refused(ref, memory, expected, "load", "lazy", "find")


@pytest.mark.parametrize(
    ("components", "ties", "expected"),
    [
        ([], [], "components by name"),
        ({"a/b": BLOB}, [], "name of a component"),
        ({"": BLOB}, [], "name of a component"),
        ({"x": []}, [], "a blob as"),
        ({"x": BLOB}, {}, "an object with"),
        ({"x": BLOB, "y": BLOB}, [{"at": ["x", []], "of": ["y", []]}], "to an earlier one"),
        ({"x": BLOB, "y": BLOB}, [{"at": ["y", []], "of": ["z", []]}], "to an earlier one"),
        ({"x": BLOB, "y": BLOB}, [{"at": ["y", []], "of": ["y", ["a"]]}], "to an earlier one"),
        ({"x": BLOB, "y": BLOB}, [{"of": ["x", []], "at": ["y", []]}], "an object with at, of"),
        ({"x": BLOB, "y": BLOB}, [{"at": ["y", []], "of": ["x", []]}] * 2, "each once"),
        ({"x": BLOB, "y": BLOB}, [{"at": ["y"], "of": ["x", []]}], "steps inside it"),
        ({"x": BLOB, "y": BLOB, "z": BLOB},
         [{"at": ["y", []], "of": ["x", []]}, {"at": ["z", []], "of": ["y", []]}], "first place"),
        ({"x": BLOB, "y": BLOB, "z": BLOB},
         [{"at": ["z", []], "of": ["x", []]}, {"at": ["y", []], "of": ["x", []]}], "in order"),
    ],
)  # fmt: skip
def test_malformed_manifests_are_refused(components: object, ties: object, expected: str) -> None:
    """The root tree has components and ties from a component to an earlier one, and nothing else."""
    memory = Memory()
    refused(memory.put(canonical.encode({"components": components, "ties": ties})), memory, expected)


@pytest.mark.parametrize("broken", [b"[]", b'{"components":{}}', b'{"ties":[],"components":{}}', b"1"])
def test_other_trees_are_no_manifests(broken: bytes) -> None:
    """A tree that is no manifest is not taken for an empty one."""
    memory = Memory()
    refused(memory.put(broken), memory, "expected an object with components, ties")


def test_ties_between_tensors_that_differ_are_refused() -> None:
    """The manifest cannot make one memory of two tensors, of a value, or of nothing."""
    memory = Memory()
    for second, expected in [
        (tensor(), "differ"), (tensor(dtype="I64", blobs=[list(memory.put(bytes(8)))]), "differ"), (1, "found none"),
    ]:  # fmt: skip
        memory.put(bytes(8))
        first = canonical.encode(tensor(blobs=[list(memory.put(bytes(8)))]))
        other = canonical.encode(second).replace(b"0" * 64, memory.put(b"12345678").id.encode())
        found = {"x": list(memory.put(first)), "y": list(memory.put(other))}
        ties = [{"at": ["y", []], "of": ["x", []]}]
        ref = memory.put(canonical.encode({"components": found, "ties": ties}))
        refused(ref, memory, expected, "load")


def test_ties_of_tensors_that_differ_are_refused_lazily_too() -> None:
    """While one tensor of a false tie is held, touching the other is an error, not the wrong array."""
    memory = Memory()
    trees = [memory.put(canonical.encode(tensor(blobs=[list(memory.put(bytes([n]) * 8))]))) for n in range(2)]
    found = dict(zip("xy", map(list, trees), strict=True))
    ref = memory.put(canonical.encode({"components": found, "ties": [{"at": ["y", []], "of": ["x", []]}]}))
    lazy = LazyState(ref, memory)
    assert np.array_equal(lazy["x"], np.zeros(()))  # type: ignore[arg-type]  # an array at run time
    with pytest.raises(Damaged, match="differ"):
        lazy["y"]


def parts_of(*runs: object, kind: str = "$list") -> tuple[Memory, BlobRef]:
    """Makes a commit of one container in the given parts."""
    memory = Memory()
    parts = [list(memory.put(canonical.encode(run))) for run in runs]
    return memory, manifest_of(memory, canonical.encode({kind: parts}))


def test_parts_in_the_wrong_places_are_refused() -> None:
    """Parts are cut where the rule says, hold what their container holds, and never overlap."""
    long = ["x" * 60_000] * 2
    for runs, expected in [
        ((long, long), "part in front to go on"),
        (([0] * 40_000,), "new part where the hash"),
        ((long, []), "a part with items"),
        (({"a": long},), "a part with items|in parts"),
        ((long * 10,), "parts of up to 1048576"),
    ]:
        memory, ref = parts_of(*runs)
        refused(ref, memory, expected)


def test_parts_of_a_dict_in_the_wrong_places_are_refused() -> None:
    """The keys of a dict in parts are plain and each is there once."""
    memory = Memory()
    good = {str(number): number for number in range(20_000)}
    saved = json.loads(memory.tree(memory.save({"x": good})))
    tree = json.loads(memory.tree(BlobRef(*saved["components"]["x"])))
    refs = tree["$dict"]
    swapped = [refs[1], refs[0], *refs[2:]]
    for parts, expected in [
        (refs + refs[:1], "part in front to go on|every key once"),
        (refs + refs[1:2], "every key once"),
        (swapped, "part in front to go on"),
    ]:
        refused(manifest_of(memory, canonical.encode({"$dict": parts})), memory, expected)
    odd = {"$a": "x" * 60_000, "b": "x" * 60_000}
    memory, ref = parts_of(odd, kind="$dict")
    refused(ref, memory, "without \\$ in front")


def test_a_tree_of_another_length_is_refused() -> None:
    """A reader that was given other bytes than it asked for says so."""
    memory = Memory()
    ref = memory.save({"x": 1})
    with pytest.raises(Damaged, match="bytes, found"):
        list(walk(ref, lambda asked: memory.blobs[asked.id] + b" "))


def test_blobs_of_another_length_are_refused() -> None:
    """A reference that lies about a blob's length is found even where the source does not compare it."""

    class Careless(Memory):
        def data(self, refs: Sequence[BlobRef]) -> memoryview:
            return memoryview(b"".join([self.blobs[ref.id] for ref in refs]))

    memory = Careless()
    short = memory.put(bytes(7)).id
    for node in (tensor(blobs=[[short, 8]]), {"$bytes": [[short, 5_000]]}):
        refused(manifest_of(memory, canonical.encode(node)), memory, "bytes, found 7", "load", "lazy", "find")


def test_trees_that_multiply_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few trees that refer to each other a thousand times each would be endless; reading them ends early."""
    monkeypatch.setattr(reader, "MAX_EXPANDED_BYTES", 1 << 22)
    memory = Memory()
    node = list_text([b'"' + b"x" * 60_000 + b'"'] * 2, memory.put)
    for _ in range(6):
        node = list_text([node] * 1_000, memory.put)
    assert sum(map(len, memory.blobs.values())) < 1 << 21
    ref = manifest_of(memory, node)
    refused(ref, memory, "at most 4194304 bytes of trees")
    monkeypatch.setattr(reader, "MAX_EXPANDED_BYTES", 1 << 25)
    assert {node.ref.id for node in walk(ref, memory.tree, seen={})} == set(memory.blobs)


ODD: list[Any] = [
    None, True, False, 0, 1, -1, 8, 1 << 53, "", "a", "$tie", "F32", "big", "0x" + "f" * 20, "7ff8000000000000", [], {},
    [[]], [0], ["a"], [1, 2], BLOB, [BLOB], {"$tie": ["a"]}, {"$tie": []}, {"$list": []}, {"$dict": [BLOB]},
    {"$int": "0x1"}, {"$tuple": []}, {"$tuple": {"$list": [BLOB]}}, {"$map": {"type": "dict", "pairs": [[1, 2]]}},
    {"$bytes": ""}, {"$str": []}, {"$tensor": {"dtype": "F32", "shape": [0], "blobs": []}}, {"$float": "0.5"},
    {"$scalar": {"dtype": "timedelta64", "data": "00" * 8}}, {"$scalar": {"dtype": "BF16", "data": "0000"}},
    {"$complex": ["0.0", "1.0"]},
]  # fmt: skip


def examples() -> list[tuple[Memory, BlobRef]]:
    """Makes a few good commits that hold every kind of value between them."""
    array = np.arange(6, dtype="f4").reshape(2, 3)
    state = {
        "a": {"w": array, "v": array, "big": array.astype(">f8"), "none": np.zeros((2, 0))},
        "b": [0.5, 1 << 60, 2j, (1, (2,)), {1: array, "x": np.float32(1), (2, b"k"): []}, "\ud800", b"x" * 5_000],
        "c": {"w": array, "again": array, "s": "é" * 40_000},
    }
    split = {
        "d": {f"k{number}": [number, "x" * 220] for number in range(300)},
        "e": ["x" * 220] * 300,
        "f": dict.fromkeys(range(300), ("x" * 220, array)),
    }
    found = []
    for value in (state, split):
        memory = Memory()
        found.append((memory, memory.save(value)))
    return found


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Lists the places in a JSON value: container and key."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict | list):
            for key in node if isinstance(node, dict) else range(len(node)):
                found.append((node, key))
                stack.append(node[key])
    return found


def mutate(tree: Any, chance: random.Random) -> Any:
    """Changes one place of a tree: replaces, removes, repeats or swaps."""
    box = [tree]
    holder, key = chance.choice(spots(box))
    kind = chance.choice(["odd", "odd", "odd", "number", "remove", "move", "repeat"])
    if kind == "odd":
        holder[key] = json.loads(json.dumps(chance.choice(ODD)))
    elif kind == "number" and type(holder[key]) is int:
        holder[key] += chance.choice([1, -1, 1 << 40])
    elif kind == "move":
        other, place = chance.choice(spots(box))
        holder[key], other[place] = json.loads(json.dumps([other[place], holder[key]]))
    elif isinstance(holder, list) and holder is not box:
        holder[key : key + 1] = [holder[key]] * (2 if kind == "repeat" else 0)
    elif isinstance(holder, dict):
        holder[str(key) + "x" if kind == "repeat" else chance.choice(["$tie", "a", "$"])] = holder.pop(key)
    return box[0]


def relinked(memory: Memory, root: BlobRef, old: BlobRef, new: bytes) -> tuple[Memory, BlobRef]:
    """Puts a changed tree in the place of an old one, and changes all references up to the manifest."""
    changed = Memory()
    changed.blobs.update(memory.blobs)
    todo = [(old, changed.put(new))]
    while todo:
        before, after = todo.pop()
        if before == root:
            return changed, after
        texts = (canonical.encode(list(before)), canonical.encode(list(after)))
        for ref in list(memory.trees):
            data = changed.blobs[ref]
            if texts[0] in data:
                todo.append((BlobRef(ref, len(memory.blobs[ref])), changed.put(data.replace(*texts))))
                break
    return changed, root


@settings(
    max_examples=300, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.integers(0, 1 << 64))
def test_mutated_trees_raise_nothing_but_errors_of_cairn(seed: int) -> None:
    """Any change to any tree of a commit ends in a CairnError, or still is a commit: the one its state would make."""
    chance = random.Random(seed)
    if not GOOD:
        GOOD.extend(examples())
    memory, root = GOOD[chance.random() < 0.25]
    name = chance.choice(sorted(memory.trees))
    tree = mutate(json.loads(memory.blobs[name]), chance)
    try:
        data = canonical.encode(tree)
    except (TypeError, ValueError):
        return
    changed, ref = relinked(memory, root, BlobRef(name, len(memory.blobs[name])), data)
    for read in READERS.values():
        with contextlib.suppress(CairnError):
            read(ref, changed)
    with contextlib.suppress(Damaged):
        state = load(ref, changed, None, copy=False)
        assert changed.save(state) == ref


GOOD: list[tuple[Memory, BlobRef]] = []
