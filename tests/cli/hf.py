"""Run folders as Hugging Face's Trainer leaves them, small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tests.files import trees


def checkpoint(place: Path, step: int, *, seed: int | None = None) -> Path:
    """A checkpoint of which half the weights are frozen, with the metrics of its step among others."""
    place.mkdir(parents=True)
    trained = np.random.default_rng(step if seed is None else seed)
    weights = {"frozen.weight": np.arange(40_000, dtype=np.float32).reshape(200, 200)}
    weights["lm_head.weight"] = trained.standard_normal((100, 200)).astype(np.float32)
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    (place / "optimizer.npz").write_bytes(trees.npz(**weights))
    (place / "config.json").write_text('{\n "model_type": "tiny"\n}\n')
    history: list[dict[str, object]] = []
    for logged in range(100, step + 1, 100):
        history += [
            {"step": logged, "epoch": logged / 300, "loss": 300 / logged, "learning_rate": 1e-4},
            {"step": logged, "epoch": logged / 300, "eval_loss": float("nan") if logged == 200 else 2.5, "eval_n": 7},
        ]
    state = {"global_step": step, "epoch": step / 300, "log_history": history, "best_metric": float("inf")}
    (place / "trainer_state.json").write_text(json.dumps(state))
    return place


def run_folder(place: Path, *steps: int) -> Path:
    """The folder of a run with checkpoints and what else stands there."""
    for step in steps:
        checkpoint(place / f"checkpoint-{step}", step)
    (place / "runs").mkdir()
    (place / "README.md").write_text("words")
    return place
