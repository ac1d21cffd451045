"""What was damaged is written anew when the right bytes are committed again."""

import errno
from pathlib import Path

import numpy as np
import pytest

import cairn
from cairn.io.disk import Disk

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


class FailsOnce(Disk):
    """A disk that cannot write the third pack of a commit, once."""

    def __init__(self) -> None:
        self.packs = 0

    def step(self, name: str, path: Path) -> None:
        if name == "fsync" and ".pack-" in path.name:
            self.packs += 1
            if self.packs == 3:
                raise OSError(errno.EIO, "Input/output error", str(path))


def test_what_was_never_stored_is_not_taken_for_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FALSE-01: a commit that failed half-way is given again in the same process and stores all that is missing."""
    monkeypatch.setattr("cairn.objects.gather.OWN_PACK_BYTES", 1)
    state = {f"part{number}": np.arange(9.0) + number for number in range(5)}
    with cairn.init(tmp_path / "store", disk=FailsOnce()) as store:
        run = store.run()
        with pytest.raises(cairn.CairnError, match="nothing of it was published"):
            run.commit(state, step=1)
        run.commit(state, step=1)
        assert store.verify().findings == ()
    with cairn.open(tmp_path / "store") as again:
        np.testing.assert_array_equal(again.load("step:1")["part4"], state["part4"])
