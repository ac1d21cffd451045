"""States of torch tensors where torch is not: listed, verified, checked out, loaded as numpy, and never imported."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections import Counter, OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.cairn.strategies import Memory, exact, saved

import cairn
from cairn.errors import CairnError, UnsupportedValue
from cairn.files.plain import take_apart
from cairn.state import tensors
from cairn.state.decode import load
from cairn.state.encode import sketch
from cairn.state.find import find
from cairn.state.lazy import LazyState
from cairn.state.make import stored
from cairn.state.walk import leaves, walk
from cairn.store.provenance import provenance

KINDS = ("torch", "torch.nn.Parameter", "torch.nn.Parameter(requires_grad=False)")


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every import of torch fail, wherever the tests run."""
    monkeypatch.setitem(sys.modules, "torch", None)


def test_loading_says_how_to_do_without_torch(no_torch: None) -> None:
    """Without torch a tensor of torch's is an error that names it and the way out, and not damage."""
    memory, ref = saved(w=("F32", [2], "torch", bytes(8)))
    lazy: Any = LazyState(ref, memory)
    for read in (
        lambda: load(ref, memory, None),
        lambda: lazy.load(),
        lambda: lazy["model"]["w"],
        lambda: lazy["model"]["tied"],
        lambda: find(ref, memory, "model/w"),
    ):
        with pytest.raises(CairnError, match=r"^model/w: .*torch.* as_numpy=True") as error:
            read()
        assert error.type is CairnError


@pytest.mark.parametrize("kind", KINDS)
def test_as_numpy_gives_arrays(no_torch: None, kind: str) -> None:
    """RELOAD-01, BF16: with `as_numpy` each tensor is an array of its type and shape, and ties stay ties."""
    memory, ref = saved(
        w=("BF16", [2, 3], kind, bytes(range(12))), e=("F8_E4M3", [0, 2], kind, b""), s=("F64", [], kind, bytes(8))
    )
    found: Any = load(ref, memory, None, as_numpy=True)["model"]
    assert [(a.dtype.name, a.shape) for a in found.values()] == [
        ("bfloat16", (2, 3)), ("float8_e4m3fn", (0, 2)), ("float64", ()), ("bfloat16", (2, 3)),
    ]  # fmt: skip
    assert found["w"].tobytes() == bytes(range(12))
    assert found["tied"] is found["w"]
    assert not found["w"].flags.writeable
    assert load(ref, memory, None, copy=True, as_numpy=True)["model"]["w"].flags.writeable  # type: ignore[index]  # a dict at run time
    lazy: Any = LazyState(ref, memory, as_numpy=True)
    assert exact(lazy["model"]["w"]) == exact(found["w"]) == exact(find(ref, memory, "model/w", as_numpy=True))
    assert exact(lazy.load()["model"]) == exact(found)


def test_packed_values_are_bytes_to_numpy(no_torch: None) -> None:
    """BF16: two 4-bit values share a byte; trees count the values, as safetensors does, and numpy gets the bytes."""
    memory, ref = saved(q=("F4", [2, 6], "torch", bytes(range(6))))
    entry = next(leaves(ref, memory.tree))
    assert (entry.dtype, entry.shape, entry.nbytes) == ("F4", (2, 6), 6)
    found: Any = load(ref, memory, None, as_numpy=True)["model"]
    assert found["q"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["q"].dtype == np.uint8
    plain = take_apart(load(ref, memory, None, make=stored)["model"])
    assert [(t.name, t.dtype, t.shape, t.itemsize) for t in plain.tensors] == [("q", "F4", (2, 6), 1)]
    assert plain.ties == {"tied": "q"}


def test_reading_trees_needs_no_torch_and_no_numpy(tmp_path: Path) -> None:
    """RELOAD-01: what a commit of torch's needs and holds is listed with neither torch nor numpy installed."""
    memory, ref = saved(w=("F32", [2], "torch", bytes(8)))
    (tmp_path / "blobs.json").write_text(json.dumps({name: memory.blobs[name].hex() for name in memory.blobs}))
    script = (
        "import json, sys; sys.modules.update(dict.fromkeys(('torch', 'numpy', 'ml_dtypes')))\n"
        "from cairn.ids import BlobRef; from cairn.state.walk import leaves, walk\n"
        "blobs = json.load(open(sys.argv[1])); read = lambda ref: bytes.fromhex(blobs[ref.id])\n"
        f"root = BlobRef({ref.id!r}, {ref.size})\n"
        "print(len(list(walk(root, read))), [(e.kind, e.dtype, e.shape) for e in leaves(root, read)])"
    )
    run = [sys.executable, "-c", script, str(tmp_path / "blobs.json")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3 [('tensor', 'F32', (2,)), ('tie', 'F32', (2,))]"
    assert len(list(walk(ref, memory.tree))) == 3


def test_a_store_of_torch_tensors_serves_those_without(
    no_torch: None, store: cairn.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RELOAD-01: ls, verify, gc, cat, open and checkout work where torch is missing; `load` names the way out."""
    of_numpy = tensors._of_numpy
    monkeypatch.setattr(tensors, "_of_numpy", lambda array: of_numpy(array)._replace(ending=',"as":"torch"'))
    run = store.run()
    run.commit({"model": {"w": np.arange(6, dtype="f4").reshape(2, 3)}}, step=1)
    assert [item.dtype for item in store.ls("step:1", "model")] == ["F32"]
    assert store.verify().ok
    store.gc()
    for given in (
        store.load("step:1", as_numpy=True),
        run.load(step=1, as_numpy=True),
        run.resume(step=1, as_numpy=True),
        store.open("step:1", as_numpy=True),
        run.open(step=1, as_numpy=True),
    ):
        assert given["model"]["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert store.cat("step:1", "model/w", as_numpy=True).shape == (2, 3)
    store.checkout("step:1", tmp_path / "out")
    raw = (tmp_path / "out/model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    assert header["w"] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    for read in (lambda: store.load("step:1"), lambda: store.open("step:1")["model"]["w"]):
        with pytest.raises(CairnError, match="as_numpy=True"):
            read()


def test_a_training_run_without_torch_never_imports_it(tmp_path: Path) -> None:
    """Committing, loading, opening, listing and checking out numpy states asks nobody for torch or jax."""
    script = (
        "import sys, numpy as np\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        assert name.partition('.')[0] not in ('torch', 'jax'), name\n"
        "sys.meta_path.insert(0, Watch())\n"
        "import cairn; from pathlib import Path; folder = Path(sys.argv[1])\n"
        "with cairn.init(folder / 'store') as store:\n"
        "    run = store.run(); run.commit({'model': {'w': np.ones(3)}, 'o': [1, {2: (3,)}]}, step=1)\n"
        "    state = run.resume(); run.commit(state, step=2); run.open()['model']['w']; store.ls('latest', 'model')\n"
        "    store.checkout('latest', folder / 'out'); run.commit({'files': cairn.folder(folder / 'out')}, step=3)\n"
        "    assert store.verify().ok\n"
        "    store.gc(keep_last=1)\n"
        "print(sorted({'torch', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_module_that_only_calls_itself_torch_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of that name without tensors, or one still being imported, changes nothing."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert len(sketch({"x": [np.zeros(2)]}).components["x"]) == 1
    with pytest.raises(UnsupportedValue, match="nothing is pickled"):
        sketch({"x": object()})


def test_an_ordered_dict_keeps_the_attribute_of_state_dicts() -> None:
    """The `_metadata` of what torch's state_dict() returns is state, with tensors and ties like any other."""
    one = np.ones(3)
    state = OrderedDict(a=one, b=OrderedDict())
    vars(state)["_metadata"] = OrderedDict([("", {"version": 1}), ("w", [one, (2.5, one[::-1])])])
    memory = Memory()
    ref = memory.save({"model": state, "other": state})
    found: Any = load(ref, memory, None)
    assert exact(found) == exact({"model": state, "other": state})
    assert found["other"]["a"] is found["model"]._metadata["w"][0] is found["model"]["a"]
    lazy: Any = LazyState(ref, memory)
    assert exact(lazy["model"]._metadata) == exact(vars(state)["_metadata"])
    assert not hasattr(lazy["model"]["b"], "_metadata")
    listed = {"/".join(map(str, entry.path)): entry.tie for entry in leaves(ref, memory.tree)}
    assert listed["model/._metadata/w/0"] == ("model", "a")
    assert find(ref, memory, "model/._metadata//version") == 1
    plain = take_apart(found["model"]).value["$map"]
    assert plain["_metadata"]["$map"]["pairs"][0] == ["", {"version": 1}]


def test_large_metadata_is_split_like_any_container() -> None:
    """The module versions of a model with many modules cost one part when one of them changes."""
    memory = Memory()
    names = [f"layers.{number}.attention.projection" for number in range(4_000)]
    state = OrderedDict(step=1)
    vars(state)["_metadata"] = OrderedDict((name, {"version": 1}) for name in names)
    ref = memory.save({"model": state})
    assert exact(load(ref, memory, None)["model"]) == exact(state)
    before = set(memory.blobs)
    vars(state)["_metadata"][names[5]] = {"version": 2}
    memory.save({"model": state})
    new = [len(memory.blobs[name]) for name in set(memory.blobs) - before]
    assert sum(new) < 80_000 < sum(map(len, memory.blobs.values()))
    assert {node.ref.id for node in walk(ref, memory.tree)} == before


@pytest.mark.parametrize("kind", [OrderedDict, Counter])
def test_other_attributes_are_refused(kind: type[Any]) -> None:
    """An attribute that would not come back is refused with the path of its container."""
    value = kind(a=1)
    value.note = 1
    with pytest.raises(UnsupportedValue, match=rf"^model/0: expected a {kind.__name__} without attributes.*'note'"):
        sketch({"model": [value]})
    vars(value)["_metadata"] = 1
    with pytest.raises(UnsupportedValue, match=r"^model: .* found '(note|_metadata)'"):
        sketch({"model": value})


def test_what_a_scheduler_counts_comes_back_a_counter() -> None:
    """SCHED: the milestones of torch's MultiStepLR are a Counter, which comes back as one."""
    memory = Memory()
    state = {"milestones": Counter([30, 80, 30]), "words": Counter()}
    found: Any = load(memory.save({"scheduler": state}), memory, None)["scheduler"]
    assert exact(found) == exact(state)
    assert found["milestones"].most_common(1) == [(30, 2)]
    assert [entry.within for entry in leaves(memory.save({"x": Counter("a")}), memory.tree)] == [("Counter",)]


def test_a_version_that_is_more_than_a_text_is_recorded_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's version is of a class derived from str, which a commit's provenance cannot hold."""
    module = ModuleType("torch")
    vars(module)["__version__"] = type("TorchVersion", (str,), {})("2.13.0+cpu")
    monkeypatch.setitem(sys.modules, "torch", module)
    version = provenance.__wrapped__()["versions"]["torch"]
    assert (type(version), version) == (str, "2.13.0+cpu")
