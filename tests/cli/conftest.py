"""A small store with a history, and a way to call the command line in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cairn as library
from cairn.cli.main import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes the store once: steps 10, 20 and 30 of run main, each with its own weights."""
    path = tmp_path_factory.mktemp("template") / "store"
    with library.init(path) as store:
        run = store.run("main")
        for number in (1, 2, 3):
            weights = np.full((4, 5), number, np.float32)
            state = {
                "model": {"w": weights, "head": weights, "note": "líne\n\x1b[31mred", "raw": b"\x00\x01"},
                "optimizer": {"m": np.full(8, -number, np.float64), "t": number, "lr": float("nan")},
            }
            metrics = {"loss": 1 / number, "acc": float("nan") if number == 1 else number}
            run.commit(state, step=number * 10, epoch=number, metrics=metrics, message=f"number {number}")
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives a copy of the store, which the command line finds from the current folder."""
    path = tmp_path / "work" / "store"
    shutil.copytree(template, path)
    monkeypatch.chdir(path.parent)
    monkeypatch.delenv("CAIRN_STORE", raising=False)
    return path


@pytest.fixture
def cairn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Calls the command line; returns the exit status and what was printed to stdout and stderr."""
    monkeypatch.delenv("CAIRN_STORE", raising=False)

    def call(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(arg) for arg in args])
        captured = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, captured.out, captured.err

    return call
