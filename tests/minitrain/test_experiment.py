"""Experiment 18, in a short form, and the results that stand in the repository."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "18-checkpoint-roundtrip"
MEASURED = {
    "byte_equivalent_state_machines": ["model", "optimizer", "scheduler", "data_iter", "train_rng"],
    "all_byte_equal": True,
    "continuation_test_passed": True,
    "weight_tying_preserved": True,
    "atomic_write_resilient": True,
    "weights_file_size_bytes": 414_184,
    "expected_size_bytes_no_tying": 412_160,
    "size_delta_pct": 0.491,
    "manifest_schema_version": "1.0",
}


def test_the_experiment_measures_what_stands_in_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short run has the same results, and writes the fields of the lab and no others."""
    spec = importlib.util.spec_from_file_location("experiment_18", EXPERIMENT / "run.py")
    assert spec is not None
    assert spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    monkeypatch.setattr(run, "HALF", 10)
    monkeypatch.setattr(run, "EVERY", 10)
    monkeypatch.setattr(sys, "argv", ["run.py", "--seed", "3", "--out", str(tmp_path)])
    assert run.main() == 0
    assert "held-out loss" in capsys.readouterr().out
    assert read(tmp_path, "roundtrip_results") == read(EXPERIMENT, "roundtrip_results") == MEASURED
    assert read(tmp_path, "manifest").keys() == read(EXPERIMENT, "manifest").keys()


def test_the_page_shows_the_numbers_that_were_measured() -> None:
    """Every loss and count in the experiment's page is in its results."""
    page = (EXPERIMENT / "README.md").read_text(encoding="utf-8")
    learning = read(EXPERIMENT, "learning")
    held_out = {point["step"]: point["held_out_loss"] for point in learning["curve"]}
    translations = learning["translations_of_unseen_forms"]
    for sentence in (
        f"in its favour (k = {learning['bigram_add_k']}) | {learning['bigram_held_out_loss']:.3f} |",
        *(f"after {step} steps | {held_out[step]:.3f} |" for step in (100, 200, 800)),
        f"{translations['of']} of the held-out Spanish forms",
        f"translates {translations['right']} of them right",
    ):
        assert sentence in page


def read(folder: Path, name: str) -> dict[str, Any]:
    """Reads a result."""
    value: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return value
