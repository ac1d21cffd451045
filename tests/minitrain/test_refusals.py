"""What a checkpoint refuses: torn, damaged or foreign folders, and states that do not fit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from minitrain.checkpoint import apply_checkpoint, load_checkpoint, save_checkpoint
from minitrain.corpus import build_corpus
from minitrain.data import DataIterator
from minitrain.errors import CheckpointError, StateMismatch
from minitrain.loop import train_n_steps
from minitrain.machines import Machines
from minitrain.manifest import sha256
from minitrain.model import MiniGPTConfig, build_minigpt
from minitrain.testing import build_fresh, byte_equal, capture_full_state

NAMES = ("weights.safetensors", "optim.safetensors", "extra.json", "manifest.json")


@pytest.fixture
def machines() -> Machines:
    """A run after one step."""
    built = build_fresh()
    train_n_steps(*built, n=1)
    return built


def save(machines: Machines, folder: Path, **metrics: Any) -> str:
    """Writes a checkpoint of step 1."""
    return save_checkpoint(*machines, folder, step=1, epoch=0, extra_metrics=metrics)


@pytest.mark.parametrize("crash_at", range(1, len(NAMES) + 1))
def test_a_crash_at_any_rename_is_the_old_checkpoint_or_a_refusal(
    machines: Machines, tmp_path: Path, crash_at: int
) -> None:
    """A save that dies over an older checkpoint never loads as a mixture, and saving again repairs it."""
    old = save(machines, tmp_path)
    train_n_steps(*machines, n=1)
    count, rename = 0, os.rename

    def crash(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count == crash_at:
            raise KeyboardInterrupt
        rename(source, target)

    with patch("os.rename", crash), pytest.raises(KeyboardInterrupt):
        save(machines, tmp_path)
    if crash_at == 1:
        assert load_checkpoint(tmp_path).manifest["files"][NAMES[0]]["sha256"] == old
    else:
        with pytest.raises(CheckpointError, match="torn or damaged"):
            load_checkpoint(tmp_path)

    new = save(machines, tmp_path)
    assert load_checkpoint(tmp_path).manifest["files"][NAMES[0]]["sha256"] == new != old
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES[:3])
def test_one_flipped_bit_is_found(machines: Machines, tmp_path: Path, name: str) -> None:
    """A file that differs in one bit from what was saved is refused by name."""
    save(machines, tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(machines: Machines, tmp_path: Path, name: str) -> None:
    """A folder without one of its four files is no checkpoint."""
    save(machines, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": "1.0"}', '{"schema_version": "1.0", "files": 3}'])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """JSON of another form, or no JSON, raises the trainer's own error."""
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        load_checkpoint(tmp_path)


def rewrite(folder: Path, name: str, data: bytes) -> None:
    """Replaces a file and its digest, as somebody would who means it."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name]["sha256"] = sha256(data)
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_file_of_the_wrong_form_is_refused(machines: Machines, tmp_path: Path, name: str) -> None:
    """Even with the digest that the manifest lists, a file must be what its name says."""
    save(machines, tmp_path)
    rewrite(tmp_path, name, b"{}")
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("target", ["ALIAS(nowhere)", "embed.weight", "ALIAS()"])
def test_an_alias_must_lead_to_a_tensor(machines: Machines, tmp_path: Path, target: str) -> None:
    """A tie to a name that the file does not hold, or in another notation, is refused."""
    save(machines, tmp_path)
    data = (tmp_path / NAMES[0]).read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header["__metadata__"] == {"lm_head.weight": "ALIAS(embed.weight)"}
    header["__metadata__"] = {"lm_head.weight": target}
    text = json.dumps(header).encode()
    rewrite(tmp_path, NAMES[0], len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("metric", [float("nan"), float("inf"), np.float32(1), {1, 2}])
def test_metrics_that_json_cannot_give_back_leave_the_old_checkpoint(
    machines: Machines, tmp_path: Path, metric: object
) -> None:
    """Everything is encoded before anything is written."""
    save(machines, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    train_n_steps(*machines, n=1)
    with pytest.raises(CheckpointError, match="manifest"):
        save(machines, tmp_path, loss=metric)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("tied_on_disk", [True, False])
def test_tied_and_untied_do_not_mix(tmp_path: Path, tied_on_disk: bool) -> None:
    """Equal shapes are not enough: the weights of a tied model do not go into an untied one, nor back."""
    machines = build_fresh()
    saved = machines._replace(model=build_minigpt(tie_weights=tied_on_disk))
    save(saved, tmp_path)
    other = machines._replace(model=build_minigpt(tie_weights=not tied_on_disk))
    with pytest.raises(StateMismatch, match=r"lm_head\.weight to embed\.weight"):
        apply_checkpoint(load_checkpoint(tmp_path), *other)


def test_a_model_of_another_shape_is_refused_and_unchanged(machines: Machines, tmp_path: Path) -> None:
    """The message names the tensor and both shapes, and no tensor has been copied."""
    save(machines, tmp_path)
    small = machines._replace(model=build_minigpt(MiniGPTConfig(d_ff=128)))
    before = {name: array.copy() for name, array in small.model.state_dict().items()}
    with pytest.raises(StateMismatch, match=r"blocks\.0\.mlp\.up\.weight.*\(128, 64\).*\(256, 64\)"):
        apply_checkpoint(load_checkpoint(tmp_path), *small)
    assert byte_equal(before, small.model.state_dict())


def test_other_precision_is_refused(machines: Machines) -> None:
    """Nothing is rounded on the way into a model."""
    state = {name: array.astype(np.float64) for name, array in machines.model.state_dict().items()}
    state["lm_head.weight"] = state["embed.weight"]
    with pytest.raises(StateMismatch, match="float64"):
        machines.model.load_state_dict(state)


def test_a_model_of_other_names_is_refused(machines: Machines, tmp_path: Path) -> None:
    """A missing layer is named."""
    save(machines, tmp_path)
    deeper = machines._replace(model=build_minigpt(MiniGPTConfig(n_layers=3)))
    with pytest.raises(StateMismatch, match=r"blocks\.2"):
        apply_checkpoint(load_checkpoint(tmp_path), *deeper)


def test_other_data_is_refused(machines: Machines, tmp_path: Path) -> None:
    """A position in one list of examples means nothing in another."""
    save(machines, tmp_path)
    other = machines._replace(data_iter=DataIterator(build_corpus(), batch_size=16, seed=0))
    with pytest.raises(StateMismatch, match="examples"):
        apply_checkpoint(load_checkpoint(tmp_path), *other)


def test_a_state_without_one_machine_is_refused(machines: Machines) -> None:
    """Four of five are not a state to resume from, and a part in the wrong form is named."""
    state = machines.state()
    with pytest.raises(StateMismatch, match="scheduler"):
        machines.restore({name: part for name, part in state.items() if name != "scheduler"})
    with pytest.raises(StateMismatch, match="optimizer"):
        machines.restore(state | {"optimizer": {"m": {}}})


def test_what_is_loaded_is_independent_of_what_lives(machines: Machines, tmp_path: Path) -> None:
    """Training on after an apply changes neither the loaded state nor a second run that was restored from it."""
    save(machines, tmp_path)
    state = load_checkpoint(tmp_path)
    first, second = build_fresh(), build_fresh()
    apply_checkpoint(state, *first)
    apply_checkpoint(state, *second)
    before = capture_full_state(*second)
    train_n_steps(*first, n=2)
    assert byte_equal(before, capture_full_state(*second))
    assert byte_equal(state.model_weights, second.model.state_dict())


def test_the_manifest_says_where_a_checkpoint_comes_from(machines: Machines, tmp_path: Path) -> None:
    """All fields of the lab are there, with the digest of each file, and saving again changes none of them."""
    save(machines, tmp_path, val_loss=0.5)
    first = (tmp_path / "manifest.json").read_bytes()
    manifest = json.loads(first)
    fields = "schema_version seed versions config_hash data_manifest_hash git_sha hardware step epoch extra_metrics"
    assert set(fields.split()) <= manifest.keys()
    assert (manifest["step"], manifest["epoch"], manifest["extra_metrics"]) == (1, 0, {"val_loss": 0.5})
    assert manifest["data_manifest_hash"] == machines.data_iter.manifest_hash
    for name in NAMES[:3]:
        assert manifest["files"][name]["sha256"] == sha256((tmp_path / name).read_bytes())
    save(machines, tmp_path, val_loss=0.5)
    assert (tmp_path / "manifest.json").read_bytes() == first
