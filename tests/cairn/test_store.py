"""Making stores, and committing to them."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe

import cairn


def state(value: float, size: int = 8) -> dict[str, Any]:
    """Make a state with a tie between its components."""
    weight = np.full(size, value)
    return {"model": {"w": weight, "b": np.arange(3)}, "optimizer": {"params": [weight], "t": 1}, "rng": [1, 2]}


def test_a_run_is_made_by_its_first_commit(store: cairn.Store) -> None:
    """Taking a handle writes nothing; the first commit makes the run."""
    before = folders.listing(store.path)
    run = store.run("main")
    assert run.tip is None
    assert list(run.log()) == []
    assert folders.listing(store.path) == before
    assert store.runs() == []
    commit = run.commit(state(1), step=0)
    assert store.runs() == ["main"]
    assert run.tip == commit
    assert commit.parents == ()


def test_a_commit_says_all_that_was_said(store: cairn.Store) -> None:
    """What comes back is frozen and holds step, epoch, metrics, message, parents and where it was made."""
    run = store.run()
    first = run.commit(state(1), step=10)
    second = run.commit(state(2), step=20, epoch=3, metrics={"loss": 0.5}, message="zwölf\nlines \u2028 of it")
    assert (second.step, second.epoch, second.metrics, second.run) == (20, 3, {"loss": 0.5}, "main")
    assert second.message == "zwölf\nlines \u2028 of it"
    assert second.parents == (first.id,)
    assert second.dropped == ()
    assert (first.epoch, first.metrics, first.message) == (None, {}, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.step = 3  # type: ignore[misc]
    with cairn.open(store.path) as again:
        assert [*again.log()] == [second, first]


def test_provenance_names_no_place(store: cairn.Store) -> None:
    """Versions, revision, host and hardware are recorded; paths and arguments are not."""
    commit = store.run().commit(state(1), step=1)
    assert set(commit.provenance) == {"versions", "git", "host", "hardware"}
    assert commit.provenance["versions"]["numpy"] == np.__version__
    text = json.dumps(dict(commit.provenance))
    assert "/" not in text
    assert "pytest" not in text


def test_metrics_come_back_exactly(store: cairn.Store) -> None:
    """Floats of every kind keep their bits, ints stay ints, numpy numbers become plain ones."""
    given: dict[str, Any] = {
        "nan": float("nan"),
        "inf": float("-inf"),
        "zero": -0.0,
        "tiny": 5e-324,
        "int": 1 << 53,
        "np": np.float32(0.1),
        "0-d": np.array(7),
        "a/b c": 1.5,
    }
    store.run().commit(state(1), step=1, metrics=given)
    with cairn.open(store.path) as again:
        found = again.commit("latest").metrics
    assert list(found) == list(given)
    assert math.isnan(found.pop("nan"))  # type: ignore[attr-defined] # a dict behind a Mapping
    assert math.copysign(1, found["zero"]) == -1
    assert dict(found) == {
        "inf": float("-inf"),
        "zero": 0,
        "tiny": 5e-324,
        "int": 1 << 53,
        "np": float(np.float32(0.1)),
        "0-d": 7,
        "a/b c": 1.5,
    }
    assert {type(value) for value in found.values()} == {float, int}


def test_a_commit_needs_no_step(store: cairn.Store) -> None:
    """Step and epoch may be absent; such commits follow each other like any."""
    run = store.run()
    ids = [run.commit(state(1)).id for _ in range(3)]
    assert len(set(ids)) == 3
    assert [commit.step for commit in run.log()] == [None] * 3


def test_a_step_that_is_there_with_the_same_state_is_no_new_commit(store: cairn.Store) -> None:
    """Committing a step again returns the commit that is there and adds no file, whatever else is said."""
    run = store.run()
    run.commit(state(1), step=1)
    there = run.commit(state(2), step=2)
    run.commit(state(3), step=3)
    before = folders.files(store.path)
    for handle in (run, store.run()):
        assert handle.commit(state(2), step=2, metrics={"loss": 7}, message="again") == there
        assert handle.last is not None
        assert (handle.last.is_new, handle.last.new_bytes) == (False, 0)
    assert folders.files(store.path) == before
    assert run.commit(state(4), step=4).parents == (store.commit("step:3").id,)


def test_a_step_that_is_there_with_another_state_is_a_conflict(store: cairn.Store) -> None:
    """The error names the step and the ways out, and nothing is added."""
    run = store.run()
    run.commit(state(1), step=1)
    run.commit(state(2), step=2)
    entries = set(folders.files(store.path))
    for step in (1, 2):
        with pytest.raises(cairn.Conflict, match=rf"step {step}.*resume.*rewind") as caught:
            run.commit(state(9), step=step)
        assert caught.value.exit_code == 5
    assert {name for name in set(folders.files(store.path)) - entries if name.startswith("runs/")} == set()
    assert store.verify().ok


def test_lower_steps_that_are_free_may_follow(store: cairn.Store) -> None:
    """Steps need not grow: another schedule may count otherwise."""
    run = store.run()
    for step in (10, 5, 7):
        run.commit(state(step), step=step)
    assert [commit.step for commit in run.log()] == [7, 5, 10]
    assert store.commit("latest").step == 7


def test_a_run_that_moved_is_a_conflict(store: cairn.Store) -> None:
    """A handle whose base is no longer the tip publishes nothing; taken anew, it goes on."""
    mine, other = store.run(), store.run()
    mine.commit(state(1), step=1)
    with pytest.raises(cairn.Conflict, match="the run moved"):
        other.commit(state(2), step=2)
    assert [commit.step for commit in store.log()] == [1]
    other = store.run()
    other.commit(state(2), step=2)
    with pytest.raises(cairn.Conflict, match="the run moved"):
        mine.commit(state(3), step=3)
    mine.resume()
    assert mine.commit(state(3), step=3).parents == (store.commit("step:2").id,)


def test_a_drop_in_between_is_no_conflict(store: cairn.Store) -> None:
    """Entries that leave the tip where it is are in nobody's way."""
    run = store.run()
    for step in (1, 2):
        run.commit(state(step), step=step)
    store.drop(["step:1"])
    assert run.commit(state(3), step=3).parents == (store.commit("step:2").id,)


def test_a_handle_works_after_close(store: cairn.Store) -> None:
    """close only lets the index go; it opens again when it is needed."""
    run = store.run()
    run.commit(state(1), step=1)
    store.close()
    run.commit(state(2), step=2)
    assert describe(store.load("latest")) == describe(state(2))


def test_any_state_that_has_components_is_kept(store: cairn.Store) -> None:
    """A state may be empty, hold empty components, or values that are no dicts."""
    run = store.run()
    states: list[dict[str, Any]] = [{}, {"model": {}}, {"a": None, "b": 7, "c": np.zeros(0), "d": "text"}]
    for step, given in enumerate(states):
        run.commit(given, step=step)
        assert describe(run.load()) == describe(given)


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    """A missing folder, one without cairn.json, and a file: each with the folder's name and what to do."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("missing", "empty", "file", "file/below"):
        with pytest.raises(cairn.StoreNotFound, match=f"{name}.*cairn init") as caught:
            cairn.open(tmp_path / name)
        assert caught.value.exit_code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


def test_a_store_of_another_version_is_told(store: cairn.Store) -> None:
    """A sound cairn.json of a later version is no damage; a newer cairn is what helps."""
    path = store.path / "cairn.json"
    for change in ({"version": 2}, {"hash": "sha256"}, {"format": "other"}):
        document = json.loads(path.read_bytes())
        folders.write(path, folders.seal({**document, **change}))
        with pytest.raises(cairn.StoreNotFound, match="newer cairn"):
            cairn.open(store.path)
        folders.write(path, folders.seal(document))


def test_a_store_is_made_where_nothing_is(tmp_path: Path) -> None:
    """init makes the folders above, too, and refuses a folder that holds anything."""
    with cairn.init(tmp_path / "a" / "b" / "store") as store:
        assert len(store.id) == 32
    with pytest.raises(cairn.Conflict, match="is a store already"):
        cairn.init(tmp_path / "a" / "b" / "store")
    with pytest.raises(cairn.Conflict, match="found files in it"):
        cairn.init(tmp_path / "a")
    (tmp_path / "file").write_text("x")
    with pytest.raises(cairn.CairnError):
        cairn.init(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"
