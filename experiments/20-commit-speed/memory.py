"""The most memory that one commit takes beside the state, in a process of its own.

    python memory.py STATE SCALE MODE FOLDER

MODE is one of MODES. Prints bytes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import states
from cairn_tool import Cairn
from libraries import Safetensors

IN_BACKGROUND = "cairn, in the background"
MODES = ("cairn", IN_BACKGROUND, "safetensors")


def peak(state: str, scale: float, mode: str, folder: Path) -> int:
    """Return the bytes that were resident at most during a save beyond those before it."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [sys.executable, __file__, state, str(scale), mode, str(Path(temporary) / "kept")]
        return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _save(mode: str, folder: Path) -> Callable[[states.State], None]:
    """Warm up what is to be measured: imports and threads are no part of it."""
    tool = Safetensors() if mode == "safetensors" else Cairn()
    tool.start(folder)
    small = states.build("a", 0.001)
    tool.save(small)
    if mode != IN_BACKGROUND:
        return tool.save

    def save_later(state: states.State) -> None:
        wait = tool.save_later(state)
        assert wait is not None
        wait()

    save_later(small)
    return save_later


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def main() -> None:
    """Save once and print."""
    name, scale, mode, folder = sys.argv[1:]
    state = states.build(name, float(scale))
    save = _save(mode, Path(folder))
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _resident("VmRSS")
    save(state)
    print(max(0, _resident("VmHWM") - before))


if __name__ == "__main__":
    main()
