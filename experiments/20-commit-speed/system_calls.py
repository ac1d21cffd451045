"""The system calls of one save: what a tool forces, and in which order cairn does it.

    python system_calls.py [--json]

Prints the durable steps of one commit, as strace saw them, in the order in which they began.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

CALLS = (
    "openat,fallocate,ftruncate,write,writev,pwrite64,pwritev,fsync,fdatasync,sync_file_range,syncfs,sync,msync,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir"
)
BEGIN, END = "/the-save-begins", "/the-save-ends"
"""Names that nobody has, asked for around the save."""

_CALL = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>")
_PATH = re.compile(r'<(/[^>]*)>|"([^"]*)"')


@dataclass(frozen=True)
class Call:
    """One call that succeeded, with the paths it names, and the lines at which it began and ended."""

    name: str
    paths: tuple[str, ...]
    began: int
    ended: int
    is_new: bool = False
    """Whether it makes a file."""


def missing() -> str | None:
    """Say why system calls cannot be watched, or None."""
    if shutil.which("strace") is None:
        return "no strace"
    tried = subprocess.run(["strace", "--output", os.devnull, "true"], capture_output=True, text=True)
    return f"strace may not watch: {tried.stderr.strip()[-200:]}" if tried.returncode else None


def watch(command: list[str], folder: Path) -> list[Call]:
    """Run a command that calls `mark` around a save, and return what happened in between."""
    log = folder / "strace.log"
    options = ["--follow-forks", "-y", "--string-limit=256", f"--trace={CALLS}", f"--output={log}"]
    subprocess.run(["strace", *options, *command], check=True, stdout=subprocess.DEVNULL)
    return list(parse(log.read_text(errors="replace").splitlines()))


def mark(name: str) -> None:
    """Leave a trace."""
    try:
        os.close(os.open(name, os.O_RDONLY))
    except FileNotFoundError:
        return


def parse(lines: list[str]) -> Iterator[Call]:
    """Yield the calls between the marks, in the order in which they ended."""
    under_way: dict[str, tuple[int, str]] = {}
    is_inside = False
    for number, line in enumerate(lines):
        if BEGIN in line or END in line:
            is_inside = BEGIN in line
            continue
        began = number
        if resumed := _RESUMED.match(line):
            began, start = under_way.pop(resumed["pid"], (number, ""))
            line = start + line[resumed.end() :]
        found = _CALL.match(line)
        if found is None or not is_inside:
            continue
        if line.endswith("<unfinished ...>"):
            under_way[found["pid"]] = number, line.removesuffix("<unfinished ...>")
            continue
        arguments, _, result = found["rest"].rpartition(" = ")
        if result.startswith(("-1", "?")):
            continue
        paths = tuple(one or other for one, other in _PATH.findall(_without_data(found["name"], arguments)))
        yield Call(found["name"], paths, began, number, "O_CREAT" in arguments)


def _without_data(name: str, arguments: str) -> str:
    """What is written is no path."""
    return arguments.partition(", ")[0] if "write" in name else arguments


FORCING = ("fsync", "fdatasync", "sync_file_range", "syncfs", "sync", "msync")


def forced(calls: list[Call]) -> dict[str, int]:
    """Count what was forced: files, folders, and by which call."""
    found: dict[str, int] = {}
    for call in calls:
        if call.name in FORCING:
            path = Path(call.paths[0]) if call.paths else Path()
            kind = f"{call.name} of {'folders' if path.is_dir() else 'files'}"
            found[kind] = found.get(kind, 0) + 1
    return found


def commit() -> None:
    """Commit a state of two components, one of which has packs of its own; the marks stand around it."""
    import numpy as np

    import cairn

    big = {f"w{n}": np.arange(n, n + (5 << 20), dtype="f4") for n in range(4)}
    with cairn.init(sys.argv[2]) as store:
        run = store.run("main")
        run.commit({"model": {"w": np.zeros(4)}}, step=0)
        mark(BEGIN)
        run.commit({"model": big, "scheduler": {"lr": 0.1}}, step=1)
        mark(END)


def steps(calls: list[Call], root: Path) -> Iterator[str]:
    """Spell the durable steps of a commit, many writes to one file as one; the last digits of names are left out."""
    last = ""
    for call in sorted(calls, key=lambda call: call.began):
        paths = [_short(path, root) for path in call.paths if path.startswith(f"{root}/")]
        if not paths or (call.name == "openat" and not call.is_new) or "index.sqlite" in paths[-1]:
            continue
        words = "create" if call.name == "openat" else call.name
        line = f"{words:9} {' -> '.join(dict.fromkeys(paths))}"
        if line != last:
            yield line
        last = line


def _short(path: str, root: Path) -> str:
    return re.sub(r"[0-9a-f]{26,}", lambda found: found[0][:6] + "…", path.removeprefix(f"{root}/"))


def watch_commit(folder: Path) -> tuple[list[Call], Path]:
    """Watch one commit to a new store; return its calls and the store."""
    root = folder / "store"
    return watch([sys.executable, __file__, "--commit", str(root)], folder), root


def main() -> None:
    """Print the steps of one commit."""
    if sys.argv[1:2] == ["--commit"]:
        commit()
        return
    if reason := missing():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as temporary:
        calls, root = watch_commit(Path(temporary))
    if "--json" in sys.argv:
        print(json.dumps({"root": str(root), "calls": [asdict(call) for call in calls]}))
    else:
        print("\n".join(steps(calls, root)))


if __name__ == "__main__":
    main()
