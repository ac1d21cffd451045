"""Loading into arrays that are there: filled in place, or not touched at all."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe

import cairn


def state(value: float = 1) -> dict[str, Any]:
    """Make a state with a tie inside a component, one between components, and values that are no tensors."""
    weight, bias = np.full((30, 20), value), np.arange(5, dtype="i4") + int(value)
    return {
        "model": OrderedDict(embed=weight, head=weight, bias=bias, scalar=np.array(value), none=np.zeros((0, 3))),
        "optimizer": {"params": [weight, (bias + 1,)], "lr": value, "big": (np.arange(3) * value).astype(">f4")},
    }


def tensors(value: Any) -> list[Any]:
    """Return the arrays of a state, in order."""
    if isinstance(value, np.ndarray):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [array for item in values for array in tensors(item)]


def test_arrays_are_filled_in_place_and_returned(store: cairn.Store) -> None:
    """The state that comes back has the committed values in the very arrays that went in, ties included."""
    run = store.run()
    run.commit(state(1), step=1)
    run.commit(state(2), step=2)
    target = state(0)
    loaded = run.load(step=1, into=target)
    assert describe(loaded) == describe(state(1))
    assert [id(array) for array in tensors(loaded)] == [id(array) for array in tensors(target)]
    assert store.load("latest", into=target)["optimizer"]["lr"] == 2
    assert describe(target["model"]) == describe(state(2)["model"])
    assert run.resume(step=1, into=target)["model"]["embed"] is target["model"]["embed"]
    assert run.commit(state(5), step=5).parents == (store.commit("step:1").id,)


def test_arrays_that_do_not_lie_in_c_order_are_filled_right(store: cairn.Store) -> None:
    """Strided, Fortran-ordered, reversed, big-endian and misaligned targets get the values, and their gaps nothing."""
    values = np.arange(12.0).reshape(3, 4) + 1
    store.run().commit({"x": {name: values + at for at, name in enumerate("abcd")}, "y": values.astype(">c16")}, step=1)
    room = np.zeros((6, 8))
    raw = np.zeros(12 * 8 + 1, np.uint8)
    target: dict[str, Any] = {
        "x": {
            "a": room[::2, ::2],
            "b": np.asfortranarray(np.zeros((3, 4))),
            "c": np.zeros((3, 4))[::-1, ::-1],
            "d": raw[1:].view("f8").reshape(3, 4),
        },
        "y": np.zeros((4, 3), ">c16").T,
    }
    store.load("latest", into=target)
    for at, name in enumerate("abcd"):
        assert target["x"][name].tolist() == (values + at).tolist()
    assert target["y"].tolist() == values.tolist()
    assert room.sum() == values.sum()


def test_interleaved_arrays_are_no_overlap(store: cairn.Store) -> None:
    """Two views that lie across each other without a common element are two memories."""
    one, two = np.arange(4.0), np.arange(4.0) + 10
    store.run().commit({"x": [one, two]}, step=1)
    room = np.zeros(8)
    store.load("latest", into={"x": [room[::2], room[1::2]]})
    assert room.tolist() == [0, 10, 1, 11, 2, 12, 3, 13]


def test_only_fills_what_it_names(store: cairn.Store) -> None:
    """Components that are left out are neither filled nor asked for."""
    store.run().commit(state(3), step=1)
    target = state(0)
    loaded = store.load("latest", only={"model"}, into={"model": target["model"], "other": np.zeros(1)})
    assert list(loaded) == ["model"]
    assert describe(target["model"]) == describe(state(3)["model"])
    alone = {"optimizer": state(0)["optimizer"]}
    assert store.load("latest", only={"optimizer"}, into=alone)["optimizer"]["params"][0].sum() == 1800


def wrong() -> dict[str, tuple[Any, str]]:
    """Targets that do not fit, and what is said of them."""
    found: dict[str, tuple[Any, str]] = {}

    def case(name: str, expected: str, component: str, key: Any, value: Any) -> None:
        target = state(0)
        if value is None:
            del target[component][key]
        else:
            target[component][key] = value(target) if callable(value) else value
        found[name] = (target, expected)

    frozen = np.zeros(5, "i4")
    frozen.flags.writeable = False
    case("dtype", r"model/bias: expected I32 of shape \(5,\) .* found F32 of shape", "model", "bias", np.zeros(5, "f4"))
    case(
        "shape", r"model/bias: expected .*\(5,\).* found I32 of shape \(1, 5\)", "model", "bias", np.zeros((1, 5), "i4")
    )
    case("order", r"optimizer/big: expected F32 \(big-endian\)", "optimizer", "big", np.zeros(3, "f4"))
    case("read-only", "model/bias: expected an array in `into` that can be written", "model", "bias", frozen)
    case("missing", "model/bias: expected a tensor in `into`, found none", "model", "bias", None)
    case("number", "model/bias: expected an array of numpy .* found int", "model", "bias", 3)
    case("extra", "model/more: expected none.* found a tensor", "model", "more", np.zeros(2))
    case("instead", "optimizer/lr: expected none.* found a tensor", "optimizer", "lr", np.zeros(()))
    case("untied", "model/head: expected the memory of model/embed", "model", "head", np.zeros((30, 20)))
    case(
        "tied",
        "expected a memory of its own",
        "optimizer",
        "params",
        lambda t: [t["model"]["embed"], (t["model"]["bias"],)],
    )
    case("self", "elements with a memory of their own", "model", "bias", np.lib.stride_tricks.as_strided(
        np.zeros(1, "i4"), (5,), (0,), writeable=True))  # fmt: skip
    case("subclass", "model/bias: expected an array of numpy", "model", "bias", np.ma.zeros(5, "i4"))
    overlapping = state(0)
    room = np.zeros(9, "i4")
    overlapping["model"]["bias"], overlapping["optimizer"]["params"][1] = room[:5], (room[4:],)
    found["overlap"] = (overlapping, "expected a memory of its own.* found some of that of")
    without = state(0)
    del without["optimizer"]
    found["component"] = (without, "optimizer/params/0: expected a tensor")
    found["unknown"] = ({**state(0), "ema": [np.zeros(2)]}, "ema/0: expected none")
    return found


@pytest.mark.parametrize("name", wrong())
def test_what_does_not_fit_is_refused_before_anything_changes(store: cairn.Store, name: str) -> None:
    """Types, shapes, places and ties must be those of the commit: the error names the path, and no array is touched."""
    store.run().commit(state(7), step=1)
    target, expected = wrong()[name]
    before = describe(target)
    with pytest.raises(cairn.UsageError, match=expected) as error:
        store.load("latest", into=target)
    assert "no tensor was changed" in str(error.value)
    assert describe(target) == before


def test_into_takes_a_state_and_nothing_beside_it(store: cairn.Store) -> None:
    """A target that is no state, containers without end, and options that say otherwise are refused."""
    run = store.run()
    run.commit(state(), step=1)
    wrong_type: Any = np.zeros(3)
    endless: dict[str, Any] = {}
    endless["x"] = endless
    with pytest.raises(cairn.UsageError, match="expected a state"):
        run.load(into=wrong_type)
    with pytest.raises(cairn.UsageError, match="at most 100 containers"):
        run.load(into={"model": endless})
    with pytest.raises(cairn.UsageError, match="neither copy="):
        run.load(into=state(), copy=True)
    with pytest.raises(cairn.UsageError, match="neither copy="):
        run.load(into=state(), as_numpy=True)
    with pytest.raises(cairn.UsageError, match="threads"):
        run.load(threads=0)


def test_damage_leaves_the_target_as_it_was(store: cairn.Store) -> None:
    """Everything is checked before the first array is filled."""
    store.run().commit({"x": {f"w{n}": np.full(50_000, n + 1.0) for n in range(20)}}, step=1)
    pack = max(folders.packs(store.path), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    folders.write(pack, bytes(data))
    target = {"x": {f"w{n}": np.zeros(50_000) for n in range(20)}}
    with cairn.open(store.path) as again, pytest.raises(cairn.Damaged, match="expected bytes that hash to it"):
        again.load("latest", into=target)
    assert all(not array.any() for array in target["x"].values())
    with cairn.open(store.path) as far:
        far._core.blobs.mapped = False
        with pytest.raises(cairn.Damaged, match="what `into` holds is now undefined"):
            far.load("latest", into=target)
