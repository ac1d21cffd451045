"""What each tool forces to the medium during one save, in a process of its own under strace.

python durability.py TOOL FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import states
from system_calls import BEGIN, END, forced, mark, watch
from tools import named


def of(tool: str, folder: Path) -> dict[str, int]:
    """Count what a tool forces during the second save of a small state."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [sys.executable, __file__, tool, str(Path(temporary) / "kept")]
        return forced(watch(command, Path(temporary)))


def main() -> None:
    """Save twice."""
    tool = named(sys.argv[1])
    state = states.build("a", 0.001)
    tool.start(Path(sys.argv[2]))
    tool.prepare(state)
    tool.save(state)
    states.change_all(state)
    tool.prepare(state)
    mark(BEGIN)
    tool.save(state)
    mark(END)
    tool.stop()


if __name__ == "__main__":
    main()
