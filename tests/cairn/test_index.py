"""The index is derived and never trusted: whatever is done to it, every answer and every later commit is the same."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlite_utils import Database
from tests.cairn import folders
from tests.cairn.describe import describe

import cairn
from cairn.io.disk import Disk
from cairn.store.store import open_store


def state(step: int) -> dict[str, Any]:
    """Make a state that shares half of its content with every other step."""
    return {"model": {"w": np.arange(20.0) + step, "frozen": np.arange(30)}, "rng": {"state": step}}


@pytest.fixture(autouse=True, scope="module")
def snapshots() -> Iterator[None]:
    """Keep a snapshot of a run from its first entry on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cairn.history.journal.SNAPSHOT_ENTRIES", 1)
        yield


def fill(root: Path) -> None:
    """Make a store with two runs, a tag, an attempt and a drop, and keep the index of its first days."""
    with cairn.init(root) as store:
        run = store.run("main")
        run.commit(state(1), step=1, epoch=0, metrics={"loss": 3.5}, message="one")
        store.close()
        shutil.copy(root / "index.sqlite", root.with_name("older.sqlite"))
        run.commit(state(2), step=2, epoch=0, metrics={"loss": 2.5, "tokens": 7})
        run.commit(state(3), step=3, epoch=1, metrics={"loss": float("nan")})
        run.resume(step=2)
        run.commit(state(33), step=3, epoch=1, metrics={"loss": 1.5})
        store.tag("good", "main@2")
        store.create_run("other", "good").commit(state(4), step=4)
        store.drop(["main@1"], only={"rng"})
        store.drop(["main/attempt-1"])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled store; beside it its older index and another store's."""
    root = tmp_path_factory.mktemp("filled") / "store"
    fill(root)
    with cairn.init(root.with_name("foreign")) as other:
        other.run("main").commit(state(2), step=1)
    shutil.copy(root.with_name("foreign") / "index.sqlite", root.with_name("foreign.sqlite"))
    return root


def answers(store: cairn.Store) -> dict[str, object]:
    """Ask everything that can be asked."""
    commits = {name: [*store.run(name).log()] for name in store.runs()}
    revisions = ["main", "other", "good", "main@2", "main~1", "other~1", commits["main"][0].id[:12]]
    return {
        "commits": commits,
        "reflog": {name: store.run(name).reflog() for name in commits},
        "tags": store.tags(),
        "revisions": [store.commit(revision) for revision in revisions],
        "best": store.commit("best:loss:min", "main"),
        "epoch": store.commit("epoch:1", "main"),
        "attempt": store.commit("main/attempt-1").dropped,
        "states": [describe(store.load(revision)) for revision in revisions],
        "lazily": [describe(dict(store.open(revision)["model"])) for revision in revisions],
        "partly": describe(store.load("main@1", only={"model"})),
        "ls": store.ls("main", "model"),
        "cat": describe(store.cat("main", "model/w")),
        "du": store.du(),
        "verify": store.verify(),
        "retention": store.plan_retention(keep_last=1),
        "gc": store.gc(dry_run=True),
    }


@pytest.fixture(scope="module")
def expected(filled: Path) -> dict[str, object]:
    """The answers of a store without an index."""
    root = filled.with_name("bare")
    shutil.copytree(filled, root, ignore=shutil.ignore_patterns("index.sqlite*"))
    with cairn.open(root) as store:
        return answers(store)


def check(root: Path, expected: dict[str, object]) -> None:
    """Ask everything, commit what is new and what is not, and ask again without the index."""
    with cairn.open(root) as store:
        found = answers(store)
        for question, answer in expected.items():
            assert found[question] == answer, question
        store.run("main").commit(state(50), step=50)
        store.run("main").commit(state(2), step=51)
        assert store.verify().ok
        after = {step: describe(store.load(f"main@{step}")) for step in (2, 50, 51)}
    assert after == {2: describe(state(2)), 50: describe(state(50)), 51: describe(state(2))}
    for path in root.glob("index.sqlite*"):
        path.unlink() if path.is_file() else path.rmdir()
    with cairn.open(root) as store:
        assert {step: describe(store.load(f"main@{step}")) for step in (2, 50, 51)} == after
        assert store.verify().ok


def sql(*statements: str) -> Callable[[Path], None]:
    """Return a change of the index by SQL."""

    def change(index: Path) -> None:
        connection = sqlite3.connect(index)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return change


def put(name: str) -> Callable[[Path], object]:
    """Return a change of the index to another file."""
    return lambda index: shutil.copy(index.parent.with_name(name), index)


class WatchedDisk(Disk):
    """The real disk, which remembers what files were read."""

    def __init__(self) -> None:
        self.was_read: set[Path] = set()

    def read(self, path: Path) -> bytes:
        self.was_read.add(path)
        return super().read(path)


def as_folder(index: Path) -> None:
    """Put a folder where the index should be."""
    index.unlink()
    index.mkdir()


def foreign_rows(index: Path) -> None:
    """Put another store's rows into this store's index."""
    other = Database(index.parent.with_name("foreign.sqlite"))
    mine = Database(index)
    for name in ("packs", "blobs", "logs", "commits", "snapshots"):
        mine.table(name).insert_all(list(other[name].rows), replace=True)
    mine.close()
    other.close()


CHANGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda index: index.unlink(),
    "older": put("older.sqlite"),
    "another store's": put("foreign.sqlite"),
    "another store's rows": foreign_rows,
    "empty file": lambda index: index.write_bytes(b""),
    "garbage": lambda index: index.write_bytes(random.Random(1).randbytes(50_000)),
    "text": lambda index: index.write_text("not a database"),
    "folder": as_folder,
    "cut": lambda index: os.truncate(index, 3 * 4096 + 100),
    "cut at a page": lambda index: os.truncate(index, 4 * 4096),
    "garbage as -wal": lambda index: (
        index.with_name("index.sqlite-wal").write_bytes(b"\x37\x7f\x06\x82" * 999) and None
    ),
    "folder as -wal": lambda index: index.with_name("index.sqlite-wal").mkdir(),
    "packs swapped": sql("UPDATE blobs SET pack = (SELECT b.pack FROM blobs b WHERE b.pack != blobs.pack LIMIT 1)"),
    "packs nowhere": sql("UPDATE blobs SET pack = substr(hex(zeroblob(32)), 1, 64)"),
    "packs elsewhere": sql("UPDATE blobs SET pack = '../../../../../etc/passwd'"),
    "packs no names": sql("UPDATE OR IGNORE blobs SET pack = 'a' || char(0) || 'b'"),
    "packs no text": sql("UPDATE OR IGNORE blobs SET pack = x'ff00'"),
    "packs numbers": sql("UPDATE OR IGNORE blobs SET pack = 7"),
    "ids swapped": sql("UPDATE OR REPLACE blobs SET id = (SELECT b.id FROM blobs b WHERE b.id != blobs.id LIMIT 1)"),
    "sizes wrong": sql("UPDATE blobs SET bytes = bytes + 1", "UPDATE packs SET bytes = -1"),
    "trees wrong": sql("UPDATE blobs SET tree = 1 - tree"),
    "no blobs": sql("DELETE FROM blobs"),
    "half the blobs": sql("DELETE FROM blobs WHERE rowid % 2"),
    "no packs": sql("DELETE FROM packs"),
    "packs only": sql("DELETE FROM blobs", "DELETE FROM logs"),
    "no logs": sql("DELETE FROM logs"),
    "logs ahead": sql("UPDATE logs SET seq = 1000"),
    "logs behind": sql("UPDATE logs SET seq = 1"),
    "logs no numbers": sql("UPDATE logs SET seq = 'x', seal = x'00'"),
    "other logs": sql("UPDATE OR REPLACE logs SET name = 'nobody'"),
    "no commits": sql("DELETE FROM commits", "DELETE FROM metrics", "DELETE FROM components"),
    "other commits": sql("UPDATE commits SET manifest = 'x', step = -1, dropped = 1, message = x'ff'"),
    "no snapshots": sql("DELETE FROM snapshots"),
    "snapshots cut": sql("UPDATE snapshots SET data = substr(data, 1, 200)"),
    "snapshots no bytes": sql("UPDATE snapshots SET data = 7"),
    "snapshots garbage": sql("UPDATE snapshots SET data = randomblob(500)"),
    "snapshots changed": sql("UPDATE snapshots SET data = replace(hex(data), 'A', 'B')"),
    "snapshots swapped": sql("UPDATE OR REPLACE snapshots SET run = 'other' WHERE run = 'main'"),
    "snapshots without metrics": sql("DELETE FROM snapshots WHERE part != ''"),
    "metrics without snapshots": sql("DELETE FROM snapshots WHERE part = ''"),
    "metrics swapped": sql("UPDATE OR REPLACE snapshots SET part = 'loss' WHERE part = 'tokens'"),
    "other store": sql("UPDATE meta SET store = 'x'"),
    "other schema": sql("PRAGMA user_version = 99"),
    "a table lost": sql("DROP TABLE blobs"),
    "a column lost": sql("ALTER TABLE blobs DROP COLUMN bytes"),
    "a view": sql("DROP TABLE packs", "CREATE VIEW packs AS SELECT id, 1 AS bytes, 'x' AS write_id FROM blobs"),
    "a trigger": sql(
        "CREATE TRIGGER t BEFORE INSERT ON blobs BEGIN SELECT RAISE(ABORT, 'no'); END",
        "CREATE TRIGGER u BEFORE INSERT ON commits BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_answers_do_not_depend_on_the_index(
    name: str, filled: Path, expected: dict[str, object], tmp_path: Path
) -> None:
    """Missing, old, foreign, doctored or broken: the same answers, and later commits are whole."""
    for beside in filled.parent.glob("*.sqlite"):
        shutil.copy(beside, tmp_path)
    root = Path(shutil.copytree(filled, tmp_path / "store"))
    CHANGES[name](root / "index.sqlite")
    check(root, expected)


def test_flipped_bytes_of_the_index_change_nothing(filled: Path, expected: dict[str, object], tmp_path: Path) -> None:
    """A flipped byte anywhere in the database, and there are many, changes no answer and spoils no commit."""
    size = (filled / "index.sqlite").stat().st_size
    draw = random.Random(7)
    for number in range(12):
        root = Path(shutil.copytree(filled, tmp_path / str(number)))
        data = bytearray((root / "index.sqlite").read_bytes())
        for place in [number * 8, 100 + number, *(draw.randrange(size) for _ in range(number))]:
            data[place] ^= draw.randrange(1, 256)
        (root / "index.sqlite").write_bytes(data)
        check(root, expected)


def test_a_snapshot_spares_reading_old_entries(filled: Path, tmp_path: Path) -> None:
    """Opened with its index, a run reads only the entries that the answer needs; without it, all of them."""

    root = Path(shutil.copytree(filled, tmp_path / "store"))
    seen = []
    for _ in range(2):
        disk = WatchedDisk()
        with open_store(root, disk=disk) as store:
            assert store.commit("main@3", "main").step == 3
        seen.append({path.name for path in disk.was_read if path.parent.name == "main"})
        (root / "index.sqlite").unlink()
    entries = [f"{seq:08d}.json" for seq in range(1, 7)]
    assert seen == [set(entries[3:]), set(entries)]


def test_a_snapshot_of_a_log_that_was_put_back_is_not_used(filled: Path, tmp_path: Path) -> None:
    """Where the log no longer has the entry that the snapshot was made at, the entries say what is there."""
    root = Path(shutil.copytree(filled, tmp_path / "store"))
    (root / "runs" / "main" / "00000006.json").unlink()
    with cairn.open(root) as store:
        assert not store.commit("main/attempt-1").is_dropped
    (root / "runs" / "main" / "00000005.json").unlink()
    (root / "runs" / "main" / "00000004.json").unlink()
    with cairn.open(root) as store:
        assert [commit.step for commit in store.log("main")] == [3, 2, 1]


def test_a_locked_index_holds_nobody_up(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process sits on the database, commits and look-ups do without it."""
    monkeypatch.setattr("cairn.objects.index.BUSY_SECONDS", 0.01)
    store.run().commit(state(1), step=1)
    store.close()
    other = sqlite3.connect(store.path / "index.sqlite", isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    store.run().commit(state(2), step=2)
    assert describe(store.load("latest")) == describe(state(2))
    assert store.verify().ok
    other.execute("ROLLBACK")
    other.close()


def test_the_tables_can_be_queried(store: cairn.Store) -> None:
    """sqlite-utils finds the commits, metrics, components, packs and blobs of a store as cairn tells them."""
    run = store.run()
    run.commit(state(1), step=1, epoch=0, metrics={"loss": 3.5, "tokens": 7}, message="one")
    run.commit(state(2), step=2, metrics={"loss": float("nan")})
    store.close()
    database = Database(store.path / "index.sqlite")
    commits = {commit.step: commit for commit in store.log()}
    rows = [
        {key: row[key] for key in ("id", "run", "step", "epoch", "message", "manifest", "dropped")}
        for row in database["commits"].rows_where(order_by="step")
    ]
    assert rows == [
        {
            "id": commits[step].id,
            "run": "main",
            "step": step,
            "epoch": commits[step].epoch,
            "message": commits[step].message,
            "manifest": commits[step].manifest,
            "dropped": 0,
        }
        for step in (1, 2)
    ]
    query = 'SELECT name, value FROM metrics JOIN commits ON id = metrics."commit" WHERE step = 1 ORDER BY name'
    assert list(database.query(query)) == [{"name": "loss", "value": 3.5}, {"name": "tokens", "value": 7}]
    assert {row["name"] for row in database["components"].rows} == {"model", "rng"}
    packs = {pack.stem: pack for pack in folders.packs(store.path)}
    assert {row["id"]: row["bytes"] for row in database["packs"].rows} == {
        name: pack.stat().st_size for name, pack in packs.items()
    }
    assert {(row["pack"], row["id"], row["bytes"]) for row in database["blobs"].rows} == {
        (name, blob, size) for name, pack in packs.items() for blob, (_, size) in folders.head(pack)[1].items()
    }
    database.close()


def test_reindex_tells_what_became_of_runs(store: cairn.Store) -> None:
    """Built anew, the tables show renamed runs under their new name and dropped commits as dropped."""
    run = store.run()
    for step in (1, 2):
        run.commit(state(step), step=step)
    store.rename_run("main", "first")
    store.drop(["step:1"])
    assert store.reindex() == len(folders.packs(store.path))
    store.close()
    database = Database(store.path / "index.sqlite")
    rows = [(row["run"], row["step"], row["dropped"]) for row in database["commits"].rows_where(order_by="step")]
    assert rows == [("first", 1, 1), ("first", 2, 0)]
    database.close()
