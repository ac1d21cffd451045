"""The index: a SQLite database derived from packs and entries, disposable at any time.

It answers "which pack may hold this blob?" without opening packs, and holds tables that a person would query. Nothing
it says is believed: a pack's own header decides, and history is read from entries. So an index that is missing, old,
broken or doctored can cost time or a second copy of a blob, never a wrong answer; no error of it fails an operation.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from cairn.ids import is_id
from cairn.objects.pack import Header

if TYPE_CHECKING:
    from sqlite_utils import Database

SCHEMA = 3
BUSY_SECONDS = 5.0
_TOGETHER = 256

_T = TypeVar("_T")

_TABLES: dict[str, tuple[dict[str, type], str | tuple[str, ...]]] = {
    "meta": ({"store": str}, "store"),
    "packs": ({"id": str, "bytes": int, "write_id": str}, "id"),
    "blobs": ({"id": str, "pack": str, "bytes": int, "tree": int}, ("id", "pack")),
    "damage": ({"blob": str, "pack": str}, ("blob", "pack")),
    "checked": ({"pack": str, "time": float}, "pack"),
    "logs": ({"kind": str, "name": str, "seq": int, "seal": str}, ("kind", "name")),
    "commits": (
        {
            "id": str,
            "run": str,
            "step": int,
            "epoch": int,
            "time": str,
            "message": str,
            "manifest": str,
            "dropped": int,
        },
        ("id", "run"),
    ),
    "metrics": ({"commit": str, "name": str, "value": float}, ("commit", "name")),
    "snapshots": ({"run": str, "part": str, "data": bytes}, ("run", "part")),
    "components": ({"commit": str, "name": str, "tree": str, "bytes": int}, ("commit", "name")),
}


class Index:
    """Look-ups and rows of one store's index; in memory when the store has no place for it."""

    def __init__(self, path: Path | None, store_id: str, *, writable: bool) -> None:
        self._path = path
        self._store_id = store_id
        self._writable = writable
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._is_filled = False
        self._drops = 0
        _indexes.add(self)

    @property
    def path(self) -> Path | None:
        """The database's file; None when it is in memory."""
        return self._path

    def is_filled(self) -> bool:
        """Whether every pack that was there when the index was made has been entered."""
        self._tolerant(lambda connection: None, None)
        return self._is_filled

    def fill(self, headers: Iterable[Header]) -> None:
        """Enter all packs there are, and say that they are all. An index that is filled half is filled again."""
        self.add_packs(headers)
        self.insert("meta", [{"store": self._store_id}])
        self._is_filled = True

    def packs_with(self, blob: str) -> list[str]:
        """Return the packs that may hold a blob; what is no pack's name is left out, since it becomes a path."""
        rows = self._select("SELECT pack FROM blobs WHERE id = ?", blob)
        return [pack for (pack,) in rows if is_id(pack)]

    def known(self, blobs: Sequence[str]) -> set[str]:
        """Return those of at most 32 766 blobs that some pack may hold."""
        marks = ",".join("?" * len(blobs))
        return {blob for (blob,) in self._select(f"SELECT id FROM blobs WHERE id IN ({marks})", *blobs)}  # noqa: S608 - marks

    def lacks(self, pack_ids: Iterable[str]) -> list[str]:
        """Return which of these packs were not entered."""
        return [pack_id for pack_id in pack_ids if not self._select("SELECT 1 FROM packs WHERE id = ?", pack_id)]

    def damage(self) -> list[tuple[str, str]]:
        """Return the copies that were found to be wrong: blob and pack."""
        return [(blob, pack) for blob, pack in self._select("SELECT blob, pack FROM damage")]

    def checked(self) -> dict[str, float]:
        """Return when every byte of a pack was last read and found right, in seconds since 1970."""
        rows = self._select("SELECT pack, time FROM checked")
        return {pack: float(time) for pack, time in rows if isinstance(time, (int, float))}

    def count_packs(self) -> int:
        """Return how many packs were entered."""
        rows = self._select("SELECT count(*) FROM packs")
        return int(rows[0][0]) if rows else 0

    def positions(self) -> dict[tuple[str, str], tuple[int, str]]:
        """Return how far each log was entered: (kind, name) to (number, seal)."""
        rows = self._select("SELECT kind, name, seq, seal FROM logs")
        return {(kind, name): (seq, seal) for kind, name, seq, seal in rows}

    def snapshot(self, run: str, part: str) -> bytes | None:
        """Return a part of a run's snapshot."""
        rows = self._select("SELECT data FROM snapshots WHERE run = ? AND part = ?", run, part)
        return rows[0][0] if rows else None

    def keep_snapshot(self, run: str, parts: Mapping[str, bytes]) -> None:
        """Keep a snapshot of a run instead of the one before."""
        self.insert("snapshots", ({"run": run, "part": part, "data": data} for part, data in parts.items()))

    def add_packs(self, headers: Iterable[Header]) -> None:
        """Enter packs and their blobs, some at a time: a store may have many."""
        rest = iter(headers)
        while known := list(islice(rest, _TOGETHER)):
            self._add_packs(known)

    def _add_packs(self, known: Sequence[Header]) -> None:
        self.insert("packs", ({"id": h.pack_id, "bytes": h.size, "write_id": h.write_id} for h in known))
        # Sorted, since neighbours lie on one page of the database.
        rows = sorted(
            (blob, header.pack_id, place.size, int(place.is_tree))
            for header in known
            for blob, place in header.places.items()
        )

        def insert(connection: sqlite3.Connection) -> None:
            # A commit may have many thousands: this is several times as fast as by the name of each column.
            with connection:
                connection.executemany("INSERT OR REPLACE INTO blobs (id, pack, bytes, tree) VALUES (?, ?, ?, ?)", rows)

        self._tolerant(insert, None)

    def forget_packs(self, pack_ids: Iterable[str]) -> None:
        """Remove packs and their blobs."""
        gone = [(pack_id,) for pack_id in pack_ids]

        def remove(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany("DELETE FROM blobs WHERE pack = ?", gone)
                connection.executemany("DELETE FROM packs WHERE id = ?", gone)
                connection.executemany("DELETE FROM checked WHERE pack = ?", gone)
                connection.executemany("DELETE FROM damage WHERE pack = ?", gone)

        self._tolerant(remove, None)

    def insert(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Enter rows, replacing those with the same key, in one transaction."""
        found = list(rows)
        if found:
            self._tolerant(lambda connection: _insert(connection, table, found), None)

    def clear(self, *tables: str) -> None:
        """Empty tables, all of them when none is named."""

        def remove(connection: sqlite3.Connection) -> None:
            with connection:
                for table in tables or _TABLES:
                    connection.execute(f"DELETE FROM {table}")  # noqa: S608 - a name from the list above

        self._tolerant(remove, None)
        self._is_filled = self._is_filled and bool(tables)

    def close(self) -> None:
        """Close the database; it opens again when it is needed."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _select(self, query: str, *parameters: str) -> list[tuple[Any, ...]]:
        empty: list[tuple[Any, ...]] = []
        return self._tolerant(lambda connection: connection.execute(query, parameters).fetchall(), empty)

    def _tolerant(self, work: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        with self._guard:
            try:
                return work(self._open())
            except sqlite3.OperationalError as error:
                # Locked for long by another process: do without. Anything else of this class is a broken schema.
                if "locked" not in str(error) and "busy" not in str(error):
                    self._drop()
            except Exception:
                # A doctored schema makes sqlite-utils raise, or assert, anything.
                self._drop()
            return otherwise

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = self._file() or sqlite3.connect(":memory:", check_same_thread=False)
        try:
            stores = _stores(connection)
            if stores is None or stores not in ([], [(self._store_id,)]):
                if self._path is not None and not self._writable:
                    connection.close()
                    connection = sqlite3.connect(":memory:", check_same_thread=False)
                _create(connection)
        except BaseException:
            connection.close()
            raise
        self._is_filled = stores == [(self._store_id,)]
        return connection

    def _file(self) -> sqlite3.Connection | None:
        """Open the file, or say None where there is none that may be used."""
        if self._path is None:
            return None
        if self._writable:
            connection = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, check_same_thread=False, uri=False, isolation_level="DEFERRED"
            )
            # Nothing here must survive a power cut: what is lost is rebuilt.
            try:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA journal_mode = WAL")
            except BaseException:
                connection.close()
                raise
            return connection
        if not self._path.exists() or _has_wal(self._path):
            return None
        uri = f"{self._path.absolute().as_uri()}?mode=ro&immutable=1"
        return sqlite3.connect(uri, check_same_thread=False, uri=True)

    def _drop(self) -> None:
        """Remove a broken database and start anew; in memory when that has not helped."""
        self.close()
        self._drops += 1
        if self._path is not None and self._writable and self._drops == 1:
            for suffix in ("", "-wal", "-shm", "-journal"):
                with contextlib.suppress(OSError):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        else:
            self._path = None
        self._is_filled = False


class _Fork:
    """Lets no thread be inside SQLite while another one forks: the child would wait for it for ever."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.RLock()
        self._held: list[threading.RLock] = []

    def begin(self) -> None:
        self._one_at_a_time.acquire()
        for index in list(_indexes):
            index._guard.acquire()
            self._held.append(index._guard)

    def end(self) -> None:
        while self._held:
            self._held.pop().release()
        self._one_at_a_time.release()


_indexes: WeakSet[Index] = WeakSet()
_fork = _Fork()
os.register_at_fork(before=_fork.begin, after_in_parent=_fork.end, after_in_child=_fork.end)


def _has_wal(path: Path) -> bool:
    return path.with_name(path.name + "-wal").exists()


def _stores(connection: sqlite3.Connection) -> list[tuple[Any, ...]] | None:
    """The stores whose index this is: one, none while it is being filled; or None for another schema."""
    if connection.execute("PRAGMA user_version").fetchone() != (SCHEMA,):
        return None
    return connection.execute("SELECT store FROM meta").fetchall()


def _create(connection: sqlite3.Connection) -> None:
    database = _database(connection)
    for name in database.table_names():
        database.table(name).drop()
    for name, (columns, key) in _TABLES.items():
        database.table(name).create(columns, pk=key, if_not_exists=True)
    database.table("blobs").create_index(["pack"], if_not_exists=True)
    database.table("commits").create_index(["run", "step"], if_not_exists=True)
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.commit()


def _insert(connection: sqlite3.Connection, table: str, rows: list[Mapping[str, Any]]) -> None:
    key = _TABLES[table][1]
    _database(connection).table(table).insert_all((dict(row) for row in rows), pk=key, replace=True)
    connection.commit()


def _database(connection: sqlite3.Connection) -> Database:
    # Imported here: it takes longer to import than most commands take to run.
    from sqlite_utils import Database

    return Database(connection)
