"""Ways in which data was once lost, hidden or refused too late; each stays closed."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn
from cairn import canonical
from cairn.io import process
from cairn.io.disk import Disk


def packs(store: cairn.Store) -> list[Path]:
    """The packs of a store."""
    return sorted(store.path.rglob("*.safetensors"))


def test_a_cut_tensor_is_never_joined_from_a_damaged_copy(tmp_path: Path) -> None:
    """With two copies in the store and one of them damaged, the bytes are those of the good one."""
    values = np.arange((64 << 20) // 8 + 1000, dtype=np.int64)
    roots = [tmp_path / "one", tmp_path / "other"]
    for root in roots:
        with cairn.init(root) as store:
            store.run().commit({"model": {"w": values}}, step=1)
            (big,) = [path for path in packs(store) if path.stat().st_size > 1 << 20]
    copied = roots[0] / "packs" / big.parent.name / big.name
    copied.parent.mkdir(exist_ok=True)
    shutil.copy(big, copied)
    with cairn.open(roots[0]) as store:
        for damaged in [path for path in packs(store) if path.stat().st_size > 1 << 20][:1]:
            damaged.chmod(0o644)
            with damaged.open("r+b") as file:
                file.seek(20 << 20)
                byte = file.read(1)
                file.seek(20 << 20)
                file.write(bytes([byte[0] ^ 1]))
        for copy in (False, True):
            np.testing.assert_array_equal(store.load("latest", copy=copy)["model"]["w"], values)


@pytest.mark.parametrize(
    "value",
    [
        {float("nan"): 1, float("nan") * -1: 2, -float("nan"): 3},
        {np.float32("nan"): 1, np.float64("nan"): 2, (float("nan"),): 3, (float("nan") + 0,): 4},
        np.empty((0, 1 << 60), "u1"),
        np.empty((1 << 54, 0), "u1"),
    ],
)
def test_what_could_not_be_loaded_is_refused(tmp_path: Path, value: Any) -> None:
    """Keys that are not equal to themselves, twice, and sizes that no reader takes, are no state."""
    with cairn.init(tmp_path / "store") as store, pytest.raises(cairn.UnsupportedValue, match="nothing was written"):
        store.run().commit({"x": value}, step=1)


def test_a_deep_folder_that_commits_comes_back(tmp_path: Path) -> None:
    """Folders whose names need more room in trees are kept or refused, never stored beyond what is read."""
    for depth in (80, 90):
        root = tmp_path / str(depth)
        (root / Path(*["$d"] * depth)).mkdir(parents=True)
        with cairn.init(tmp_path / f"store-{depth}") as store:
            try:
                store.run().commit({"files": cairn.folder(root)}, step=1)
            except cairn.UnsupportedValue:
                continue
            store.checkout("latest", tmp_path / f"out-{depth}")
            assert (tmp_path / f"out-{depth}" / Path(*["$d"] * depth)).is_dir()


def test_an_open_store_does_not_write_into_one_that_took_its_place(tmp_path: Path) -> None:
    """A handle that has seen another log refuses, and the new store stays whole."""
    root = tmp_path / "store"
    old = cairn.init(root)
    old.run().commit({"x": 1}, step=1)
    handle = old.run()
    shutil.rmtree(root)
    with cairn.init(root) as new:
        new.run().commit({"x": 2}, step=1)
        with pytest.raises(cairn.CairnError):
            handle.commit({"x": 3}, step=2)
        assert new.load("latest") == {"x": 2}
        new.run().commit({"x": 4}, step=2)
        assert new.verify().ok
    old.close()


@pytest.mark.parametrize("hide", ["runs", "runs/main", "runs/main/00000001.json"])
def test_gc_takes_nothing_when_history_is_hidden(tmp_path: Path, hide: str) -> None:
    """A name that was changed, or a folder that is not mounted, is no reason to delete what it needs."""
    with cairn.init(tmp_path / "store") as store:
        store.run().commit({"x": np.arange(100)}, step=1)
        before = packs(store)
        path = store.path / hide
        hidden = path.with_name(f"{path.name} (conflicted copy)")
        path.rename(hidden)
        if hide == "runs":
            path.symlink_to("nowhere")
    with cairn.open(store.path) as again:
        with pytest.raises(cairn.CairnError):
            again.gc()
        assert packs(again) == before
        path.unlink(missing_ok=True)
        hidden.rename(path)
        again.gc()
        assert again.load("latest")["x"].sum() == 4950


def test_a_resume_counts_from_what_it_loaded(tmp_path: Path) -> None:
    """Whoever commits while another resumes is noticed by the other's next commit."""
    with cairn.init(tmp_path / "store") as store, cairn.open(store.path) as other:
        run = store.run()
        run.commit({"x": 1}, step=1)
        run.resume()
        other.run().commit({"x": 2}, step=2)
        with pytest.raises(cairn.Conflict, match="moved"):
            run.commit({"x": 3}, step=3)


def test_a_store_of_many_packs_needs_few_descriptors(tmp_path: Path) -> None:
    """Reading trees keeps no file open, so the number of packs is not bounded by that of open files."""
    program = """
import sys, cairn, numpy as np
with cairn.init(sys.argv[1]) as store:
    run = store.run()
    for step in range(90):
        run.commit({"m": {"w": np.arange(step * 10.0 + 1)}}, step=step)
with cairn.open(sys.argv[1]) as store:
    assert len(list(store.log())) == 90
    assert store.verify().ok
    assert len(store.du().commits) == 90
    store.gc(keep_last=80)
    store.load("latest")
"""

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))

    command = [sys.executable, "-c", program, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=few)
    assert done.returncode == 0, done.stderr


class Interrupted(Disk):
    """Calls a handler in the middle of an operation, as a signal does."""

    handler: Callable[[], object] | None = None

    def step(self, name: str, path: Path) -> None:
        if self.handler is not None and name == "fsync":
            handler, self.handler = self.handler, None
            handler()


def test_a_commit_inside_a_commit_of_the_same_thread_is_refused(tmp_path: Path) -> None:
    """A handler that commits while its thread commits gets an answer instead of waiting for itself."""
    disk = Interrupted()
    with cairn.init(tmp_path / "store", disk=disk) as store:
        run = store.run()
        disk.handler = lambda: run.commit({"x": 2}, step=2)
        with pytest.raises(cairn.Busy, match="this very thread"):
            run.commit({"x": 1}, step=1)
        run.commit({"x": 1}, step=1)


@pytest.mark.parametrize("fields", [{"packs": None}, {"packs": [["x"]]}, {"op": "rewind", "to": []}])
def test_an_entry_that_makes_no_sense_is_damage(tmp_path: Path, fields: dict[str, Any]) -> None:
    """A sealed line of somebody else's making is reported, and crashes nothing."""
    with cairn.init(tmp_path / "store") as store:
        store.run().commit({"x": 1}, step=1)
        entry = store.path / "runs" / "main" / "00000001.json"
        document, seal = canonical.unseal(entry.read_bytes(), "entry")
        forged = {**document, "seq": 2, "previous": seal, **fields}
        (entry.parent / "00000002.json").write_bytes(canonical.seal(forged))
    with cairn.open(store.path) as again:
        assert not again.verify().ok
        with pytest.raises(cairn.CairnError):
            again.run().commit({"x": 2}, step=2)
        with pytest.raises(cairn.CairnError):
            again.gc()
        again.reindex()


def test_a_process_that_proc_does_not_show_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc hides other users' processes, a lock that is held proves that its holder lives."""
    me = process.identity()
    monkeypatch.setattr(process, "start_of", lambda pid: None)
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda self: False if str(self).startswith("/proc/") else exists(self))
    assert not process.is_dead(me)
    assert process.is_dead({**me, "pid": 2**22 - 3})


def test_provenance_survives_a_git_folder_of_any_kind(tmp_path: Path) -> None:
    """Names in other encodings, and a `.git` that is a file, leave the revision out; the commit is made."""
    (tmp_path / "tool.py").write_text("import cairn.store.provenance as p, json; print(json.dumps(p.provenance()))")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "packed-refs").write_bytes(b"# pack\n" + b"a" * 40 + b" refs/tags/\xe9t\xe9\n")
    command = [sys.executable, str(tmp_path / "tool.py")]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert json.loads(done.stdout)["git"] is None, done.stderr
        shutil.rmtree(tmp_path / ".git", ignore_errors=True)
        (tmp_path / ".git").write_text("gitdir: elsewhere\n")
