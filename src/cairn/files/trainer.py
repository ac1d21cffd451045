"""What `trainer_state.json` says of a checkpoint: the metrics of its step, and the epoch.

Hugging Face's Trainer writes it last, so a checkpoint with it is whole. It may hold NaN and Infinity, which JSON lacks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.canonical import MAX_INT
from cairn.io.disk import Disk

TRAINER_STATE = "trainer_state.json"
_MAX_BYTES = 64 << 20
_METRIC = re.compile(r"loss|eval_.+")


@dataclass(frozen=True, slots=True)
class TrainerState:
    """The metrics of one step and its epoch, as far as they are known."""

    metrics: Mapping[str, float | int]
    epoch: int | None


def read(disk: Disk, folder: Path, step: int) -> TrainerState | str | None:
    """Read the state beside a checkpoint of a step; None where there is none, why it cannot be read where it cannot."""
    path = folder / TRAINER_STATE
    size = disk.size(path)
    if size is None:
        return None
    if size > _MAX_BYTES:
        return f"its metrics are not known: expected a {TRAINER_STATE} of at most {_MAX_BYTES} bytes, found {size}"
    try:
        found = json.loads(disk.read_at(path, 0, size))
    except (OSError, ValueError, RecursionError) as error:
        return f"its metrics are not known: expected a {TRAINER_STATE} that can be read, found {type(error).__name__}"
    if not isinstance(found, dict):
        return f"its metrics are not known: expected an object in {TRAINER_STATE}, found {type(found).__name__}"
    history = found.get("log_history")
    entries = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    here = [entry for entry in entries if type(entry.get("step")) is int and entry["step"] == step]
    metrics = {name: value for entry in here for name, value in entry.items() if _is_metric(name, value)}
    return TrainerState(metrics, _epoch(found.get("epoch")))


def is_number(value: Any) -> bool:
    """Whether a value can be a metric."""
    return type(value) is float or (type(value) is int and abs(value) <= MAX_INT)


def _is_metric(name: str, value: Any) -> bool:
    return bool(_METRIC.fullmatch(name)) and name.isprintable() and ":" not in name and is_number(value)


def _epoch(value: Any) -> int | None:
    known = is_number(value) and math.isfinite(value) and 0 <= value <= MAX_INT
    return int(value) if known else None
