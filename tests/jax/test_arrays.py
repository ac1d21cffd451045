"""jax's arrays and keys come back bit for bit, as jax's; what would not is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from tests.cairn.strategies import Memory
from tests.jax.common import DTYPES, IMPLEMENTATIONS, LONG, SMALL, back, bits, filled, jax, jnp

import cairn
from cairn.errors import CairnError, UnsupportedValue
from cairn.state import jax_values
from cairn.state.decode import load
from cairn.state.encode import Leaf, sketch
from cairn.state.lazy import LazyState
from cairn.state.walk import leaves

SHAPES = [(), (3,), (2, 3), (1, 4, 2), (0,), (2, 0)]


def leaf_of(array: Any) -> Leaf:
    """Gives the leaf of a state that is one array."""
    return sketch({"x": array}).components["x"][0]


def weak_ones(number: complex, count: int) -> Any:
    """Repeats what a Python number is to jax."""
    return jnp.broadcast_to(jnp.asarray(number), (count,))


def is_mapped(array: Any) -> bool:
    """Tells whether an array lies in a pack that is mapped into memory."""
    ranges = [
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if "safetensors" in line
    ]
    return any(int(start, 16) <= array.unsafe_buffer_pointer() < int(end, 16) for start, end in ranges)


def sharded(array: Any, *axes: str | None) -> Any:
    """Spreads an array over both devices along the axis "both", or copies it to each."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("both",))
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)))


@pytest.mark.parametrize("name", DTYPES)
def test_bf16_every_dtype_and_shape_comes_back(name: str) -> None:
    """BF16, ZERO: values, dtype and shape are kept, in fresh arrays on the default device."""
    for shape in SHAPES:
        array = filled(name, shape)
        with jax.enable_x64(name in LONG):
            found = back({"a": array})["a"]
        assert isinstance(found, jax.Array)
        assert found.devices() == {jax.devices()[0]}
        assert not found.weak_type


@pytest.mark.parametrize("name", DTYPES)
def test_jax_and_numpy_share_their_blobs(name: str) -> None:
    """The same values are the same blobs, whosever they are, and `as_numpy` gives numpy's."""
    memory = Memory()
    array = filled(name, (2, 3))
    ref = memory.save({"jax": array, "numpy": np.asarray(array)})
    first, second = leaves(ref, memory.tree)
    assert (first.blobs, first.dtype, first.shape, first.nbytes) == (
        second.blobs, second.dtype, second.shape, second.nbytes,
    )  # fmt: skip
    found: Any = load(ref, memory, None, as_numpy=True)
    assert [type(item) for item in found.values()] == [np.ndarray, np.ndarray]
    assert bits(found["jax"]) == bits(found["numpy"]) == bits(np.asarray(array))


def test_nan_payloads_signed_zeros_and_denormals_are_kept() -> None:
    """No number passes through arithmetic: quiet and signalling NaNs keep every bit, denormals are not flushed."""
    for raw, dtype in (
        (np.array([0x7F800001, 0xFFC12345, 0x80000000, 0x00000001], np.uint32), np.float32),
        (np.array([0x7C01, 0xFE55, 0x8000, 0x0001], np.uint16), np.float16),
        (np.array([0x7F81, 0xFFC1, 0x8000, 0x0001], np.uint16), ml_dtypes.bfloat16),
    ):
        found = back(jnp.array(raw.view(dtype)))
        assert np.asarray(found).view(raw.dtype).tolist() == raw.tolist()


@pytest.mark.parametrize("number", [1, 1.5, 1j])
def test_weak_types_stay_weak(number: complex) -> None:
    """What a Python number became promotes as before when it is loaded, of any shape, also inside jit."""
    found = back(
        {"0": jnp.asarray(number), "2": weak_ones(number, 2), "none": weak_ones(number, 0), "strong": jnp.ones(2)}
    )
    assert [item.weak_type for item in found.values()] == [True, True, True, False]
    half = jnp.ones(2, jnp.bfloat16)
    jnp.add(jnp.ones(2, found["2"].dtype), half)  # What jit has compiled for a strong type is not used for a weak one.
    for add in (jnp.add, jax.jit(jnp.add)):
        expected = [add(jnp.asarray(number), half).dtype, jnp.float32]
        assert [add(item, half).dtype for item in (found["2"], found["strong"])] == expected


@pytest.mark.parametrize(
    "mode",
    [
        lambda: jax.debug_nans(True),
        lambda: jax.transfer_guard("disallow"),
        lambda: jax.disable_jit(),
        lambda: jax.enable_x64(True),
    ],
)
def test_modes_that_find_mistakes_do_not_stand_in_the_way(mode: Callable[[], Any]) -> None:
    """Committing and loading are no computation: a NaN is kept while NaNs are hunted, and so on."""
    nan, key = jnp.full(3, jnp.nan), jax.random.key(3)
    weak = jnp.broadcast_to(jnp.asarray(float("nan")), (2,))
    with mode():
        memory = Memory()
        found: Any = load(memory.save({"x": [nan, weak, key]}), memory, None)["x"]
    assert bits(found) == bits([nan, weak, key])


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_random_keys_draw_on(impl: str) -> None:
    """Keys of each implementation of jax's come back as keys, of any shape, and draw the same numbers."""
    key = jax.random.key(7, impl=impl)
    found = back({"one": key, "many": jax.random.split(key, (2, 3)), "none": jax.random.split(key, (0,)), "raw": 1})
    assert jax.random.uniform(found["one"], (4,)).tolist() == jax.random.uniform(key, (4,)).tolist()
    assert found["many"].shape == (2, 3)
    memory = Memory()
    words: Any = load(memory.save({"x": key}), memory, None, as_numpy=True)["x"]
    assert words.dtype == np.uint32
    assert words.tolist() == jax.random.key_data(key).tolist()
    back({"raw": jax.random.PRNGKey(3)})


@pytest.mark.parametrize("name", LONG)
def test_long_numbers_are_never_cut_short(name: str, store: cairn.Store) -> None:
    """Where jax has no 64 bits, loading what has them says how to get them, and `as_numpy` gives them."""
    array = filled(name, (3,))
    run = store.run()
    run.commit({"x": {"a": array}}, step=1)
    for read in (run.load, lambda: run.open()["x"]["a"], lambda: store.cat("latest", "x/a")):
        with pytest.raises(CairnError, match=rf"^x/a: .*{name}.*jax_enable_x64.*as_numpy=True"):
            read()
    assert bits(run.load(as_numpy=True)["x"]["a"]) == bits(np.asarray(array))
    with jax.enable_x64(True):
        assert bits(run.load()["x"]["a"]) == bits(array)


def test_a_kind_that_this_jax_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What jax refuses to make is no traceback of its own: the message names the value, the version and the way out."""
    memory = Memory()
    ref = memory.save({"x": filled("int4", (3,))})

    def refuse(*_: object, **__: object) -> None:
        raise TypeError("int4 is no type")

    monkeypatch.setattr(jax, "device_put", refuse)
    with pytest.raises(CairnError, match=rf"^x: .*int4, found jax {jax.__version__}.*as_numpy=True"):
        load(ref, memory, None)


def test_the_same_array_twice_comes_back_as_one() -> None:
    """TIED: an array that occurs twice is one tensor, within a component and across; two over one memory are two."""
    one, key = jnp.arange(4.0), jax.random.key(1)
    other = one.addressable_data(0)
    assert other.unsafe_buffer_pointer() == one.unsafe_buffer_pointer()
    memory = Memory()
    ref = memory.save({"model": {"a": one, "b": one, "c": other, "k": key}, "average": [one, key]})
    found: Any = load(ref, memory, None)
    assert found["model"]["a"] is found["model"]["b"] is found["average"][0]
    assert found["model"]["k"] is found["average"][1]
    assert found["model"]["c"] is not found["model"]["a"]
    lazy: Any = LazyState(ref, memory)
    held = lazy["model"]["a"]
    assert lazy["model"]["b"] is held is lazy["average"][0]
    assert memory.save(found) == ref


@pytest.mark.parametrize("axes", [("both",), (None, "both"), ()])
def test_arrays_on_several_devices_come_back_whole(axes: tuple[str | None, ...]) -> None:
    """An array in shards or copies is its values: the same blobs as on one device, and on one device when loaded."""
    array = jnp.arange(8.0).reshape(2, 4)
    found = back({"a": sharded(array, *axes), "k": sharded(jax.random.split(jax.random.key(0), 2), *axes[:1])})
    assert found["a"].devices() == found["k"].devices() == {jax.devices()[0]}
    assert bits(found["a"]) == bits(array)


def test_no_snapshot_copies_what_cannot_change() -> None:
    """The bytes of an array on the CPU are its own memory, and a leaf is not read before it is asked."""
    array = jnp.arange(1 << 12)
    leaf = leaf_of(array)
    assert leaf.is_immutable
    assert not leaf.is_private
    data = leaf.data()
    assert data.readonly
    assert np.frombuffer(data, np.uint8).ctypes.data == array.unsafe_buffer_pointer()
    assert leaf_of(jax.random.key(0)).is_immutable
    assert not leaf_of(np.arange(3)).is_immutable


@pytest.mark.parametrize("name", ["float32", *SMALL])
def test_no_copy_stays_with_the_array(name: str) -> None:
    """What had to be copied to be read is given back: jax does not keep it with an array that lives on."""
    array = filled(name, (64,))
    leaf_of(array).data()
    assert array._npy_value is None


def test_held_bytes_outlive_donation_and_deletion() -> None:
    """Bytes that a commit holds stay what they were while jitted steps are given the arrays to overwrite."""

    def step(values: Any, keys: Any) -> tuple[Any, Any]:
        return values * 2 + 1, jax.vmap(jax.random.fold_in, (0, None))(keys, 1)

    values, keys = jnp.arange(1 << 16, dtype=jnp.float32), jax.random.split(jax.random.key(0), 1 << 12)
    free = jax.jit(step, donate_argnums=(0, 1))(values + 0, jax.random.clone(keys))
    held = [leaf_of(values), leaf_of(keys)]
    before = [np.asarray(values).tobytes(), np.asarray(jax.random.key_data(keys)).tobytes()]
    for leaf in held:
        leaf.freeze(leaf.data())
    found = jax.block_until_ready(jax.jit(step, donate_argnums=(0, 1))(values, keys))
    assert bits(list(found)) == bits(list(free))
    values.delete()
    again = [jnp.full(1 << 16, 7.0) for _ in range(8)]
    assert [bytes(leaf.data()) for leaf in held] == before
    assert len(again) == 8


def test_an_array_that_was_given_away_is_an_error() -> None:
    """An array deleted or donated is refused with its path, and one that goes before it is read stops the commit."""
    step = jax.jit(lambda values: values + 1, donate_argnums=0)
    gone = jnp.arange(1 << 12, dtype=jnp.float32)
    leaf = leaf_of(gone)
    jax.block_until_ready(step(gone))
    assert gone.is_deleted()
    with pytest.raises(CairnError, match=r"^x: .*deleted.*nothing was published$"):
        leaf.data()
    with pytest.raises(UnsupportedValue, match=r"^model/w: .*deleted or donated; store what took its place"):
        sketch({"model": {"w": gone}})


def test_tracers_are_refused() -> None:
    """JIT: a value that jit, grad or vmap puts in the place of an array has no values yet."""

    def commit(value: Any) -> Any:
        sketch({"model": {"w": value}})
        return value.sum()

    for inside in (jax.jit(commit), jax.grad(commit), jax.vmap(commit)):
        with pytest.raises(UnsupportedValue, match=r"^model/w: .*tracer; commit outside of jax\.jit"):
            inside(jnp.ones((2, 2)))
    with pytest.raises(UnsupportedValue, match=r"^model/w: .*tracer"):
        jax.jit(commit)(jax.random.key(0))


def test_an_array_of_several_processes_is_refused() -> None:
    """What this process cannot read is refused with the way to gather it."""
    spread = SimpleNamespace(is_deleted=bool, is_fully_addressable=False, is_fully_replicated=False)
    assert "process_allgather" in str(jax_values.why_refused(spread))


def test_keys_of_an_unknown_implementation_are_refused() -> None:
    """Keys that only other code can go on with are refused by name."""
    random: Any = pytest.importorskip("jax.extend.random")
    impl = random.define_prng_impl(
        key_shape=(2,),
        seed=lambda seed: jnp.zeros(2, jnp.uint32) + seed.astype(jnp.uint32),
        split=lambda key, shape: jnp.zeros((*shape, 2), jnp.uint32),
        random_bits=lambda key, width, shape: jnp.zeros(shape, jnp.uint32),
        fold_in=lambda key, number: key,
        name="dice",
        tag="dice",
    )
    with pytest.raises(UnsupportedValue, match=r"^x/0: .*threefry2x32.*dice.*store jax\.random\.key_data\(value\)"):
        sketch({"x": [jax.random.key(1, impl=impl)]})


class Moments(NamedTuple):
    """A state as optax has it."""

    count: Any
    mean: Any


def test_what_jax_users_meet_is_refused_with_what_to_do() -> None:
    """Containers of jax's world are refused by name; jax takes them apart and puts them together."""
    state = Moments(jnp.zeros((), jnp.int32), {"w": jnp.ones(2)})
    with pytest.raises(
        UnsupportedValue, match=r"^optimizer/0: .*Moments; store jax\.tree\.leaves\(value\), and restore"
    ):
        sketch({"optimizer": [state]})
    found = back(jax.tree.leaves(state))
    assert bits(jax.tree.unflatten(jax.tree.structure(state), found)[1]) == bits(state.mean)
    with pytest.raises(UnsupportedValue, match=r"Ref; store value\[\.\.\.\]"):
        sketch({"x": jax.new_ref(jnp.ones(2))})
    with pytest.raises(UnsupportedValue, match="ShapeDtypeStruct; store an array"):
        sketch({"x": jax.eval_shape(lambda: jnp.ones(2))})


def test_loaded_arrays_lend_nothing_of_the_store(store: cairn.Store) -> None:
    """A loaded array has memory of its own, so a step may overwrite it, and the store keeps what it had."""
    run = store.run()
    run.commit({"x": jnp.arange(1 << 14, dtype=jnp.float32)}, step=1)
    mine = run.load()["x"]
    expected = np.arange(1 << 14, dtype=np.float32)
    assert not is_mapped(mine)
    assert not is_mapped(run.open()["x"])
    assert np.array_equal(jax.jit(lambda values: values * 0, donate_argnums=0)(mine), 0 * expected)
    assert np.array_equal(run.load()["x"], expected)
    assert store.verify().ok


def test_diff_tells_kinds_apart(store: cairn.Store) -> None:
    """An array that becomes weak, numpy's or a key is another value, though its bytes are the same."""
    run = store.run()
    run.commit({"x": {"a": jnp.asarray(1.5), "b": jnp.ones(2), "c": jnp.ones(3)}}, step=1)
    run.commit({"x": {"a": jnp.float32(1.5), "b": np.ones(2, np.float32), "c": jnp.ones(3)}}, step=2)
    assert [(change.path, change.kinds) for change in store.diff("step:1", "step:2").changes] == [
        ("x/a", ("retyped",)), ("x/b", ("retyped",)),
    ]  # fmt: skip
