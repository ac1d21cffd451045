"""Checkpoint folders of another tool: committed, imported, looked into, compared, and given back byte for byte.

Every line that begins with `$` is a command that anyone can type; what follows is what it printed. The folders are made
here, in the form of the Hugging Face Trainer: half of the model is frozen, its head changes. Run it with
`python experiments/folders.py`, or with `--folder FOLDER` to keep what it makes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.numpy
from demo import Demo

STEPS = (500, 1000, 1500)


def main() -> int:
    """Run the demonstration; return 0 when everything was as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder if left out")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or Path(temporary)
        make_checkpoints(folder / "out")
        os.chdir(folder)
        demo = Demo(folder / "store")
        demo.run("cairn init store")
        demo.run("cairn commit out/checkpoint-500 --step 500 --metric loss=1.5")
        demo.run("cairn import out")
        demo.run("cairn ls latest model.safetensors")
        demo.run("cairn checkout step:500 back && diff -r out/checkpoint-500 back && echo identical")
        demo.run("cairn diff step:1000 step:1500")
        demo.run("cairn du")
        os.chdir(Path(__file__).parent)
    return demo.status


def make_checkpoints(out: Path) -> None:
    """Write checkpoint folders of a run whose lower layers are frozen."""
    rng = np.random.default_rng(0)
    frozen = {f"layers.{i}.weight": rng.standard_normal((128, 128), np.float32) for i in range(4)}
    head = rng.standard_normal((1000, 128), np.float32)
    for step in STEPS:
        head = head + rng.standard_normal(head.shape, np.float32) * np.float32(1e-3)
        folder = out / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        safetensors.numpy.save_file({**frozen, "lm_head.weight": head}, folder / "model.safetensors")
        state = {"global_step": step, "epoch": step / 1000, "log_history": [{"step": step, "loss": 2 - step / 1000}]}
        vocabulary = {f"word{number}": number for number in range(4000)}
        texts = {"config": {"hidden_size": 128}, "tokenizer": vocabulary, "trainer_state": state}
        for name, value in texts.items():
            (folder / f"{name}.json").write_text(json.dumps(value))


if __name__ == "__main__":
    sys.exit(main())
