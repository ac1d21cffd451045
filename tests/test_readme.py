"""The README says what happens: its transcript is what the demo prints, its Python runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DEMO_STORE = "store/demo"

VOLATILE = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<id>"),
    (re.compile(r"packs/[0-9a-f]{2}/"), "packs/"),
    (re.compile(r"\b[0-9a-f]{32}\.pack-\d+"), "<pack>"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*"), "<time>"),
    (re.compile(r"kill -9 \d+"), "kill -9 <pid>"),
    # Losses depend on the processor's kernels, sizes and counts on where the kill came.
    (re.compile(r"\d+\.\d+"), "<number>"),
    (re.compile(r"\b\d+ (entries|packs?|blobs?|commits|B)\b"), r"<n> \1"),
    (re.compile(r" +"), " "),
)


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language in the README."""
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def normal(text: str) -> list[str]:
    """Lines without what differs from one run to the next."""
    for pattern, stand_in in VOLATILE:
        text = pattern.sub(stand_in, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("number", "script", "option"),
    [(0, "demo.py", "--store"), (1, "folders.py", "--folder"), (2, "months.py", "--folder")],
)
def test_a_transcript_is_what_its_script_prints(number: int, script: str, option: str, tmp_path: Path) -> None:
    """Every command of the README's transcripts is one of its script's, with the output that it has."""
    place = tmp_path / "demo"
    command = [sys.executable, str(ROOT / "experiments" / script), option, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    said = normal(done.stdout.replace(str(place), DEMO_STORE))
    position = 0
    for line in normal(blocks("console")[number]):
        if line == "…":
            continue
        here = without_steps(line)
        found = [at for at in range(position, len(said)) if without_steps(said[at]) == here]
        assert found, f"{script} does not print this line of the README any more: {line!r}"
        position = found[0] + 1


def without_steps(line: str) -> str:
    """A line without numbers: steps and sizes depend on when the process was killed, the rest on the processor."""
    return re.sub(r"\d+", "#", line)


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_examples_run(number: int, tmp_path: Path) -> None:
    """The examples run one after the other in an empty folder, warnings being errors."""
    program = "\n".join(blocks("python")[: number + 1])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
