"""Measures what the lab asks for: a trained run through a checkpoint and back, bit for bit.

    python experiments/18-checkpoint-roundtrip/run.py [--seed 42] [--out FOLDER]

It trains one run of `2 * HALF` steps without a stop, and another that is saved at half, restored into fresh objects and
trained on. It writes `manifest.json` (of the checkpoint), `roundtrip_results.json` (the fields of the lab) and
`learning.json` (what the model learned, beside a bigram model). Every value is measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from minitrain.bigram import bigram_loss
from minitrain.checkpoint import MANIFEST, WEIGHTS, apply_checkpoint, load_checkpoint, save_checkpoint
from minitrain.corpus import VerbExample, build_corpus, split_corpus
from minitrain.loop import evaluate, train_n_steps
from minitrain.machines import Machines, build_machines
from minitrain.sample import complete
from minitrain.testing import byte_equal, capture_full_state, unique_params

HALF = 400
EVERY = 100


def main() -> int:
    """Runs the experiment; the exit status is 1 if anything is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    reference, losses, learning = train_reference(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        results = measure_roundtrip(arguments.seed, reference, losses, checkpoint)
        results["atomic_write_resilient"] = survives_every_interrupted_rename(reference, Path(folder))
        results |= measure_size(reference, checkpoint)
        shutil.copyfile(checkpoint / MANIFEST, arguments.out / MANIFEST)
    write_json(arguments.out / "roundtrip_results.json", results)
    write_json(arguments.out / "learning.json", learning)

    print(json.dumps(results, indent=2))
    print(f"held-out loss {learning['held_out_loss']:.3f}, bigram model {learning['bigram_held_out_loss']:.3f}")
    return 0 if all(value is not False for value in results.values()) else 1


def train_reference(seed: int) -> tuple[Machines, list[float], dict[str, Any]]:
    """Trains without a stop, and notes on the way how well it does on forms it never sees."""
    train, held_out = split_corpus(build_corpus())
    machines = build_machines(seed)
    losses: list[float] = []
    curve = [{"step": 0, "held_out_loss": evaluate(machines.model, held_out)}]
    for _ in range(0, 2 * HALF, EVERY):
        losses += train_n_steps(*machines, n=EVERY, return_losses=True)
        train_loss = sum(losses[-EVERY:]) / EVERY
        point = {"step": len(losses), "train_loss": train_loss, "held_out_loss": evaluate(machines.model, held_out)}
        curve.append(point)
    baseline, k = bigram_loss(train, held_out)
    learning = {
        "seed": seed,
        "steps": len(losses),
        "held_out_loss": curve[-1]["held_out_loss"],
        "bigram_held_out_loss": baseline,
        "bigram_add_k": k,
        "curve": curve,
        "translations_of_unseen_forms": translate_unseen(machines, train, held_out),
    }
    return machines, losses, learning


def translate_unseen(machines: Machines, train: list[VerbExample], held_out: list[VerbExample]) -> dict[str, Any]:
    """Lets the model translate the held-out Spanish that no training line holds, not even with another meaning.

    A form with two readings has two right answers.
    """
    unseen = list(dict.fromkeys(e.es for e in held_out if e.es not in {e.es for e in train}))
    readings: dict[str, set[str]] = {}
    for example in build_corpus():
        readings.setdefault(example.es, set()).add(example.en)
    answers = {es: complete(machines.model, f"{es}/") for es in unseen}
    wrong = {es: answer for es, answer in answers.items() if answer not in readings[es]}
    right = {es: answer for es, answer in answers.items() if es not in wrong}
    return {"of": len(answers), "right": len(right), "right_answers": right, "wrong_answers": wrong}


def measure_roundtrip(seed: int, reference: Machines, losses: list[float], folder: Path) -> dict[str, Any]:
    """Stops a second run at half, restores it into fresh objects, and compares states and losses with the first."""
    stopped = build_machines(seed)
    first_half = train_n_steps(*stopped, n=HALF, return_losses=True)
    before = capture_full_state(*stopped)
    metrics = {"loss": first_half[-1]}
    save_checkpoint(*stopped, folder, step=HALF, epoch=stopped.data_iter.epoch, extra_metrics=metrics)

    resumed = build_machines(seed + 1)  # another start, so that nothing is right by luck
    state = load_checkpoint(folder)
    apply_checkpoint(state, *resumed)
    after = capture_full_state(*resumed)
    equal = [name for name in Machines._fields if machine_is_equal(name, before, after)]
    tied = (
        resumed.model.embed.weight is resumed.model.lm_head.weight
        and state.model_weights["embed.weight"] is state.model_weights["lm_head.weight"]
    )
    second_half = train_n_steps(*resumed, n=HALF, return_losses=True)
    ends_equal = byte_equal(capture_full_state(*reference), capture_full_state(*resumed))
    return {
        "byte_equivalent_state_machines": equal,
        "all_byte_equal": equal == list(Machines._fields),
        "continuation_test_passed": byte_equal(losses, first_half + second_half) and ends_equal,
        "weight_tying_preserved": tied,
    }


def machine_is_equal(name: str, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Compares the part of two states that belongs to one machine."""
    left = {key: value for key, value in before.items() if key.startswith(f"{name}.")}
    right = {key: value for key, value in after.items() if key.startswith(f"{name}.")}
    return bool(left) and byte_equal(left, right)


def survives_every_interrupted_rename(machines: Machines, folder: Path) -> bool:
    """Interrupts a save at each of its renames in turn: the file gets no name, and the next save is whole and clean."""
    before = capture_full_state(*machines)
    for ordinal in range(1, 5):
        target = folder / f"interrupted-{ordinal}"
        renamed = interrupt_save(machines, target, ordinal)
        whole = {path.name for path in target.iterdir() if path.suffix != ".tmp"}
        save_checkpoint(*machines, target, step=0, epoch=0, extra_metrics={})
        left_over = [path for path in target.iterdir() if path.suffix == ".tmp"]
        restored = build_machines(0)
        apply_checkpoint(load_checkpoint(target), *restored)
        if whole != renamed or left_over or not byte_equal(before, capture_full_state(*restored)):
            return False
    return True


def interrupt_save(machines: Machines, target: Path, ordinal: int) -> set[str]:
    """Saves with a Ctrl-C at one rename; returns the names that were given before it."""
    renamed: set[str] = set()
    rename = os.rename

    def interrupted(source: Path, destination: Path) -> None:
        if len(renamed) + 1 == ordinal:
            raise KeyboardInterrupt
        rename(source, destination)
        renamed.add(destination.name)

    with patch("os.rename", interrupted):
        try:
            save_checkpoint(*machines, target, step=0, epoch=0, extra_metrics={})
        except KeyboardInterrupt:
            return renamed
    raise SystemExit(f"the save made fewer than {ordinal} renames.")


def measure_size(machines: Machines, folder: Path) -> dict[str, Any]:
    """Compares the size of the weights file with that of the parameters, each counted once."""
    found = (folder / WEIGHTS).stat().st_size
    expected = sum(parameter.numel() * 4 for parameter in unique_params(machines.model))
    return {
        "weights_file_size_bytes": found,
        "expected_size_bytes_no_tying": expected,
        "size_delta_pct": round(100 * (found - expected) / expected, 3),
        "manifest_schema_version": load_checkpoint(folder).manifest["schema_version"],
    }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Writes a result for people and programs to read."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
