"""Checkpoints: five state machines to a folder of four files, and back, bit for bit.

A training run can only go on as if it had never stopped if *everything* that moves is restored: not the weights alone,
but the optimizer's moments and counters, the step of the schedule, the place in the data and the place in
the stream of random numbers. `minitrain.machines` lists the five.

    weights.safetensors   each parameter once; a tied name is in the header: "lm_head.weight": "ALIAS(embed.weight)"
    optim.safetensors     m.<name>, v.<name> and t.<name> for each parameter
    extra.json            the optimizer's hyper-parameters, the scheduler, the data iterator, the generator
    manifest.json         what this is, where it came from, and a digest of each file above

**Ties.** Two names for one parameter are a fact about identity. If both were stored, the loaded model would have two
equal arrays that the next update drives apart. So the array is stored once, and the second name says whose alias it
is. Loading gives both names the same array; applying compares the ties of state and model, and refuses if
they differ.

**Whole or nothing.** Each file appears by a rename, whole or not at all. But four renames are not one: a save over an
older checkpoint that dies in between leaves new weights beside old moments. The manifest is written last
and lists a digest of each file, so that such a torn checkpoint is refused instead of resumed.

**No code in data.** Tensors are safetensors, the rest is JSON. Reading a checkpoint executes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from minitrain.data import DataIterator
from minitrain.errors import CheckpointError
from minitrain.files import temporary, write_atomic
from minitrain.machines import Machines
from minitrain.manifest import SCHEMA_VERSION, describe, encode_json, sha256
from minitrain.model import MiniGPT
from minitrain.module import FloatArray, ties
from minitrain.optim import AdamW
from minitrain.rng import decode_state, encode_state
from minitrain.schedule import WarmupCosine
from minitrain.tensorfile import decode_tensors, encode_tensors

WEIGHTS, OPTIMIZER, EXTRA, MANIFEST = "weights.safetensors", "optim.safetensors", "extra.json", "manifest.json"


@dataclass(frozen=True, eq=False, slots=True)
class CheckpointState:
    """What a checkpoint holds, free of live objects; tied weights are one array under two names."""

    model_weights: dict[str, FloatArray]
    optim_state: dict[str, Any]
    scheduler_state: dict[str, Any]
    data_iter_state: dict[str, Any]
    train_rng_state: dict[str, Any]
    manifest: dict[str, Any]


def save_checkpoint(
    model: MiniGPT,
    optimizer: AdamW,
    scheduler: WarmupCosine,
    data_iter: DataIterator,
    train_rng: np.random.Generator,
    out_dir: Path,
    step: int,
    epoch: int,
    extra_metrics: Mapping[str, Any],
) -> str:
    """Writes a checkpoint and returns its hash: the SHA-256 of the weights file.

    Everything is encoded before anything is written: a state that cannot be kept leaves an older checkpoint as it was.
    """
    state = Machines(model, optimizer, scheduler, data_iter, train_rng).state()
    files = _encode(state)
    manifest = describe(
        config=model.config,
        seed=data_iter.seed,
        data_manifest_hash=data_iter.manifest_hash,
        step=step,
        epoch=epoch,
        extra_metrics=extra_metrics,
        files=files,
    )
    files[MANIFEST] = encode_json(manifest, "the manifest")

    out_dir.mkdir(parents=True, exist_ok=True)
    for name in files:
        temporary(out_dir / name).unlink(missing_ok=True)
    for name, data in files.items():
        write_atomic(out_dir / name, data)
    return sha256(files[WEIGHTS])


def load_checkpoint(in_dir: Path) -> CheckpointState:
    """Reads a checkpoint; refuses an unknown schema, and any file that is not the one that the manifest lists."""
    manifest = _read_manifest(in_dir)
    files = {name: _read_listed(in_dir / name, manifest) for name in (WEIGHTS, OPTIMIZER, EXTRA)}
    try:
        extra = json.loads(files[EXTRA])
        return CheckpointState(
            model_weights=_decode_weights(files[WEIGHTS]),
            optim_state=_decode_optimizer(files[OPTIMIZER]) | extra["optimizer"],
            scheduler_state=extra["scheduler"],
            data_iter_state=extra["data_iter"],
            train_rng_state=decode_state(extra["train_rng"]),
            manifest=manifest,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {in_dir} has its files, but not their content: {error!r}.") from error


def apply_checkpoint(
    state: CheckpointState,
    model: MiniGPT,
    optimizer: AdamW,
    scheduler: WarmupCosine,
    data_iter: DataIterator,
    train_rng: np.random.Generator,
) -> None:
    """Restores every state machine in place; refuses a state that does not fit the live objects."""
    Machines(model, optimizer, scheduler, data_iter, train_rng).restore(
        {
            "model": state.model_weights,
            "optimizer": state.optim_state,
            "scheduler": state.scheduler_state,
            "data_iter": state.data_iter_state,
            "train_rng": state.train_rng_state,
        }
    )


def _encode(state: Mapping[str, Any]) -> dict[str, bytes]:
    weights: dict[str, FloatArray] = state["model"]
    aliases = ties(weights)
    unique = {name: array for name, array in weights.items() if name not in aliases}

    moments = dict(state["optimizer"])
    tensors: dict[str, npt.NDArray[Any]] = {}
    for part in ("m", "v", "t"):
        tensors |= {f"{part}.{name}": np.asarray(value) for name, value in moments.pop(part).items()}

    extra = {
        "optimizer": moments,
        "scheduler": state["scheduler"],
        "data_iter": state["data_iter"],
        "train_rng": encode_state(state["train_rng"]),
    }
    return {
        WEIGHTS: encode_tensors(unique, {alias: f"ALIAS({name})" for alias, name in aliases.items()}),
        OPTIMIZER: encode_tensors(tensors, {}),
        EXTRA: encode_json(extra, "the state of scheduler, data iterator or generator"),
    }


def _decode_weights(data: bytes) -> dict[str, FloatArray]:
    weights, metadata = decode_tensors(data)
    for alias, text in metadata.items():
        name = text.removeprefix("ALIAS(").removesuffix(")")
        if text != f"ALIAS({name})" or name not in weights:
            raise CheckpointError(f"{alias} is tied to {text}, which is no tensor of {WEIGHTS}.")
        weights[alias] = weights[name]
    return weights


def _decode_optimizer(data: bytes) -> dict[str, Any]:
    state: dict[str, Any] = {"m": {}, "v": {}, "t": {}}
    for key, value in decode_tensors(data)[0].items():
        part, name = key.split(".", 1)
        state[part][name] = int(value) if part == "t" else value
    return state


def _read_manifest(in_dir: Path) -> dict[str, Any]:
    path = in_dir / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"{in_dir} is not a whole checkpoint: it has no {MANIFEST}, which is written last."
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}.") from None
    found = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if found != SCHEMA_VERSION:
        raise CheckpointError(f"{path} has schema_version {found!r}; this version reads {SCHEMA_VERSION!r} only.")
    return dict(manifest)


def _read_listed(path: Path, manifest: Mapping[str, Any]) -> bytes:
    try:
        expected = manifest["files"][path.name]["sha256"]
    except (KeyError, TypeError):
        raise CheckpointError(f"{path.with_name(MANIFEST)} lists no digest for {path.name}.") from None
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, and the manifest lists it.") from None
    if (found := sha256(data)) != expected:
        raise CheckpointError(
            f"{path} has the SHA-256 {found}, but the manifest lists {expected}: the checkpoint is torn or damaged. "
            "Resume from another one."
        )
    return data
