"""diff: every kind of change is named, where it is and nowhere else, and what is the same is not read."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import cairn
from cairn.errors import Damaged, Dropped, NotFound, UsageError
from cairn.ids import BlobRef
from cairn.objects.blobs import Blobs
from cairn.state.paths import Scalar
from cairn.store.core import Core
from cairn.store.diff import Change, Diff

W = np.arange(6.0).reshape(2, 3)
V = W + 0.5
STATE: dict[str, Any] = {
    "model": {"w": W, "head": W, "bias": V, "note": "plain", "layers": [{"k": W + 1}, {"k": W + 2}]},
    "optimizer": OrderedDict([("m", {0: W * 2, 1: V * 3}), ("betas", (0.9, 0.99))]),
    "rng": (1, [2, 3], None),
}
LONG = "x" * 70_000


def compared(store: cairn.Store, before: dict[str, Any], after: dict[str, Any], **options: Any) -> Diff:
    """Commit two states and compare them."""
    run = store.run()
    return store.diff(run.commit(before).id, run.commit(after).id, **options)


def kinds(found: Diff) -> dict[str, tuple[str, ...]]:
    """The changes in short."""
    return {change.path: change.kinds for change in found.changes}


def with_model(**changes: Any) -> dict[str, Any]:
    """The state with other entries in its model."""
    return {**STATE, "model": {**STATE["model"], **changes}}


def only(found: Diff) -> Change:
    """The one change."""
    assert len(found.changes) == 1, kinds(found)
    return found.changes[0]


def nan(payload: int) -> float:
    """A NaN with its bits."""
    return float(np.array(0x7FF8000000000000 + payload, np.uint64).view(np.float64))


def test_equal_states_are_told_without_reading_a_blob(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commits of one manifest: the answer needs their ids only, even after the content was dropped."""
    run = store.run()
    run.commit(STATE, step=1)
    run.commit(with_model(w=V), step=2)
    run.commit({name: STATE[name] for name in STATE}, step=3)
    store.drop(["step:1"])

    def read(blobs: Blobs, ref: BlobRef) -> memoryview:
        raise AssertionError(f"read {ref}")

    monkeypatch.setattr(Blobs, "read", read)
    found = store.diff("step:1", "step:3")
    assert found == Diff(store.commit("step:1"), store.commit("step:3"), None, True, (), ())


def test_equal_states_are_told_without_numpy(store: cairn.Store) -> None:
    """A script that asks whether a resumed state is the same starts fast."""
    store.run().commit(STATE, step=1)
    look = f"same = cairn.open({str(store.path)!r}).diff('latest', 'step:1').same"
    script = f"import sys, cairn; {look}; print(same, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_a_component_of_the_same_tree_is_not_read(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each commit the manifest and the tree of the changed component are read, and the two tensors that differ."""
    run = store.run()
    before, after = run.commit(STATE), run.commit(with_model(bias=V + 1))
    trees, blobs = [], []
    tree, data = Core.tree, Core.data

    def read_tree(core: Core, ref: BlobRef) -> bytes:
        trees.append(ref)
        return tree(core, ref)

    def read_data(core: Core, refs: list[BlobRef]) -> memoryview:
        blobs.extend(refs)
        return data(core, refs)

    monkeypatch.setattr(Core, "tree", read_tree)
    monkeypatch.setattr(Core, "data", read_data)
    found = store.diff(before.id, after.id)
    assert kinds(found) == {"model/bias": ("changed",)}
    assert len(trees) == 4
    assert [ref.size for ref in blobs] == [V.nbytes, V.nbytes]
    assert [(part.name, part.status, part.equal_tensors) for part in found.components] == [
        ("model", "changed", 3),
        ("optimizer", "same", None),
        ("rng", "same", None),
    ]
    trees.clear()
    blobs.clear()
    assert kinds(store.diff(before.id, after.id, values=False)) == {"model/bias": ("changed",)}
    assert (len(trees), blobs) == (4, [])


RNG_REMOVED: dict[str, tuple[str, ...]] = {f"rng/{path}": ("removed",) for path in ("0", "1/0", "1/1", "2")}
CHANGES: list[tuple[dict[str, Any], dict[str, tuple[str, ...]]]] = [
    (with_model(bias=V * 2), {"model/bias": ("changed",)}),
    (with_model(bias=V.reshape(3, 2)), {"model/bias": ("reshaped",)}),
    (with_model(bias=V.T), {"model/bias": ("reshaped", "changed")}),
    (with_model(bias=np.zeros((4, 3))), {"model/bias": ("reshaped",)}),
    (with_model(bias=V.astype("f4")), {"model/bias": ("retyped",)}),
    (with_model(bias=(V + 0.1).astype("f4")), {"model/bias": ("retyped", "changed")}),
    (with_model(bias=V.astype("f4").reshape(6)), {"model/bias": ("reshaped", "retyped")}),
    (with_model(bias=V.astype(">f8")), {"model/bias": ("byteswapped",)}),
    (with_model(bias=(V * 2).astype(">f8")), {"model/bias": ("byteswapped", "changed")}),
    (with_model(head=W.copy()), {"model/head": ("retied",)}),
    (with_model(head=W + 1), {"model/head": ("retied", "changed")}),
    (with_model(bias=W), {"model/bias": ("retied", "changed")}),
    (with_model(w=V * 2), {"model/w": ("changed",), "model/head": ("retied",)}),
    (with_model(new=W), {"model/new": ("added",)}),
    (with_model(bias=7), {"model/bias": ("replaced",)}),
    (with_model(bias=[]), {"model/bias": ("replaced",)}),
    (with_model(bias={"a": []}), {"model/bias": ("replaced",), "model/bias/a": ("added",)}),
    (with_model(note="other"), {"model/note": ("changed",)}),
    (with_model(note=LONG), {"model/note": ("changed",)}),
    (with_model(note=b"plain"), {"model/note": ("retyped",)}),
    (with_model(layers=({"k": W + 1}, {"k": W + 2})), {"model/layers": ("retyped",)}),
    (with_model(layers=[{"k": W + 1}]), {"model/layers/1/k": ("removed",)}),
    (with_model(layers=[{"k": W + 1}, {"k": W + 2}, 3]), {"model/layers/2": ("added",)}),
    ({**STATE, "model": dict(reversed(STATE["model"].items()))}, {"model": ("reordered",)}),
    ({**STATE, "model": OrderedDict(STATE["model"])}, {"model": ("retyped",)}),
    ({**STATE, "model": OrderedDict(reversed(STATE["model"].items()))}, {"model": ("retyped", "reordered")}),
    ({**STATE, "rng": (True, [2, 3], None)}, {"rng/0": ("retyped",)}),
    ({**STATE, "rng": (1, [2, 3.0], None)}, {"rng/1/1": ("retyped",)}),
    ({**STATE, "rng": (1, [2, 3], {})}, {"rng/2": ("replaced",)}),
    ({**STATE, "rng": (1, [], None)}, {"rng/1/0": ("removed",), "rng/1/1": ("removed",)}),
    ({**STATE, "rng": {}}, {"rng": ("retyped",), **RNG_REMOVED}),
    ({**STATE, "extra": 1}, {"extra": ("added",)}),
    ({**STATE, "extra": {}}, {"extra": ("added",)}),
    ({name: STATE[name] for name in ("model", "optimizer")}, RNG_REMOVED),
    ({name: STATE[name] for name in reversed(STATE)}, {"": ("reordered",)}),
]  # fmt: skip


@pytest.mark.parametrize(("after", "expected"), CHANGES, ids=[" ".join(expected) for _, expected in CHANGES])
def test_each_kind_of_change_is_named_where_it_is(
    store: cairn.Store, after: dict[str, Any], expected: dict[str, tuple[str, ...]]
) -> None:
    """The change and nothing else; the way back has the same places."""
    found = compared(store, STATE, after)
    assert kinds(found) == expected
    back = store.diff(found.after.id, found.before.id)
    turned = {"added": "removed", "removed": "added"}
    assert kinds(back) == {path: tuple(turned.get(k, k) for k in found) for path, found in expected.items()}
    assert not found.same
    assert not compared(store, STATE, after, values=False).same


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        (nan(1), nan(2)),
        (1 << 60, (1 << 60) + 1),
        (1 << 5_000, -(1 << 5_000)),
        (np.float32(1), np.float64(1)),
        (np.float32(1), np.float32(2)),
        (complex(0, 0.0), complex(0, -0.0)),
        ("a", "b"),
        ("\ud800", "\ud801"),
        (LONG, LONG + "y"),
        (b"a" * 5_000, b"b" * 5_000),
        (None, False),
    ],
)
def test_plain_values_are_told_apart_as_the_store_does(store: cairn.Store, before: object, after: object) -> None:
    """Type and bits count; short values stand in the answer, numpy's scalars as trees hold them, long ones by size."""
    change = only(compared(store, {"x": {"v": before}}, {"x": {"v": after}}))
    assert change.path == "x/v"
    assert change.kinds == ("changed" if type(before) is type(after) else "retyped",)
    for value, side in ((before, change.before), (after, change.after)):
        assert side is not None
        if isinstance(value, np.generic):
            assert isinstance(side.value, Scalar)
        elif side.bytes:
            assert isinstance(value, str | bytes)
            assert (side.value, side.bytes) == (None, len(value))
        else:
            assert repr(side.value) == repr(value)


def test_keys_are_told_apart_by_type_and_bits(store: cairn.Store) -> None:
    """1, 1.0, "1" and NaNs of other bits are different keys, also inside tuples, where True is not 1."""
    keys = [1, "1", 2.0, nan(1), (nan(1), 1), (nan(1), True), b"1", None, np.float32(7), 3j]
    others = [1, "1", 2, nan(2), (nan(1), True), (nan(2), True), b"1", None, np.float64(7), -3j]
    found = compared(store, {"x": dict.fromkeys(keys, 0)}, {"x": dict.fromkeys(others, 0)})
    assert sorted((change.path, *change.kinds) for change in found.changes) == sorted(
        [
            ("x/2", "added"),
            ("x/2.0", "removed"),
            ("x/nan", "added"),
            ("x/nan", "removed"),
            ("x/(nan, True)", "added"),
            ("x/(nan, 1)", "removed"),
            ("x/F32(0x40e00000)", "removed"),
            ("x/F64(0x401c000000000000)", "added"),
            ("x/3j", "removed"),
            ("x/(-0-3j)", "added"),
        ]
    )


def test_a_change_says_what_stood_and_stands_there(store: cairn.Store) -> None:
    """Type, shape, byte order, size and tie of a tensor on both sides."""
    found = compared(store, STATE, with_model(head=V.astype(">f4").T))
    change = only(found)
    assert (change.path, change.component, change.kind, change.file) == ("model/head", "model", "tensor", None)
    assert change.kinds == ("retied", "reshaped", "retyped")
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    assert (before.dtype, before.shape, before.byte_order, before.bytes, before.tie) == (
        "F64",
        (2, 3),
        "little",
        48,
        "model/w",
    )
    assert (after.dtype, after.shape, after.byte_order, after.bytes, after.tie) == ("F32", (3, 2), "big", 24, None)
    assert found.components[0].counts == {"tensor": {"retied": 1, "reshaped": 1, "retyped": 1}}


def test_changes_are_sorted_with_numbers_by_their_value(store: cairn.Store) -> None:
    """layers/2 comes before layers/10, and parts of a value before its longer namesakes."""
    names = ["layers", "layers.1", "b", "a10", "a9"]
    before = {"z": {name: list(range(11)) for name in names}, "m": {name: [0] for name in names}}
    after = {"z": {name: [-1, *range(1, 9), 0, -1] for name in names}, "m": {name: [1] for name in names}}
    paths = [f"m/{name}/0" for name in ("a9", "a10", "b", "layers", "layers.1")]
    paths += [f"z/{name}/{at}" for name in ("a9", "a10", "b", "layers", "layers.1") for at in (0, 9, 10)]
    assert [change.path for change in compared(store, before, after).changes] == paths


# Ties.


def test_a_memory_that_changed_is_named_once(store: cairn.Store) -> None:
    """Weights that are tied before and after are one change, at their first place, in several components too."""
    other = W * 3
    before = {**STATE, "optimizer": {"w": W, "again": W}}
    after = {**with_model(w=other, head=other), "optimizer": {"w": other, "again": other}}
    assert kinds(compared(store, before, after)) == {"model/w": ("changed",)}


def test_ties_between_components_are_compared(store: cairn.Store) -> None:
    """A component of the same tree is read when only its tie to another was cut; everything that left is named."""
    before = {"a": {"w": W, "v": V}, "b": {"x": W, "y": W, "z": V}, "c": [V]}
    copy = W.copy()
    found = compared(store, before, {**before, "b": {"x": copy, "y": copy, "z": V}})
    assert kinds(found) == {"b/x": ("retied",), "b/y": ("retied",)}
    change = found.changes[1]
    assert change.before is not None
    assert change.after is not None
    assert (change.before.tie, change.after.tie) == ("a/w", "b/x")
    assert [(part.name, part.status, part.equal_tensors) for part in found.components] == [
        ("a", "same", 2),
        ("b", "changed", 1),
        ("c", "same", None),
    ]


def test_ties_to_what_is_left_out_do_not_count(store: cairn.Store) -> None:
    """A component alone is the same, whatever it was tied to; within it ties count."""
    before, after = {"a": [W], "b": [W, V, V]}, {"a": [W], "b": [W.copy(), V, V]}
    assert kinds(compared(store, before, after)) == {"b/0": ("retied",)}
    assert compared(store, before, after, path="b").same
    assert compared(store, before, after, only={"b"}).same
    found = compared(store, before, {"a": [W], "b": [W, V, V.copy()]})
    assert kinds(store.diff(found.before.id, found.after.id, "b")) == {"b/2": ("retied",)}
    assert store.diff(found.before.id, found.after.id, "b/2").same


def test_a_tie_whose_other_end_came_or_went_is_no_change_of_ties(store: cairn.Store) -> None:
    """The name that went is removed, although the JSON of the name that stays is another."""
    before = {"model": {"w": W, "head": W}}
    assert kinds(compared(store, before, {"model": {"head": W}})) == {"model/w": ("removed",)}
    assert kinds(compared(store, {"model": {"head": W}}, before)) == {"model/w": ("added",)}
    assert kinds(compared(store, before, {"model": {"head": W, "w": W}})) == {"model": ("reordered",)}


def test_the_same_json_can_be_another_tie(store: cairn.Store) -> None:
    """A tie names places of an OrderedDict by number, so a new order is another tie, or another value."""
    one, other = W, W + 1
    before = {"model": {"m": OrderedDict([("a", one), ("b", other)]), "tied": one}}
    after = {"model": {"m": OrderedDict([("b", other), ("a", one)]), "tied": other}}
    found = compared(store, before, after)
    assert kinds(found) == {"model/m": ("reordered",), "model/tied": ("retied", "changed")}
    after = {"model": {"m": OrderedDict([("c", other)]), "tied": other}}
    before = {"model": {"m": OrderedDict([("a", one)]), "tied": one}}
    found = compared(store, before, after)
    assert kinds(found) == {"model/m/a": ("removed",), "model/m/c": ("added",), "model/tied": ("changed",)}


# Large and long states.


def test_of_a_container_in_parts_only_the_change_is_named(store: cairn.Store) -> None:
    """Thousands of tensors stand in several trees."""
    arrays = {f"w{number}": np.array([number]) for number in range(3_000)}
    found = compared(store, {"x": arrays}, {"x": {**arrays, "w77": np.array([-1])}})
    assert kinds(found) == {"x/w77": ("changed",)}
    assert found.components[0].equal_tensors == 2_999
    numbers = list(range(30_000))
    found = compared(store, {"x": numbers}, {"x": [*numbers[:20_000], -1, *numbers[20_001:]]})
    change = only(found)
    assert (change.path, change.before and change.before.value) == ("x/20000", 20_000)


def test_containers_may_be_as_deep_as_the_store_keeps_them(store: cairn.Store) -> None:
    """A change at the bottom of a hundred lists."""
    before: Any = [1, W]
    after: Any = [2, W]
    for _ in range(99):
        before, after = [before], [after]
    change = only(compared(store, {"x": before}, {"x": after}))
    assert change.path == "x" + "/0" * 100


# What is asked for.


def test_a_path_limits_the_comparison(store: cairn.Store) -> None:
    """What is elsewhere is not looked at; a path may be on one side only; one on no side is not found."""
    before, after = STATE, {**with_model(bias=V * 2, layers=[{"k": W}]), "rng": 1}
    found = compared(store, before, after, path="model/layers")
    assert kinds(found) == {"model/layers/0/k": ("changed",), "model/layers/1/k": ("removed",)}
    assert (found.path, [part.name for part in found.components]) == ("model/layers", ["model"])
    ids = found.before.id, found.after.id
    assert kinds(store.diff(*ids, "model/layers/1")) == {"model/layers/1/k": ("removed",)}
    assert kinds(store.diff(*ids, 'model/"bias"')) == {"model/bias": ("changed",)}
    assert store.diff(*ids, "optimizer").same
    assert store.diff(*ids, "model/note").same
    assert store.diff(ids[0], ids[0], "model/note").same
    for path in ("model/typo", "nothing", "model/bias/0", "model/layers/2"):
        with pytest.raises(NotFound, match="expected"):
            store.diff(*ids, path)


def test_only_limits_the_comparison(store: cairn.Store) -> None:
    """Components by name, on one side at least; no str, and not together with a path."""
    found = compared(store, STATE, {**with_model(bias=V * 2), "rng": 1}, only={"rng", "optimizer"})
    assert kinds(found) == {"rng": ("replaced",), **RNG_REMOVED}
    ids = found.before.id, found.after.id
    with pytest.raises(NotFound, match="component 'typo': expected one of model, optimizer, rng"):
        store.diff(*ids, only={"typo"})
    with pytest.raises(UsageError, match="expected a set"):
        store.diff(*ids, only="rng")
    with pytest.raises(UsageError, match="expected one of them"):
        store.diff(*ids, "rng", only={"rng"})


def test_dropped_content_is_refused_unless_it_is_left_out(store: cairn.Store) -> None:
    """What is the same is the same, dropped or not; what would have to be read is named."""
    run = store.run()
    run.commit(STATE, step=1)
    run.commit({**with_model(bias=V * 2), "optimizer": W}, step=2)
    run.commit(STATE, step=3)
    store.drop(["step:1"], only={"optimizer", "rng"})
    with pytest.raises(Dropped, match=r"step 1 .*: optimizer was dropped"):
        store.diff("step:1", "step:2")
    with pytest.raises(Dropped):
        store.diff("step:2", "step:1", "optimizer/m")
    assert kinds(store.diff("step:1", "step:2", "model")) == {"model/bias": ("changed",)}
    assert kinds(store.diff("step:1", "step:2", only={"model", "rng"})) == {"model/bias": ("changed",)}
    assert store.diff("step:1", "step:2", "rng/1").same
    store.drop(["step:2"])
    with pytest.raises(Dropped, match=r"step 2 .* was dropped"):
        store.diff("step:1", "step:2", "model")
    assert store.diff("step:1", "step:3").same


def test_damage_is_found_where_it_has_to_be_read(store: cairn.Store) -> None:
    """A tensor that is the same on both sides may be damaged; one that differs may not."""
    run = store.run()
    run.commit(STATE, step=1)
    pack = next(store.path.glob("packs/*/*.safetensors"))
    run.commit(with_model(bias=V * 2), step=2)
    data = bytearray(pack.read_bytes())
    damaged = data.replace(W.tobytes(), (-W).tobytes())
    assert damaged != data
    pack.chmod(0o644)
    pack.write_bytes(damaged)
    with cairn.open(store.path) as again:
        assert kinds(again.diff("step:1", "step:2")) == {"model/bias": ("changed",)}
        pack.write_bytes(damaged.replace(V.tobytes(), W.tobytes()))
    with cairn.open(store.path) as again, pytest.raises(Damaged):
        again.diff("step:1", "step:2")
