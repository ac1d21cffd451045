"""A store after its first weeks: find the best step, go back and try another way, compare, keep the good ones, free the
disk, and mend what rotted.

Every line that begins with `$` is a command that anyone can type; what follows is what it printed. Run it with
`python experiments/months.py`, or with `--folder FOLDER` to keep what it makes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from demo import Demo

TRAIN = "python -m minitrain train --seed 7 --commit-every 20"


def main() -> int:
    """Run the demonstration; return 0 when everything was as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder if left out")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as temporary:
        folder = (folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        demo = Demo(folder / "store")
        demo.run("cairn init store")
        demo.run(f"{TRAIN} --steps 400")
        demo.say("Back to step 200, to try a lower learning rate; the way so far stays as an attempt.")
        demo.run("cairn rewind step:200")
        demo.run(f"{TRAIN} --steps 400 --resume --peak-lr 1e-3")
        demo.run("cairn run list")
        demo.run("cairn diff main/attempt-1 latest --stat")
        demo.run("cairn diff main/attempt-1@400 main@400 model/embed.weight")
        demo.run("cairn show best:val_loss | head -6")
        fails(demo, "cairn show step:390")
        demo.run("cairn log main/attempt-1 -n 2")

        demo.say("What is to be kept is said once. Every gc applies it, as run.apply_rules() does in a training loop.")
        demo.run("cairn keep last:3 every:100 best:val_loss:min optimizer:3")
        demo.run("cairn gc --dry-run")
        demo.run("cairn gc")
        demo.run("cairn drop main/attempt-1 --attempt | tail -2")
        demo.run("cairn undrop main/attempt-1 --attempt | tail -1")
        demo.run("cairn gc --drop-attempts --compact")
        demo.run("cairn du")
        demo.run("cairn reflog")
        demo.run("cairn run delete main && cairn run undelete main")

        demo.say("A copy of the store elsewhere, and then a bad block here.")
        demo.run("cp -r store backup")
        demo.run("cairn verify --quick")
        rot(folder / "store")
        fails(demo, "cairn verify")
        demo.run("cairn verify --repair --from backup")
        demo.run("cairn verify --max-age 1d")
        demo.run("cairn verify --sample 25%")
        demo.run("cairn doctor")
        os.chdir(Path(__file__).parent)
    return demo.status


def rot(store: Path) -> None:
    """Flip one bit of a tensor in the largest pack, as a bad block would."""
    pack = max(store.glob("packs/*/*.safetensors"), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    print(f"\n# One bit of {pack.relative_to(store)} flips.")


def fails(demo: Demo, command: str) -> None:
    """Run a command that must not succeed."""
    before, demo.status = demo.status, 0
    demo.run(command)
    demo.status = before if demo.status else 1


if __name__ == "__main__":
    sys.exit(main())
