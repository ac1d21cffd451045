"""What cannot be kept exactly is refused before anything is written, with its path and what to do instead."""

from __future__ import annotations

import enum
from collections import Counter, UserDict, defaultdict
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.cairn.strategies import Memory, exact

from cairn.errors import UnsupportedValue
from cairn.state import encode
from cairn.state.decode import load
from cairn.state.encode import sketch
from cairn.state.trees import MAX_DEPTH


class Colour(enum.IntEnum):
    """An int that is none."""

    RED = 1


class Config(dict[str, int]):
    """A dict that is more than a dict."""


class Fewer(Counter[str]):
    """A Counter that is more than a Counter."""


class Tensor:
    """Stands for another library's tensor."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros(1)


def nested(depth: int) -> object:
    """Makes so many lists inside each other."""
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Colour.RED, "store its .value"),
        (defaultdict(list), "the default factory is code"),
        (Fewer("a"), r"store dict\(value\)"),
        (Config(a=1), r"store dict\(value\)"),
        (UserDict(a=1), r"store dict\(value\)"),
        (np.ma.masked_array([1, 2], [False, True]), r"its \.data and its \.mask"),
        (np.zeros((1, 1)).view(np.matrix), r"numpy\.asarray"),
        (np.recarray(2, [("a", "f4")]), r"numpy\.asarray"),
        (np.zeros(1, [("a", "f4")])[0], "fields one by one"),
        (lambda: 0, "nothing is pickled"),
        (len, "nothing is pickled"),
        (object(), "nothing is pickled"),
        (Exception("x"), "nothing is pickled"),
        (memoryview(b"x"), r"store bytes\(value\)"),
        (Tensor(), "plain numpy array"),
        (type("Real", (float,), {})(1), r"store float\(value\)"),
        (np.dtype("f4"), "nothing is pickled"),
        (np.float32, "nothing is pickled"),
        (NotImplemented, "nothing is pickled"),
    ],
    ids=lambda value: value.replace("\\", "") if isinstance(value, str) else type(value).__name__,
)
def test_other_types_are_refused_with_a_hint(value: object, hint: str) -> None:
    """A type that would not come back is refused wherever it stands: in a list, in a dict, as a whole component."""
    with pytest.raises(UnsupportedValue, match=rf"^optimizer/state/0/m: .*{hint}.*; nothing was written$"):
        sketch({"model": 1, "optimizer": {"state": {0: {"m": value}}}})
    with pytest.raises(UnsupportedValue, match=rf"^rng: .*{hint}"):
        sketch({"rng": value})


def test_a_mapped_file_is_refused(tmp_path: Any) -> None:
    """A numpy.memmap is a view of a file that may change; only a plain array is kept."""
    mapped = np.memmap(tmp_path / "data", "f4", "w+", shape=3)
    with pytest.raises(UnsupportedValue, match=r"^x/w: .*memmap; store numpy\.asarray"):
        sketch({"x": {"w": mapped}})
    assert sketch({"x": {"w": np.asarray(mapped)}}).components["x"][0].nbytes == 12


def test_a_container_inside_itself_is_refused() -> None:
    """A cycle is refused at the place where it closes; a container that merely occurs twice is not."""
    ring: dict[str, object] = {"a": 1}
    ring["next"] = [ring]
    with pytest.raises(UnsupportedValue, match=r"^x/next/0: .*inside itself"):
        sketch({"x": ring})
    shared = [1]
    sketch({"x": [shared, shared], "y": shared})


def test_nesting_has_a_bound() -> None:
    """A hundred containers inside each other come back, a hundred and one are refused."""
    memory = Memory()
    state = {"x": nested(MAX_DEPTH)}
    assert exact(load(memory.save(state), memory, None, copy=False)) == exact(state)
    with pytest.raises(UnsupportedValue, match="at most 100 containers"):
        sketch({"x": nested(MAX_DEPTH + 1)})
    with pytest.raises(UnsupportedValue, match="at most 100 containers"):
        sketch({"x": nested(100_000)})


def test_the_deepest_maps_come_back() -> None:
    """Nesting costs maps the most JSON, and a hundred of them with tuples as keys still come back."""
    value: object = 0
    for _ in range(MAX_DEPTH):
        value = {(1,): value}
    memory = Memory()
    assert exact(load(memory.save({"x": value}), memory, None, copy=False)) == exact({"x": value})


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", ".a", "é", "a" * 101, 1, None, "a\n"])
def test_component_names_are_plain(name: Any) -> None:
    """A component is a short name of letters, digits, '.', '_' and '-'."""
    with pytest.raises(UnsupportedValue, match="component names"):
        sketch({name: 1})
    for good in ("a", "0", "train_rng", "a.b-c_D", "a" * 100):
        sketch({good: 1})


@pytest.mark.parametrize("state", [None, [], [("model", 1)], 1, "model", np.zeros(1)])
def test_a_state_is_a_mapping(state: Any) -> None:
    """A state that names no components is refused."""
    with pytest.raises(UnsupportedValue, match=r"^state: expected a mapping"):
        sketch(state)


def test_any_mapping_may_hold_the_components() -> None:
    """The outermost mapping only names components, so its own type does not matter."""
    memory = Memory()
    mapping: Mapping[str, object] = UserDict(model=1)
    assert load(memory.save(mapping), memory, None, copy=False) == {"model": 1}


@pytest.mark.parametrize(
    "key", ["k" * 65_537, "\ud800" * 2_000, b"k" * 4_097, ("k" * 40_000, "k" * 40_000), (((1, object()),),)],
    ids=["long str", "long surrogates", "long bytes", "long tuple", "object in tuple"],
)  # fmt: skip
def test_keys_are_short(key: Any) -> None:
    """A key that would need a blob or a part of its own is refused with the path of its dict."""
    with pytest.raises(UnsupportedValue, match=r"^x/d: expected .*keys.* list of pairs"):
        sketch({"x": {"d": {key: 1}}})


def test_data_has_a_bound() -> None:
    """Over a tebibyte, which a broadcast view has easily, is refused before it is looked at."""
    with pytest.raises(UnsupportedValue, match=r"^x/w: expected at most 1099511627776 bytes"):
        sketch({"x": {"w": np.broadcast_to(np.float64(0), (1 << 38,))}})


def test_ints_have_a_bound() -> None:
    """An int of a million digits is no number any more."""
    with pytest.raises(UnsupportedValue, match=r"^x: found an int of 5000001 bits"):
        sketch({"x": 1 << 5_000_000})


def test_trees_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that share their inside again and again would fill the store with text; so do lists of parts."""
    monkeypatch.setattr(encode, "MAX_EXPANDED_BYTES", 1 << 20)
    value: object = [0.5] * 1_000
    for _ in range(30):
        value = [value] * 1_000
    with pytest.raises(UnsupportedValue, match=r"^x/0.*bytes of trees.*nothing was written"):
        sketch({"x": value})
    monkeypatch.setattr("cairn.state.sketch.MAX_EXPANDED_BYTES", 17 * 60_003 + 50)
    memory = Memory()
    with pytest.raises(UnsupportedValue, match=r"^state: .*bytes of trees.*nothing was committed"):
        memory.save({"x": ["x" * 60_000] * 17})


def test_a_tie_names_its_place_briefly() -> None:
    """Keys so long that a tie could not name its place are refused while nothing is written."""
    array = np.zeros(1)
    value: object = array
    for _ in range(30):
        value = {"k" * 50_000: value}
    with pytest.raises(UnsupportedValue, match="shorten the keys"):
        sketch({"x": [value, array]})
    with pytest.raises(UnsupportedValue, match="shorten the keys"):
        sketch({"x": value, "y": array})


def test_dtypes_that_lose_something_are_refused() -> None:
    """Metadata of a dtype and a byte order of single bytes would not come back."""
    with pytest.raises(UnsupportedValue, match="metadata would be lost"):
        sketch({"x": np.zeros(1, np.dtype("f4", metadata={"unit": "m"}))})
    with pytest.raises(UnsupportedValue, match=r"^x: expected an array of numbers"):
        sketch({"x": np.zeros(1, np.dtype(ml_dtypes.int4).newbyteorder(">"))})


def test_everything_is_validated_before_anything_is_read() -> None:
    """The last value of the last component is judged before the first tensor's bytes are touched."""
    memory = Memory()
    with pytest.raises(UnsupportedValue, match=r"^z/0: "):
        memory.save({"a": np.zeros(3), "z": [{1}]})
    assert memory.blobs == {}


def test_a_leaf_knows_its_place() -> None:
    """Leaves come in the order of the state, by component, with a path, an element size and their bytes."""
    array = np.arange(4, dtype=">i2")
    plan = sketch({"model": {"w": array, "t": [array]}, "empty": 1, "rng": {0: (b"x" * 5_000, array.T, array[::2])}})
    assert list(plan.components) == ["model", "empty", "rng"]
    leaves = [(leaf.path, leaf.itemsize, leaf.nbytes) for found in plan.components.values() for leaf in found]
    assert leaves == [("model/w", 2, 8), ("rng/0/0", 1, 5_000), ("rng/0/2", 2, 4)]
    assert bytes(plan.components["model"][0].data()) == array.astype("<i2").tobytes()


def test_a_leaf_is_not_copied_when_its_memory_is_as_stored() -> None:
    """The bytes of a little-endian array in C order are the array's own memory."""
    array = np.zeros((3, 4))
    (leaf,) = sketch({"x": array}).components["x"]
    view = leaf.data()
    array[0, 0] = 1
    assert bytes(view) == array.tobytes()
    assert np.shares_memory(np.frombuffer(view, np.uint8), array)


def test_the_pieces_of_a_leaf_must_be_those_of_cut() -> None:
    """A caller that cuts otherwise is told so before it writes a tree that readers refuse."""
    memory = Memory()
    plan = sketch({"x": np.zeros(4)})
    (leaf,) = plan.components["x"]
    with pytest.raises(ValueError, match="pieces of cut"):
        plan.manifest({leaf: [memory.put(bytes(16)), memory.put(bytes(16))]}, memory.put_tree)
