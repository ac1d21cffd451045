"""Libraries that write a state to files. Nothing is shared between two saves, so the first stands for all."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy
from states import Array, State, flat, tensors, untied
from timing import make_durable
from tool import Tool, Work


def write_safetensors(state: State, folder: Path) -> list[Path]:
    """Write one file for each component, as trainers do."""
    paths = [folder / f"{component}.safetensors" for component in state]
    for path, named in zip(paths, untied(state).values(), strict=True):
        safetensors.numpy.save_file(named, path)
    return paths


class Safetensors(Tool):
    """The plain library, which forces nothing."""

    name = "safetensors, no fsync"

    def save(self, state: State) -> None:
        write_safetensors(state, self.folder)


class DurableSafetensors(Tool):
    """The plain library, and what makes its files survive a power cut."""

    name = "safetensors + fsync"

    def save(self, state: State) -> None:
        make_durable(write_safetensors(state, self.folder))

    def loads(self, state: State) -> Mapping[str, Work]:
        paths = [self.folder / f"{component}.safetensors" for component in state]
        name = next(iter(state[paths[0].stem]))

        def one() -> object:
            with safetensors.safe_open(paths[0], "np") as file:
                return file.get_tensor(name)

        return {"load": lambda: [safetensors.numpy.load_file(path) for path in paths], "one tensor": one}


class _Torch(Tool):
    module = "torch"

    def missing(self) -> str | None:
        return None if importlib.util.find_spec(self.module.partition(".")[0]) else f"no {self.module}"

    def start(self, folder: Path) -> None:
        super().start(folder)
        self._lib: Any = importlib.import_module(self.module)
        self._torch: Any = importlib.import_module("torch")

    def tensors(self, state: State) -> dict[str, dict[str, Any]]:
        """The same memory as torch tensors, ties included."""
        made = {id(tensor): self._torch.from_numpy(tensor) for _, _, tensor in tensors(state)}
        return {part: {name: made[id(tensor)] for name, tensor in named.items()} for part, named in state.items()}


class TorchSave(_Torch):
    """torch.save, and what makes its file survive a power cut."""

    name = "torch.save + fsync"

    def save(self, state: State) -> None:
        path = self.folder / "state.pt"
        self._torch.save(self.tensors(state), path)
        make_durable([path])

    def loads(self, state: State) -> Mapping[str, Work]:
        path = self.folder / "state.pt"
        component = next(iter(state))
        name = next(iter(state[component]))
        load = self._torch.load
        return {
            "load": lambda: load(path, weights_only=True),
            "load lazily": lambda: load(path, weights_only=True, mmap=True),
            "one tensor": lambda: load(path, weights_only=True, mmap=True)[component][name].clone(),
        }


class DistributedCheckpoint(_Torch):
    """torch.distributed.checkpoint in one process."""

    name = "torch DCP"
    module = "torch.distributed.checkpoint"

    def prepare(self, state: State) -> None:
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        self._tensors = {name: self._torch.from_numpy(each) for name, each in flat(state).items()}

    def save(self, state: State) -> None:
        self._lib.save(self._tensors, checkpoint_id=self.folder / "state", no_dist=True)

    def save_later(self, state: State) -> Callable[[], object]:
        future = self._lib.async_save(self._tensors, checkpoint_id=self.folder / "state", no_dist=True)
        return lambda: future.result()

    def loads(self, state: State) -> Mapping[str, Work]:
        target = {name: self._torch.empty_like(each) for name, each in self._tensors.items()}
        return {"load": lambda: self._lib.load(target, checkpoint_id=self.folder / "state", no_dist=True)}


class Orbax(Tool):
    """Orbax on numpy arrays: PyTreeCheckpointer, and AsyncCheckpointer in the background."""

    name = "Orbax"
    is_slow = True

    def missing(self) -> str | None:
        return None if importlib.util.find_spec("orbax") else "no orbax-checkpoint"

    def start(self, folder: Path) -> None:
        super().start(folder)
        self._lib: Any = importlib.import_module("orbax.checkpoint")
        self._checkpointer = self._lib.PyTreeCheckpointer()
        self._later = self._lib.AsyncCheckpointer(self._lib.PyTreeCheckpointHandler())
        self._flat: dict[str, Array] = {}

    def prepare(self, state: State) -> None:
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        self._flat = flat(state)

    def save(self, state: State) -> None:
        self._checkpointer.save(self.folder / "state", self._flat)

    def save_later(self, state: State) -> Callable[[], object]:
        self._later.save(self.folder / "state", args=self._lib.args.PyTreeSave(self._flat))
        return lambda: self._later.wait_until_finished()

    def loads(self, state: State) -> Mapping[str, Work]:
        return {"load": lambda: self._checkpointer.restore(self.folder / "state")}

    def stop(self) -> None:
        self._later.close()
