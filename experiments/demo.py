"""Train, commit, die in the middle of a commit, resume, and go on as if nothing had happened.

Every line that begins with `$` is a command that anyone can type; what follows is what it printed. Run it with
`make demo`, or `python experiments/demo.py --store FOLDER`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

STEPS, COMMIT_EVERY, SEED = 200, 10, 7
KILL_AFTER_COMMITS = 8
ATTEMPTS = 50


def main() -> int:
    """Run the demonstration; return 0 when everything was as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("store/demo"), help="the store to make; removed first")
    store = parser.parse_args().store
    losses, unbroken = store.with_name(store.name + ".losses"), store.with_name(store.name + ".unbroken.losses")
    shutil.rmtree(store, ignore_errors=True)
    for file in (losses, unbroken):
        file.unlink(missing_ok=True)
    demo = Demo(store)

    demo.say("A run trains and commits its whole state every few steps. It is killed in the middle of a commit.")
    train = f"python -m minitrain train --store {store} --seed {SEED} --steps {STEPS} --commit-every {COMMIT_EVERY}"
    demo.run(f"cairn init {store}")
    demo.kill_in_commit(f"{train} --losses {losses}")
    demo.say("The pack that was being written is left over, and no part of that commit is visible.")
    demo.run(f"ls {store / 'tmp'}")
    demo.run(f"cairn --store {store} log -n 2")
    demo.run(f"cairn --store {store} verify")

    demo.say("Another process resumes and trains to the end.")
    demo.run(f"{train} --losses {losses} --resume")
    demo.say("The same training, never interrupted, as another run of the same store.")
    demo.run(f"{train} --losses {unbroken} --run unbroken")
    demo.say("Every loss is the same to the last bit, and so is the manifest id: the state itself.")
    demo.run(f"diff <(sort -u {losses}) <(sort -u {unbroken}) && echo the same losses")
    demo.run(f"cairn --store {store} show main@{STEPS} --json | grep '\"manifest\"'")
    demo.run(f"cairn --store {store} show unbroken@{STEPS} --json | grep '\"manifest\"'")

    demo.say("The store: the second run cost nothing but its history, because its states are the same.")
    demo.run(f"cairn --store {store} log --run main -n 3")
    demo.run(f"cairn --store {store} du main unbroken")
    demo.run(f"cairn --store {store} verify")
    demo.say("Keep the last three commits of each run, and free the rest; the leftovers of the kill go, too.")
    demo.run(f"cairn --store {store} gc --keep-last 3")
    demo.run(f"cairn --store {store} du")
    demo.run(f"cairn --store {store} verify")
    return demo.status


class Demo:
    """Runs commands in a shell and shows them with their output."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.status = 0
        folder = Path(sys.executable).parent
        self._environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120"}

    def say(self, text: str) -> None:
        """Print a line that explains."""
        print(f"\n# {text}", flush=True)

    def run(self, command: str) -> str:
        """Show and run a command; a failure is remembered."""
        print(f"$ {command}", flush=True)
        done = subprocess.run(
            ["bash", "-c", command], env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        print(done.stdout, end="", flush=True)
        if done.returncode:
            print(f"(exit status {done.returncode})", flush=True)
            self.status = 1
        return done.stdout

    def kill_in_commit(self, command: str) -> None:
        """Start a training process, kill it while a pack is being written, and show what a person would have typed.

        A commit takes milliseconds, so a kill can come too late for one; then the process is left to the next.
        """
        print(f"$ {command} &", flush=True)
        process = subprocess.Popen(["bash", "-c", f"exec {command}"], env=self._environment)
        entries = self.store / "runs" / "main"
        while process.poll() is None and not (entries / f"{KILL_AFTER_COMMITS:08d}.json").exists():
            time.sleep(0.01)
        for _ in range(ATTEMPTS):
            self._await_pack(process)
            # Stopped first, so that "in the middle of a commit" can be seen before it is decided.
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.01)
            if process.poll() is not None or self._packs_being_written():
                break
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        print(f"$ kill -9 {process.pid}", flush=True)
        if not self._packs_being_written():
            print("(the process ended before it could be killed in a commit)")
            self.status = 1

    def _await_pack(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None and not self._packs_being_written():
            pass

    def _packs_being_written(self) -> list[str]:
        return [name for name in os.listdir(self.store / "tmp") if ".pack-" in name]


if __name__ == "__main__":
    sys.exit(main())
