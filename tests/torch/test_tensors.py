"""torch tensors come back bit for bit, as torch tensors, whatever their type, shape and place in memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.cairn.strategies import Memory
from tests.torch.common import DTYPES, back, bits, blobs_of, filled, raw, torch

import cairn
from cairn.errors import UnsupportedValue
from cairn.state.decode import load
from cairn.state.encode import sketch
from cairn.state.lazy import LazyState
from cairn.state.walk import leaves

SHAPES = [(3,), (2, 3), (2, 3, 4), (1, 4), (0,), (2, 0), (0, 3, 2)]


def laid_out(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Makes tensors of a shape that lie in memory in every way."""
    double = (*shape[:-1], 2 * shape[-1])
    found = {
        "c": filled(name, shape),
        "turned": filled(name, shape[::-1]).permute(*range(len(shape))[::-1]),
        "every second": filled(name, double)[..., ::2],
        "inside": filled(name, (shape[0] + 2, *shape[1:]))[1:-1],
        "expanded": filled(name, (1, *shape[1:])).expand(shape),
    }
    if len(shape) == 3:
        found["channels last"] = filled(name, (1, *shape)).permute(0, 2, 3, 1).clone().permute(0, 3, 1, 2)
    return found


@pytest.mark.filterwarnings("ignore:ComplexHalf")  # torch warns, once, when it copies one
@pytest.mark.parametrize("name", DTYPES)
def test_bf16_every_dtype_shape_and_layout_comes_back(name: str) -> None:
    """BF16, NONC, ZERO: values, dtype and shape are kept from any memory, in fresh, writable, contiguous tensors."""
    for shape in SHAPES:
        for layout, tensor in laid_out(name, shape).items():
            found = back(tensor)
            assert type(found) is torch.Tensor, layout
            assert found.is_contiguous()
            assert found.device.type == "cpu"
            assert not found.requires_grad
            assert found.untyped_storage().nbytes() == found.nbytes


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "float4_e2m1fn_x2"])
def test_bf16_no_dimension_stays_no_dimension(name: str) -> None:
    """BF16: a 0-d tensor is no tensor of one element."""
    assert back(filled(name, ())).shape == ()


def test_bf16_packed_values_are_counted_as_in_safetensors() -> None:
    """BF16: float4_e2m1fn_x2 is F4 of twice the last dimension; without a dimension there is nothing to count in."""
    memory = Memory()
    tensor = filled("float4_e2m1fn_x2", (2, 3))
    entry = next(leaves(memory.save({"x": tensor}), memory.tree))
    assert (entry.dtype, entry.shape, entry.nbytes) == ("F4", (2, 6), 6)
    with pytest.raises(UnsupportedValue, match=r"^x/w: .*float4_e2m1fn_x2.*reshape\(1\)"):
        sketch({"x": {"w": filled("float4_e2m1fn_x2", ())}})


def test_bf16_torch_and_numpy_share_their_blobs() -> None:
    """BF16: equal bits are one blob, whoever's they are, in trees that differ; each comes back as what it was."""
    pairs = {
        "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float32": np.float32,
        "complex32": ml_dtypes.complex32, "complex128": np.complex128, "uint16": np.uint16, "bool": np.bool_,
    }  # fmt: skip
    for name, twin in pairs.items():
        tensor = filled(name, (2, 3))
        array = np.frombuffer(raw(tensor), twin).reshape(2, 3)
        found = blobs_of(torch=tensor, numpy=array, turned=tensor.T.contiguous().T)
        assert found["torch"] == found["numpy"] == found["turned"]
        memory = Memory()
        assert memory.save({"x": tensor}) != memory.save({"x": array})
        loaded: Any = load(memory.save({"x": [tensor, array]}), memory, None)["x"]
        assert [type(item) for item in loaded] == [torch.Tensor, np.ndarray]
        arrays: Any = load(memory.save({"x": tensor}), memory, None, as_numpy=True)["x"]
        assert (arrays.dtype, arrays.tobytes()) == (np.dtype(twin), array.tobytes())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.ones(2, device="meta"), "meta"),
        (lambda: torch.eye(2).to_sparse(), "sparse_coo.*to_dense"),
        (lambda: torch.eye(2).to_sparse_csr(), "sparse_csr.*to_dense"),
        (lambda: torch.ones(2).to_mkldnn(), "mkldnn.*to_dense"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), r"qint8.*int_repr\(\)"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), r"nested.*unbind\(\)"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "NestedTensor"),
        (lambda: torch.nn.LazyLinear(2).state_dict()["weight"], "UninitializedParameter"),
        (lambda: torch.ones(2).as_subclass(type("Mine", (torch.Tensor,), {})), r"Mine; .*full_tensor\(\)"),
        (lambda: torch.empty(2, dtype=torch.uint4), r"uint4.*view\(torch\.uint8\)"),
        (lambda: torch.empty(2, dtype=torch.bits8), r"bits8.*view\(torch\.uint8\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore")  # torch warns that some of these are prototypes or on their way out
def test_bf16_other_tensors_are_refused_by_name(make: Any, reason: str) -> None:
    """BF16, RELOAD-01: what has no values of its own in one shape is refused with its path and what to do instead."""
    with pytest.raises(UnsupportedValue, match=rf"^model/layer/w: .*{reason}.*; nothing was written$"):
        sketch({"model": {"layer": {"w": make()}}})


def test_a_tensor_without_its_memory_is_refused() -> None:
    """A storage that was freed, as sharding does, is refused and not read; so is a tensor inside a transformation."""
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    part = torch.ones(4)
    part.untyped_storage().resize_(12)
    for tensor in (freed, part):
        with pytest.raises(UnsupportedValue, match=r"^x/w: .*storage was cut to (0|12) bytes"):
            sketch({"x": {"w": tensor}})

    def inside(tensor: Any) -> Any:
        with pytest.raises(UnsupportedValue, match=r"^x: .*inside a transformation"):
            sketch({"x": tensor})
        return tensor

    torch.func.vmap(inside)(torch.ones(2, 2))


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (torch.float32, r"str\(value\)"),
        (torch.device("cpu"), r"str\(value\)"),
        (torch.Size([2, 3]), r"tuple\(value\)"),
        (torch.Generator(), r"value\.get_state\(\)"),
        (torch.ones(2).untyped_storage(), "a tensor of it"),
        (torch.nn.Linear(2, 2), r"value\.state_dict\(\)"),
        (torch.optim.SGD([torch.ones(2, requires_grad=True)]), r"value\.state_dict\(\)"),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_other_values_of_torch_are_refused_with_a_hint(value: object, hint: str) -> None:
    """What is no tensor is refused with its path, and the way to what can be kept."""
    with pytest.raises(UnsupportedValue, match=rf"^x/k: .*store {hint}"):
        sketch({"x": {"k": value}})


def test_conj_lazy_views_are_resolved() -> None:
    """CONJ: conjugate and negative views hold their logical values, and are no ties of what they are views of."""
    x = torch.tensor([1 + 2j, 3 + 4j])
    found = back({"x": x, "y": x.conj(), "n": torch._neg_view(torch.tensor([1.0, 3.0])), "i": x.conj().imag})
    assert found["y"].tolist() == [1 - 2j, 3 - 4j]
    assert found["n"].tolist() == [-1, -3]
    assert found["i"].tolist() == [-2, -4]
    assert not any(tensor.is_conj() or tensor.is_neg() for tensor in found.values())
    assert len(set(blobs_of(x=x, y=x.conj()).values())) == 2
    assert back([x.conj(), x.conj()])[0].tolist() == [1 - 2j, 3 - 4j]


def test_cplx_complex_numbers_keep_their_bits() -> None:
    """CPLX: NaN, infinity and the sign of zero in both parts, in complex32 too; loading gives no warning."""
    for dtype in (torch.complex64, torch.complex128):
        back(torch.tensor([1 + 2j, complex(float("nan"), -float("inf")), complex(-0.0, 0.0)], dtype=dtype))
    halves = torch.tensor([1.0, 2.0, float("nan"), -float("inf"), -0.0, 0.0], dtype=torch.float16)
    assert back(halves.view(torch.complex32)).dtype == torch.complex32
    back(halves.view(torch.complex32)[:0])


def test_nonc_memory_order_never_matters() -> None:
    """NONC: channels_last, turned, skipping and expanded tensors share the blob of their C order."""
    grid = torch.arange(120.0).reshape(2, 3, 4, 5)
    row = torch.arange(6.0).reshape(2, 3)
    found = blobs_of(
        grid=grid, last=grid.to(memory_format=torch.channels_last), row=row, turned=row.T.contiguous().T,
        skip=torch.arange(12.0).div(2)[::2].reshape(2, 3), offset=torch.arange(-2.0, 6.0)[2:].reshape(2, 3),
    )  # fmt: skip
    assert found["grid"] == found["last"]
    assert found["row"] == found["turned"] == found["skip"] == found["offset"]
    assert back(grid.to(memory_format=torch.channels_last)).is_contiguous()


def test_zero_empty_tensors_keep_shape_and_dtype_and_are_not_tied() -> None:
    """ZERO: every empty shape comes back, one object under many names is many tensors, and none has a blob."""
    shapes = [(0,), (2, 0), (0, 2), (0, 3), (0, 0, 4)]
    state = {f"{name} {shape}": torch.empty(shape, dtype=getattr(torch, name)) for shape in shapes for name in DTYPES
             if name != "complex32"}  # fmt: skip
    found = back(state)
    assert len({id(tensor) for tensor in found.values()}) == len(state)
    memory = Memory()
    entries = leaves(memory.save({"x": [torch.empty(0, 3)] * 20}), memory.tree)
    assert [entry.kind for entry in entries] == ["tensor"] * 20
    assert set(memory.blobs) == memory.trees


def test_eqnt_sharing_is_of_memory_never_of_values() -> None:
    """EQNT: a is c and b only equals a; one blob holds all, and after a change in place c follows and b does not."""
    a, b = torch.ones(4), torch.ones(4)
    assert len(set(blobs_of(a=a, b=b, c=a).values())) == 1
    found = back({"a": a, "b": b, "c": a, "d": a.view(4)})
    found["a"] += 1
    assert found["c"] is found["d"] is found["a"]
    assert found["c"].tolist() == [2, 2, 2, 2]
    assert found["b"].tolist() == [1, 1, 1, 1]
    again = back(found)
    assert again["c"] is again["a"]


def test_ties_are_the_same_memory_in_the_same_way() -> None:
    """Only the very same view is a tie; a part, a turned view, other bits or another type of one storage is not."""
    base = torch.arange(6.0)
    state = {
        "a": base, "again": base[:], "detached": base.detach(), "part": base[:3], "rest": base[3:], "bits":
        base.view(torch.int32), "2d": base[None], "turned": base.reshape(2, 3).T, "numpy": base.numpy(),
        "parameter": torch.nn.Parameter(base), "frozen": torch.nn.Parameter(base, requires_grad=False),
    }  # fmt: skip
    memory = Memory()
    entries = leaves(memory.save({"x": state}), memory.tree)
    assert [entry.path[1] for entry in entries if entry.kind == "tie"] == ["again", "detached"]
    found = back(state)
    assert found["a"] is found["again"] is found["detached"]
    assert type(found["numpy"]) is np.ndarray


def test_ties_hold_between_components_and_lazily() -> None:
    """One memory in two components is one tensor after load, by whatever name a lazy state is touched."""
    shared = torch.arange(4.0)
    memory = Memory()
    ref = memory.save({"model": {"w": shared}, "optimizer": [shared, {"w": shared.clone()}]})
    found: Any = load(ref, memory, None)
    assert found["model"]["w"] is found["optimizer"][0]
    assert found["optimizer"][1]["w"] is not found["optimizer"][0]
    alone: Any = load(ref, memory, {"optimizer"})
    assert alone["optimizer"][0].tolist() == [0, 1, 2, 3]
    lazy: Any = LazyState(ref, memory)
    held = lazy["model"]["w"]
    assert lazy["optimizer"][0] is held


def test_parameters_come_back_as_parameters() -> None:
    """A Parameter stays one, frozen or not; of a plain tensor, requires_grad is no state, and neither is a graph."""
    weight = torch.nn.Parameter(torch.arange(3.0))
    frozen = torch.nn.Parameter(torch.tensor([1, 2]), requires_grad=False)
    half = torch.nn.Parameter(torch.arange(3.0).half())
    found = back([weight, frozen, half, weight])
    assert [type(item) for item in found] == [torch.nn.Parameter] * 4
    assert [item.requires_grad for item in found] == [True, False, True, True]
    assert found[0] is found[3]
    assert found[0].is_leaf
    result = (weight * 2).sum()
    assert back({"w": torch.ones(2, requires_grad=True), "loss": result})["loss"].requires_grad is False
    with torch.no_grad():
        found[0].add_(1)
    (found[0] * 2).sum().backward()
    assert found[0].grad.tolist() == [2, 2, 2]


def test_a_contiguous_tensor_is_hashed_through_its_own_memory() -> None:
    """No copy is made of what already lies in C order; everything else is copied when it is read."""
    for name in DTYPES:
        tensor = filled(name, (64,))
        (leaf,) = sketch({"x": tensor}).components["x"]
        data = np.frombuffer(leaf.data(), np.uint8)
        assert data.__array_interface__["data"][0] == tensor.data_ptr()
        assert leaf.nbytes == tensor.nbytes
        assert leaf.itemsize == tensor.dtype.itemsize
    wide = torch.arange(8.0)[::2]
    (leaf,) = sketch({"x": wide}).components["x"]
    wide[0] = 7
    assert bytes(leaf.data()) == raw(wide)


def test_what_is_loaded_is_the_callers_own() -> None:
    """Tensors are never views of the store: writing into one changes nothing that is loaded later."""
    memory = Memory()
    ref = memory.save({"x": torch.zeros(4)})
    for _ in range(2):
        found: Any = load(ref, memory, None)["x"]
        assert found.tolist() == [0, 0, 0, 0]
        assert not found._is_view()
        found.fill_(3)


@pytest.mark.filterwarnings("ignore:ComplexHalf")  # torch warns, once, when it copies one
def test_reload_the_callers_defaults_do_not_matter() -> None:
    """RELOAD-01, TGEN: whatever device and dtype new tensors get at load, what comes back is on the CPU as it was."""
    state = {"rng": torch.get_rng_state(), "w": torch.arange(3.0), "e": torch.empty(0, 2), "p": torch.nn.Parameter(
        torch.ones(1)), "c": filled("complex32", (2,))}  # fmt: skip
    memory = Memory()
    ref = memory.save({"x": state})
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found: Any = load(ref, memory, None)["x"]
            assert memory.save({"x": found}) == ref
    finally:
        torch.set_default_dtype(torch.float32)
    assert bits(found) == bits(state)
    assert all(tensor.device.type == "cpu" for tensor in found.values())
    torch.set_rng_state(found["rng"])


def test_reload_a_store_is_listed_and_read_without_what_made_it(store: cairn.Store) -> None:
    """RELOAD-01: no device is recorded, a tensor on none is refused before anything is written, no torch is needed."""
    run = store.run()
    with pytest.raises(UnsupportedValue, match=r"^model/b: .*meta.*nothing was written$"):
        run.commit({"model": {"w": torch.ones(2), "b": torch.ones(2, device="meta")}}, step=1)
    assert store.runs() == []
    assert list(store.path.glob("packs/*/*")) == []
    run.commit({"model": {"w": torch.ones(2, 3, dtype=torch.bfloat16, device="cpu"), "n": 3}}, step=1)
    script = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'jax')))\n"
        "import cairn; store = cairn.open(sys.argv[1]); assert store.verify().ok\n"
        "print([(item.path, item.dtype, item.shape) for item in store.ls('latest', 'model')])\n"
        "print(store.load('latest', as_numpy=True)['model']['w'].astype('f4').sum())"
    )
    done = subprocess.run([sys.executable, "-c", script, str(store.path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[('model/w', 'BF16', (2, 3)), ('model/n', 'int', None)]\n6.0\n"
    assert not [path for path in store.path.glob("packs/*/*") if b"cpu" in path.read_bytes()]


def test_dtype_nothing_is_ever_cast() -> None:
    """DTYPE: 16777217 stays 16777217 in int32, and float32 stays float32, whatever else is in the state."""
    found = back({"w": torch.tensor([16777217.0, 0.1]), "n": torch.tensor([16777217], dtype=torch.int32)})
    assert found["n"].item() == 16777217
    assert found["w"].dtype == torch.float32


def test_many_small_tensors_are_quick() -> None:
    """A state of ten thousand tensors, half of them ties, is described, stored and loaded in a few seconds."""
    rows = torch.arange(10_000.0).reshape(5_000, 2)
    state = {f"layers.{number}.w": row for number, row in enumerate(rows)}
    state |= {f"{name}.tied": row[:] for name, row in state.items()}
    memory = Memory()
    found: Any = load(memory.save({"x": state}), memory, None)["x"]
    assert len({id(tensor) for tensor in found.values()}) == 5_000
