"""Snapshots: what a run's entries add up to, kept with the index so that opening a store reads only what came since.

A snapshot is derived and disposable like the rest of the index. It is used only if its own hash is right and the log
still has the entry that it was made at, with the same seal; then every entry before is the same, too. Each metric is
a part of its own, read when it is asked for.
"""

from __future__ import annotations

import contextlib
import json
import struct
import sys
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cairn.history.commits import ID_BYTES, Rows
from cairn.history.metrics import Column, Metrics
from cairn.ids import blob_id

FORMAT = 2
MAIN = ""
"""The name of the part that holds all but the metrics; these have their own names."""

_SEAL = 64


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one entry of its log: its rows, and the rest of its state as plain values."""

    seq: int
    seal: str
    rows: Rows
    state: Mapping[str, Any]


def write(snapshot: Snapshot) -> dict[str, bytes]:
    """Spell a snapshot as parts by name."""
    rows = snapshot.rows
    head = {
        "format": FORMAT,
        "order": sys.byteorder,
        "seq": snapshot.seq,
        "seal": snapshot.seal,
        "count": len(rows),
        "kinds": rows.kinds,
        "parents": list(rows.parents.items()),
        "logs": rows.logs,
        "metrics": rows.metrics.names,
        "state": dict(snapshot.state),
    }
    columns = (rows.ids, rows.steps, rows.epochs, rows.times, rows.seqs, rows.marks)
    parts = {MAIN: _part(head, b"".join(bytes(column) for column in columns))}
    for name in rows.metrics.names:
        numbered, values = rows.metrics.column(name)
        about = {
            "format": FORMAT,
            "order": sys.byteorder,
            "metric": name,
            "seal": snapshot.seal,
            "count": len(numbered),
        }
        parts[name] = _part(about, numbered.tobytes() + values.tobytes())
    return parts


def read(load: Callable[[str], bytes | None]) -> Snapshot | None:
    """Read a snapshot from its parts; None when there is none that can be used."""
    head, data = _open(load(MAIN))
    if head is None:
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        count, seal = head["count"], head["seal"]
        steps, epochs, times, seqs, marks = _columns(data[ID_BYTES * count :], count, "qqdqH")
        rows = Rows(
            ids=bytearray(data[: ID_BYTES * count]),
            steps=steps,
            epochs=epochs,
            times=times,
            seqs=seqs,
            marks=marks,
            kinds=[tuple(kind) for kind in head["kinds"]],
            parents=dict(head["parents"]),
            logs=[(row, name) for row, name in head["logs"]],
            metrics=Metrics(lambda name: _metric(load(name), name, seal), head["metrics"]),
        )
        return Snapshot(head["seq"], seal, rows, head["state"])
    return None


def _metric(data: bytes | None, name: str, seal: str) -> Column | None:
    head, values = _open(data)
    if head is None or (head.get("metric"), head.get("seal")) != (name, seal):
        return None
    rows, numbers = _columns(values, head["count"], "qd")
    return rows, numbers


def _columns(data: memoryview, count: int, types: str) -> list[array[Any]]:
    found = []
    for kind in types:
        column: array[Any] = array(kind)
        size = column.itemsize * count
        column.frombytes(data[:size])
        if len(column) != count:
            raise ValueError("a column that is too short")
        found.append(column)
        data = data[size:]
    return found


def _part(head: Mapping[str, Any], data: bytes) -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    body = struct.pack("<Q", len(text)) + text + data
    return blob_id(body).encode() + body


def _open(part: bytes | None) -> tuple[dict[str, Any] | None, memoryview]:
    """Check a part's hash; return its head and its columns."""
    if not isinstance(part, bytes) or blob_id(memoryview(part)[_SEAL:]).encode() != part[:_SEAL]:
        return None, memoryview(b"")
    start = _SEAL + 8
    end = start + int(struct.unpack("<Q", part[_SEAL:start])[0])
    head = json.loads(part[start:end])
    if head.get("format") != FORMAT or head.get("order") != sys.byteorder:
        return None, memoryview(b"")
    return head, memoryview(part)[end:]
