"""A fine-tuning run saved as the Hugging Face Trainer saves it, committed as folders; and live state beside it."""

from __future__ import annotations

import codecs
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from tests.cairn import folders
from tests.torch.common import bits, raw, safetensors, tensors_in, torch

import cairn

STEPS = (4, 6, 8)
NAMES = ["model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt", "trainer_state.json"]


class Block(torch.nn.Module):  # type: ignore[misc]  # torch is Any here, installed or not
    """Attention and a feed-forward layer, each on a normalised residual stream."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Map (batch, time, width) to the same."""
        seen = self.norm1(x)
        x = x + self.attention(seen, seen, seen, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class FineTuning:
    """A small transformer and its training; all of it learns at first, later only the upper half."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        self.embed, self.head = torch.nn.Embedding(97, 64), torch.nn.Linear(64, 97, bias=False)
        self.blocks = [Block(64) for _ in range(4)]
        self.model = torch.nn.Sequential(self.embed, *self.blocks, self.head)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))
        self.step = 0
        self.log: list[dict[str, Any]] = []

    def freeze_lower_half(self) -> list[str]:
        """Stop the embedding and the lower blocks from learning; return the names of what stays as it is."""
        for part in (self.embed, *self.blocks[:2]):
            part.requires_grad_(False)
        return [name for name, weight in self.model.named_parameters() if not weight.requires_grad]

    def steps(self, count: int) -> None:
        """Train on random tokens of the global generator."""
        for _ in range(count):
            tokens = torch.randint(0, 97, (8, 12))
            loss = torch.nn.functional.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            self.log.append({"step": self.step, "loss": loss.item(), "noise": random.random() + np.random.rand()})

    def save(self, folder: Path) -> Path:
        """Write a checkpoint as the Trainer does, file by file."""
        folder.mkdir(parents=True)
        safetensors.save_file(self.model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")
        torch.save(self.scheduler.state_dict(), folder / "scheduler.pt")
        rng = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
        torch.save(rng, folder / "rng_state.pth")
        text = json.dumps({"global_step": self.step, "log_history": self.log, "best_model_checkpoint": None}, indent=2)
        (folder / "trainer_state.json").write_text(text + "\n")
        return folder

    def resume(self, folder: Path) -> None:
        """Go on from a checkpoint, opening nothing that could run code."""
        self.model.load_state_dict(safetensors.load_file(folder / "model.safetensors"))
        self.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
        self.scheduler.load_state_dict(torch.load(folder / "scheduler.pt", weights_only=True))
        rng = load_rng(folder)
        random.setstate(rng["python"])
        np.random.set_state(rng["numpy"])
        torch.set_rng_state(rng["cpu"])
        state = json.loads((folder / "trainer_state.json").read_text())
        self.step, self.log = state["global_step"], state["log_history"]

    def tensors(self) -> Iterator[Any]:
        """Yield every tensor of the weights and the optimizer."""
        yield from tensors_in(self.model.state_dict())
        yield from tensors_in(self.optimizer.state_dict())


def load_rng(folder: Path) -> Any:
    """Open the states of the generators; numpy's needs the names of numpy's types, as the Trainer gives them."""
    core = np._core.multiarray._reconstruct  # type: ignore[attr-defined]  # private, and what pickles name
    with torch.serialization.safe_globals([core, np.ndarray, np.dtype, type(np.dtype(np.uint32)), codecs.encode]):
        return torch.load(folder / "rng_state.pth", weights_only=True)


def sha256(folder: Path) -> dict[str, str]:
    """Hash every file of a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def data_blobs(store: cairn.Store) -> dict[str, int]:
    """Find all blobs in the packs that are no trees, with their sizes; none may be there twice."""
    found: dict[str, int] = {}
    for pack in folders.packs(store.path):
        metadata, places, _ = folders.head(pack)
        for name in [*places][: len(places) - int(metadata["trees"])]:
            assert name not in found
            found[name] = places[name][1]
    return found


def committed(store: cairn.Store, state: dict[str, Any], step: int) -> dict[str, int]:
    """Commit a state; return the data blobs that this added."""
    before = data_blobs(store)
    run = store.run()
    run.commit(state, step=step)
    assert run.last is not None
    assert not run.last.opaque
    return {name: size for name, size in data_blobs(store).items() if name not in before}


def names_of(tensors: Iterator[Any]) -> dict[str, int]:
    """What blobs tensors are, and their sizes."""
    return {blake3(data).hexdigest(): len(data) for tensor in tensors if (data := raw(tensor))}


@pytest.fixture(scope="module")
def checkpoints(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[int, Path], dict[int, dict[str, int]], set[str]]:
    """Three checkpoints of one run, the tensors at each as blobs, and the blobs of what was frozen."""
    root = tmp_path_factory.mktemp("run")
    training = FineTuning()
    training.steps(2)
    frozen = training.freeze_lower_half()
    training.optimizer.zero_grad()
    paths: dict[int, Path] = {}
    tensors: dict[int, dict[str, int]] = {}
    for step in STEPS:
        training.steps(step - training.step)
        paths[step] = training.save(root / f"checkpoint-{step}")
        tensors[step] = names_of(training.tensors())
    named = dict(training.model.named_parameters())
    kept = [named[name] for name in frozen] + [*tensors_in([training.optimizer.state[named[name]] for name in frozen])]
    return paths, tensors, set(names_of(iter(kept)))


def test_a_frozen_half_is_stored_once_and_every_step_comes_back(
    store: cairn.Store, tmp_path: Path, checkpoints: Any
) -> None:
    """Every step of a real run checks out byte for byte, opens safely, and stores what did not change once, exactly."""
    paths, tensors, frozen = checkpoints
    added = {step: committed(store, {"files": cairn.folder(paths[step])}, step) for step in STEPS}
    for step in STEPS:
        store.checkout(f"step:{step}", tmp_path / str(step))
        assert sha256(tmp_path / str(step)) == sha256(paths[step])
        assert list(sha256(paths[step])) == NAMES
        assert torch.load(tmp_path / str(step) / "optimizer.pt", weights_only=True)["param_groups"]
        assert torch.load(tmp_path / str(step) / "scheduler.pt", weights_only=True)["last_epoch"] == step
        assert load_rng(tmp_path / str(step))["cpu"].shape == (5056,)
    # Every tensor that is not there yet, each once; the rest is headers, pickles, JSON and the state of generators.
    every = {name: size for step in STEPS for name, size in tensors[step].items()}
    stored = data_blobs(store)
    assert {name: stored[name] for name in every} == every
    seen: set[str] = set()
    for step in STEPS:
        new = {name: size for name, size in tensors[step].items() if name not in seen}
        assert {name: size for name, size in added[step].items() if name in tensors[step]} == new
        assert bool(frozen & set(new)) == (step == STEPS[0])
        seen |= set(tensors[step])
    bytes_of_tensors = [sum(size for name, size in added[step].items() if name in every) for step in STEPS]
    # Each half has 106,176 weights with two moments each, in float32; and its counters are one blob of 4 bytes.
    half = 3 * 4 * 106_176 + 4
    assert bytes_of_tensors == [2 * half, half, half]
    assert sum(every[name] for name in frozen) == half
    assert all(sum(added[step].values()) - of < 64_000 for step, of in zip(STEPS, bytes_of_tensors, strict=True))
    raw_bytes = sum(path.stat().st_size for step in STEPS for path in paths[step].iterdir())
    print(f"{raw_bytes} bytes of files, {sum(every.values())} of unique tensors, {sum(stored.values())} stored")


def test_training_goes_on_from_what_was_checked_out(store: cairn.Store, tmp_path: Path, checkpoints: Any) -> None:
    """A run that resumes from a checked out step writes the later checkpoints with the very same bytes."""
    paths, _, _ = checkpoints
    store.run().commit({"files": cairn.folder(paths[4])}, step=4)
    store.checkout("step:4", tmp_path / "resumed")
    training = FineTuning()
    training.freeze_lower_half()
    training.resume(tmp_path / "resumed")
    for step in STEPS[1:]:
        training.steps(step - training.step)
        assert sha256(training.save(tmp_path / f"checkpoint-{step}")) == sha256(paths[step])


def values(kind: str) -> dict[str, Any]:
    """Tensors as training has them: of several types, strided, empty, without a dimension, over 64 MiB."""
    generator = torch.Generator().manual_seed(1)
    made = {
        "weight": torch.randn(40, 30, generator=generator),
        "turned": torch.randn(30, 40, generator=generator).T.contiguous(),
        "step": torch.tensor(3.0),
        "count": torch.arange(7),
        "mask": torch.tensor([True, False, True]),
        "half": torch.randn(50, generator=generator).half(),
        "empty": torch.empty(0, 3),
        "embedding": torch.arange(17 << 20, dtype=torch.int32),
    }
    return made if kind == "torch" else {name: tensor.numpy() for name, tensor in made.items()}


def write(kind: str, path: Path) -> None:
    """Write the tensors to a file."""
    if kind == ".safetensors":
        safetensors.save_file(values("torch"), path / "model.safetensors")
    elif kind == ".pt":
        torch.save(values("torch"), path / "model.pt")
    else:
        np.savez(path / "model.npz", allow_pickle=False, **values("numpy"))


@pytest.mark.parametrize("kind", [".safetensors", ".pt", ".npz"])
def test_live_state_and_its_files_share_every_tensor(store: cairn.Store, tmp_path: Path, kind: str) -> None:
    """A state committed from live torch or numpy, then from a file of it, adds no byte of a tensor; nor the reverse."""
    tensors = names_of(iter(value for name, value in values("torch").items() if name != "embedding"))
    folder = tmp_path / "files"
    folder.mkdir()
    write(kind, folder)
    assert sum(committed(store, {"model": values("torch")}, 1).values()) > 64 << 20
    assert committed(store, {"model": values("numpy")}, 2) == {}
    new = committed(store, {"files": cairn.folder(folder)}, 3)
    assert not set(tensors) & set(new)
    assert sum(new.values()) < 5_000
    other = cairn.init(tmp_path / "other")
    assert set(committed(other, {"files": cairn.folder(folder)}, 1)) > set(tensors)
    assert committed(other, {"model": values("torch")}, 2) == {}
    assert bits(other.load("step:2")["model"]) == bits(values("torch"))


def test_types_that_numpy_lacks_share_their_files_too(store: cairn.Store, tmp_path: Path) -> None:
    """bfloat16, float8 and complex numbers from live torch are the blobs of their .pt and .safetensors files."""
    made = {
        "bf16": torch.arange(40.0).bfloat16(), "fp8": torch.arange(40.0).to(torch.float8_e4m3fn),
        "c64": torch.arange(40.0).to(torch.complex64), "fp4": torch.arange(40, dtype=torch.uint8).view(
            torch.float4_e2m1fn_x2).reshape(4, 10),
    }  # fmt: skip
    assert len(committed(store, {"model": made}, 1)) == 4
    (tmp_path / "a").mkdir()
    torch.save(made, tmp_path / "a" / "model.pt")
    safetensors.save_file(made, tmp_path / "a" / "model.safetensors")
    new = committed(store, {"files": cairn.folder(tmp_path / "a")}, 2)
    assert not set(names_of(tensors_in(made))) & set(new)
    store.checkout("step:1", tmp_path / "b")
    written = load_file_of_any_type(tmp_path / "b" / "model.safetensors")
    assert written["fp4"] == ("F4", [4, 20], raw(made["fp4"]))
    assert written["bf16"] == ("BF16", [40], raw(made["bf16"]))


def load_file_of_any_type(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Read a safetensors file by its header, F4 included, which the library cannot load."""
    data = path.read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:length])
    return {
        name: (entry["dtype"], entry["shape"], data[length:][slice(*entry["data_offsets"])])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def test_a_pt_file_holds_storages_not_tensors(store: cairn.Store, tmp_path: Path) -> None:
    """What defeats sharing: torch.save writes the whole storage of a view, in memory order; a copy shares."""
    whole = torch.arange(1000.0)
    channels = torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    made = {"view": whole[10:20], "last": channels}
    committed(store, {"model": made}, 1)
    for name, state, shared in (("as it is", made, False), ("copied", {k: v.clone(memory_format=torch.contiguous_format)
                                                                       for k, v in made.items()}, True)):  # fmt: skip
        (tmp_path / name).mkdir()
        torch.save(state, tmp_path / name / "model.pt")
        new = committed(store, {"files": cairn.folder(tmp_path / name)}, 2 + shared)
        assert (whole.nbytes in new.values()) != shared
        assert (channels.nbytes in new.values()) != shared


def test_a_checkout_of_live_torch_state_is_a_model_file(store: cairn.Store, tmp_path: Path) -> None:
    """`checkout` of a state_dict writes a safetensors file that safetensors loads, ties named in its metadata."""
    training = FineTuning()
    training.steps(1)
    state = training.model.state_dict()
    state["tied"] = state["0.weight"]
    store.run().commit({"model": state, "optimizer": training.optimizer.state_dict()}, step=1)
    store.checkout("latest", tmp_path / "out")
    found = safetensors.load_file(tmp_path / "out" / "model.safetensors")
    assert bits(found) == bits({name: state[name] for name in found})
    assert set(state) - set(found) == {"tied"}
    described = json.loads((tmp_path / "out" / "model.json").read_text())["$map"]
    assert described["_metadata"]["$map"]["pairs"][0] == ["", {"version": 1}]
