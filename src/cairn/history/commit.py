"""The commit document, its id, and what the library hands out for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cairn import canonical
from cairn.errors import Damaged, UsageError
from cairn.ids import BlobRef, blob_id, is_id

_MEMBERS = ("manifest", "parents", "step", "epoch", "metrics", "message", "time", "provenance")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of one run. `dropped` names what of its content is no longer kept; `("*",)` is all of it."""

    id: str
    manifest: str
    parents: tuple[str, ...]
    run: str
    step: int | None
    epoch: int | None
    metrics: Mapping[str, float | int]
    message: str | None
    time: str
    provenance: Mapping[str, Any]
    dropped: tuple[str, ...]
    manifest_size: int
    packs: tuple[str, ...]
    """Packs that held the content when the commit was published: a hint, never trusted."""

    @property
    def root(self) -> BlobRef:
        """The manifest as a blob reference."""
        return BlobRef(self.manifest, self.manifest_size)

    @property
    def is_dropped(self) -> bool:
        """Whether nothing of the content is kept any more."""
        return "*" in self.dropped

    def __str__(self) -> str:
        return label(self.run, self.step, self.id)


def label(run: str, step: int | None, commit_id: str) -> str:
    """Name a commit in a message."""
    return f"{run} {'no step' if step is None else f'step {step}'} ({commit_id[:12]})"


def seconds(time: str) -> float:
    """Return a commit's time in seconds since 1970, in UTC unless it says otherwise; NaN for one that is no time."""
    try:
        made = datetime.fromisoformat(time)
        return (made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def document_of(
    *,
    manifest: BlobRef,
    parents: tuple[str, ...],
    step: int | None,
    epoch: int | None,
    metrics: Mapping[str, float | int],
    message: str | None,
    time: str,
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """Spell a commit document as canonical JSON values."""
    return {
        "manifest": [manifest.id, manifest.size],
        "parents": list(parents),
        "step": step,
        "epoch": epoch,
        "metrics": {name: _number(value) for name, value in metrics.items()},
        "message": message,
        "time": time,
        "provenance": dict(provenance),
    }


def id_of(document: Mapping[str, Any]) -> str:
    """Return the commit's id: the BLAKE3 of its canonical JSON."""
    return blob_id(canonical.encode(dict(document)))


def read(document: object, *, run: str, what: str, packs: object = (), dropped: object = ()) -> Commit:
    """Check a commit document and return the commit. Raises Damaged, naming `what`."""
    if not isinstance(document, dict) or tuple(document) != _MEMBERS:
        raise Damaged(f"{what}: expected a commit with {', '.join(_MEMBERS)}, found {document!r:.120}")
    manifest, parents, metrics = document["manifest"], document["parents"], document["metrics"]
    good = (
        isinstance(manifest, list)
        and len(manifest) == 2
        and is_id(manifest[0])
        and type(manifest[1]) is int
        and manifest[1] > 0
        and isinstance(parents, list)
        and all(is_id(parent) for parent in parents)
        and all(document[name] is None or _is_count(document[name]) for name in ("step", "epoch"))
        and isinstance(metrics, dict)
        and (document["message"] is None or isinstance(document["message"], str))
        and isinstance(document["time"], str)
        and isinstance(document["provenance"], dict)
        and isinstance(packs, (list, tuple))
        and all(is_id(pack) for pack in packs)
        and isinstance(dropped, (list, tuple))
        and all(isinstance(part, str) for part in dropped)
    )
    if not good:
        raise Damaged(f"{what}: expected the members of a commit to have their types, found {document!r:.200}")
    return Commit(
        id=id_of(document),
        manifest=manifest[0],
        parents=tuple(parents),
        run=run,
        step=document["step"],
        epoch=document["epoch"],
        metrics={name: _read_number(value, f"{what}, metric {name!r:.40}") for name, value in metrics.items()},
        message=document["message"],
        time=document["time"],
        provenance=document["provenance"],
        dropped=tuple(dropped),  # type: ignore[arg-type] # checked above
        manifest_size=manifest[1],
        packs=tuple(packs),  # type: ignore[arg-type] # checked above
    )


def check_step(value: object, name: str) -> int | None:
    """Check a step or epoch from a caller. Raises UsageError."""
    number = _plain(value)
    if number is None or _is_count(number):
        return number  # type: ignore[return-value] # checked
    raise UsageError(f"{name}: expected an int from 0 to 2^53 or None, found {value!r:.60}")


def check_message(message: object) -> str | None:
    """Return a commit's message or None. Raises UsageError for what UTF-8 cannot spell."""
    if message is None:
        return None
    try:
        if type(message) is str and message.encode() is not None:
            return message
    except UnicodeEncodeError:
        pass
    raise UsageError(f"message: expected text that UTF-8 can spell, or None, found {message!r:.60}")


def check_metrics(metrics: Mapping[str, object] | None) -> dict[str, float | int]:
    """Turn a caller's metrics into plain numbers, exactly; numpy scalars and 0-d arrays included. Raises UsageError."""
    checked: dict[str, float | int] = {}
    if metrics is not None and not isinstance(metrics, Mapping):
        raise UsageError(f"metrics: expected a mapping of name to number, found {metrics!r:.60}")
    for name, value in (metrics or {}).items():
        number = _plain(value)
        if type(name) is not str or not name or not name.isprintable() or ":" in name:
            raise UsageError(f"metric {name!r:.60}: expected a printable name without a colon")
        if type(number) is not float and (type(number) is not int or abs(number) > canonical.MAX_INT):
            raise UsageError(f"metric {name!r}: expected a float or an int within 2^53, found {value!r:.60}")
        checked[name] = number
    return checked


def _plain(value: object) -> object:
    """A numpy scalar or 0-d array as the Python number it holds, whose value is the same."""
    if type(value) not in (int, float, bool) and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= canonical.MAX_INT


def _number(value: float | int) -> Any:
    return {"$float": canonical.float_text(value)} if type(value) is float else value


def _read_number(value: object, what: str) -> float | int:
    if type(value) is int:
        return value
    if isinstance(value, dict) and list(value) == ["$float"]:
        return canonical.parse_float(value["$float"], what)
    raise Damaged(f"{what}: expected a number, found {value!r:.60}")
