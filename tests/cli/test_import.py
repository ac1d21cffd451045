"""cairn import: the checkpoints of a run folder, in order, once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli import hf

import cairn as library
from cairn.io.disk import Disk

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with an empty store."""
    place = tmp_path / "work"
    place.mkdir()
    library.init(place / "store").close()
    monkeypatch.chdir(place)
    return place


def steps() -> list[tuple[int | None, int | None]]:
    """Step and epoch of the commits, oldest first."""
    with library.open("store") as store:
        return [(commit.step, commit.epoch) for commit in store.run().log()][::-1]


def test_checkpoints_are_committed_in_the_order_of_their_steps(work: Path, cairn: Call) -> None:
    """By number, not by text; with the metrics of their step, NaN included, and the epoch begun."""
    hf.run_folder(work / "out", 1000, 200, 900)
    (work / "out" / "tmp-checkpoint-1100").mkdir()
    status, out, err = cairn("import", "out")
    assert status == 0
    assert steps() == [(200, 0), (900, 3), (1000, 3)]
    with library.open("store") as store:
        run = store.run()
        assert repr(run.at(200).metrics) == "{'loss': 1.5, 'eval_loss': nan, 'eval_n': 7}"
        assert run.at(900).metrics == {"loss": 300 / 900, "eval_loss": 2.5, "eval_n": 7}
        assert run.at(900).message == "checkpoint-900"
        for step in (200, 900, 1000):
            store.checkout(f"step:{step}", work / str(step))
            for path in (work / "out" / f"checkpoint-{step}").iterdir():
                assert (work / str(step) / path.name).read_bytes() == path.read_bytes()
    assert "Imported 3 checkpoints into run main: " in out
    assert " shared (" in out.splitlines()[-1]
    assert err == "tmp-checkpoint-1100 was left out: it is still being written, or was never finished\n"


def test_importing_again_does_nothing(work: Path, cairn: Call) -> None:
    """What is there is passed over; what came in between is added."""
    hf.run_folder(work / "out", 100, 200)
    cairn("import", "out")
    ids = cairn("log", "--json")[1]
    status, out, _ = cairn("import", "out")
    assert status == 0
    assert out.endswith("No checkpoint is new to run main.\n")
    assert cairn("log", "--json")[1] == ids
    hf.checkpoint(work / "out" / "checkpoint-300", 300)
    assert "Imported 1 checkpoint into run main" in cairn("import", "out")[1]
    assert [step for step, _ in steps()] == [100, 200, 300]


def test_steps_that_the_run_has_dropped_are_passed_over(work: Path, cairn: Call) -> None:
    """What gc freed is not brought back by importing the same folder again, nor read."""
    hf.run_folder(work / "out", 100, 200, 300)
    cairn("import", "out")
    cairn("gc", "--keep-last", 1)
    hf.checkpoint(work / "out" / "checkpoint-400", 400)
    for args in (("--dry-run",), ()):
        status, out, err = cairn("import", "out", *args)
        assert status == 0
        assert [line.split()[-4] for line in out.splitlines()[1:3]] == ["dropped", "dropped"]
        assert err.count("the run has dropped this step") == 2
    assert [step for step, _ in steps()] == [100, 200, 300, 400]
    assert cairn("verify")[0] == 0


class StoppingDisk(Disk):
    """A disk that fails for good when the second commit is published."""

    def __init__(self) -> None:
        self.links = 0

    def step(self, name: str, path: Path) -> None:
        self.links += name == "link" and path.parent.name == "main"
        if self.links >= 2:
            raise OSError(5, "Input/output error")


def test_an_import_that_was_cut_short_goes_on(work: Path, cairn: Call) -> None:
    """The same command takes what is left."""
    hf.run_folder(work / "out", 100, 200, 300)
    with library.open("store", disk=StoppingDisk()) as store, pytest.raises((library.CairnError, OSError)):
        store.run().import_folder("out")
    assert [step for step, _ in steps()] == [100]
    assert cairn("import", "out")[0] == 0
    assert [step for step, _ in steps()] == [100, 200, 300]
    cairn("gc")
    assert cairn("verify")[0] == 0


def test_a_step_with_other_content_is_reported_and_the_rest_imported(work: Path, cairn: Call) -> None:
    """Status 5, and nothing that was there is changed."""
    hf.run_folder(work / "out", 100, 200, 300)
    hf.checkpoint(work / "mine", 200, seed=9)
    cairn("commit", "mine", "--step", 200)
    status, out, err = cairn("import", "out", "--dry-run")
    assert status == 5
    assert "conflict" in out
    status, out, err = cairn("import", "out")
    assert status == 5
    assert "conflict" in out.splitlines()[2]
    assert "checkpoint-200 was not committed: run 'main' has step 200 already, with another content" in err
    assert [step for step, _ in steps()] == [200, 100, 300]


def test_a_dry_run_says_the_same_and_writes_nothing(work: Path, cairn: Call) -> None:
    """What one checkpoint brings the next one shares, as in the import itself."""
    hf.run_folder(work / "out", 100, 200)
    planned = json.loads(cairn("import", "out", "--dry-run", "--json")[1])
    assert steps() == []
    made = json.loads(cairn("import", "out", "--json")[1])
    for told in (planned, made):
        for each in told["checkpoints"]:
            del each["commit"]
    assert planned == made
    assert made["run"] == "main"
    assert made["checkpoints"][1]["new_bytes"] < made["checkpoints"][1]["shared_bytes"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["checkpoint-5", "checkpoint-10", "checkpoint-0007"], [5, 7, 10]),
        (["step_5", "step-10", "step7", "global_step12"], [5, 7, 10, 12]),
        (["epoch=3-step=1200.ckpt", "epoch=10-step=4000.ckpt", "last.ckpt"], [1200, 4000]),
        (["model-epoch=02-step=000300-val_loss=0.25.ckpt"], [300]),
        (["iter_0000500", "ckpt-600.pt", "step_700.safetensors", "latest"], [500, 600, 700]),
        (["checkpoint-5", "checkpoint-6.tmp", ".checkpoint-7", "checkpoint-8.incomplete", "tmp_checkpoint-9"], [5]),
        (["checkpoint-5", "checkpoint-best", "step_", "xstep_6", "step_7.json", "events.out.123", "2024"], [5]),
    ],
)
@pytest.mark.parametrize("as_files", [True, False])
def test_names_of_checkpoints(work: Path, cairn: Call, names: list[str], expected: list[int], as_files: bool) -> None:
    """Those of the usual tools, as folders or files, zero-padded or not; nothing else."""
    for name in names:
        if as_files and Path(name).suffix:
            (work / "out" / name).parent.mkdir(exist_ok=True)
            (work / "out" / name).write_text(name)
        else:
            (work / "out" / name).mkdir(parents=True)
            (work / "out" / name / "weights").write_text(name)
    status, _, err = cairn("import", "out")
    assert status == 0, err
    assert [step for step, _ in steps()] == expected


def test_metrics_in_a_name(work: Path, cairn: Call) -> None:
    """Lightning puts epoch and metrics there."""
    (work / "out").mkdir()
    (work / "out" / "model-epoch=02-step=300-val_loss=0.25-acc=1.ckpt").write_text("x")
    (work / "out" / "epoch=3-step=400-val_loss=-1e-05.ckpt").write_text("x")
    cairn("import", "out")
    with library.open("store") as store:
        first, second = store.run().at(300), store.run().at(400)
    assert (first.epoch, first.metrics) == (2, {"val_loss": 0.25, "acc": 1.0})
    assert (second.epoch, second.metrics) == (3, {"val_loss": -1e-05})


@pytest.mark.parametrize("other", ["step_0500", "checkpoint-500.pt", "epoch=1-step=500.ckpt"])
def test_two_checkpoints_of_one_step_are_an_error(work: Path, cairn: Call, other: str) -> None:
    """Both are named before anything is written."""
    hf.run_folder(work / "out", 100, 500)
    (work / "out" / other).write_text("x") if Path(other).suffix else hf.checkpoint(work / "out" / other, 500, seed=1)
    status, out, err = cairn("import", "out")
    assert (status, out) == (4, "")
    assert "checkpoint-500" in err
    assert f"{other} " in err
    assert "for step 500" in err
    assert steps() == []


def test_what_is_no_whole_checkpoint_is_left_out_and_named(work: Path, cairn: Call) -> None:
    """Without trainer_state.json where others have one, empty, or a link to another."""
    hf.run_folder(work / "out", 100, 200)
    (work / "out" / "checkpoint-200" / "trainer_state.json").unlink()
    (work / "out" / "checkpoint-300").mkdir()
    (work / "out" / "checkpoint-400").symlink_to("checkpoint-100")
    (work / "out" / "checkpoint-500").symlink_to("gone")
    shutil.copytree(work / "out" / "checkpoint-100", work / "elsewhere")
    (work / "out" / "checkpoint-600").symlink_to(work / "elsewhere")
    status, _, err = cairn("import", "out")
    assert status == 0
    assert [step for step, _ in steps()] == [100, 600]
    for number, words in (
        (200, "it has no trainer_state.json"),
        (300, "it is empty"),
        (400, "a link to checkpoint-100"),
        (500, "leads nowhere"),
    ):
        assert f"checkpoint-{number} was left out: " in err
        assert words in err


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "[" * 100_000, '{"log_history": 5, "epoch": "x"}', '{"log_history": [1, {"step": true}]}', "\xff"],
)
def test_a_trainer_state_that_makes_no_sense_costs_only_the_metrics(work: Path, cairn: Call, text: str) -> None:
    """The weights are kept, and a file that cannot be read is named."""
    hf.checkpoint(work / "out" / "checkpoint-100", 100)
    (work / "out" / "checkpoint-100" / "trainer_state.json").write_bytes(text.encode("latin-1"))
    status, _, err = cairn("import", "out")
    assert status == 0
    assert steps() == [(100, None)]
    assert ("checkpoint-100: its metrics are not known: expected" in err) == ("log" not in text)


def test_nothing_to_import_is_not_found(work: Path, cairn: Call) -> None:
    """A folder without checkpoints, one that is not there, and a file."""
    (work / "out" / "runs").mkdir(parents=True)
    (work / "file").write_text("x")
    for name, words in (
        ("out", "expected checkpoints with names like"),
        ("gone", "found nothing"),
        ("file", "found a file"),
    ):
        status, _, err = cairn("import", name)
        assert status == 4
        assert words in err


def test_a_pipe_in_a_later_checkpoint_stops_before_anything_is_written(work: Path, cairn: Call) -> None:
    """Everything is looked through first."""
    hf.run_folder(work / "out", 100, 200)
    os.mkfifo(work / "out" / "checkpoint-200" / "pipe")
    status, _, err = cairn("import", "out")
    assert status == 1
    assert "out/checkpoint-200/pipe: expected a file" in err
    assert steps() == []


def test_importing_into_another_run(work: Path, cairn: Call) -> None:
    """--run makes one; the bytes are shared with what was imported before."""
    hf.run_folder(work / "out", 100)
    cairn("import", "out")
    out = cairn("import", "out", "--run", "again")[1]
    assert "into run again: 0 B new" in out
    with library.open("store") as store:
        assert store.runs() == ["again", "main"]
