"""What was damaged is written anew when the right bytes are committed again."""

from pathlib import Path

import numpy as np
import pytest

import cairn

STATE = {"model": {"w": np.arange(4000.0), "b": np.ones(7)}}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A store in which a byte of a tensor was flipped after step 1."""
    root = tmp_path / "store"
    with cairn.init(root) as store:
        store.run().commit(STATE, step=1)
    (pack,) = root.rglob("*.safetensors")
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    return root


@pytest.mark.parametrize("found_by", ["verify", "load"])
@pytest.mark.parametrize("step", [1, 2])
def test_damage_that_was_found_is_mended_by_a_commit_of_the_right_bytes(
    damaged: Path, found_by: str, step: int
) -> None:
    """Whoever found it, in whatever process: the next commit does not count on a copy that is known to be wrong."""
    with cairn.open(damaged) as store:
        if found_by == "verify":
            assert not store.verify().ok
        else:
            with pytest.raises(cairn.Damaged):
                store.load("latest")
    with cairn.open(damaged) as store:
        run = store.run()
        run.commit(STATE, step=step)
        assert run.last is not None
        assert run.last.is_new is (step == 2)
        assert run.last.new_bytes == 32000
    with cairn.open(damaged) as store:
        for revision in ("step:1", f"step:{step}"):
            np.testing.assert_array_equal(store.load(revision)["model"]["w"], STATE["model"]["w"])
        report = store.verify()
        assert all("another copy is good" in finding.found for finding in report.findings)
        store.gc()
        store.load("step:1")
