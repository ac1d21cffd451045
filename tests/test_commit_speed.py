"""The benchmark of experiment 20 runs to its end, with whatever is installed here."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "20-commit-speed"


def test_a_small_run_fills_the_tables_of_the_page(tmp_path: Path) -> None:
    """Every state is measured; the tables between their marks are written, and the text around them stays."""
    out = tmp_path / "out"
    out.mkdir()
    shutil.copy(EXPERIMENT / "README.md", out)
    options = ["--scale", "0.002", "--repeat", "1", "--only", "cairn,safetensors,git-lfs"]
    command = [sys.executable, str(EXPERIMENT / "bench.py"), *options, "--folder", str(tmp_path), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    measured = {(each["state"], each["tool"]) for each in results["timings"]}
    assert measured >= {(state, tool) for state in "abc" for tool in ("machine", "cairn", "safetensors + fsync")}
    assert ("tiny", "cairn") in measured
    page, before = (folder.joinpath("README.md").read_text() for folder in (out, EXPERIMENT))
    assert page.partition("<!-- tables -->")[0] == before.partition("<!-- tables -->")[0]
    assert page.partition("<!-- end of tables -->")[2] == before.partition("<!-- end of tables -->")[2]
    assert f"### (c) {results['states']['c']['what']}" in page
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
