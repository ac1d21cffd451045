"""A content-addressed checkpoint store.

It keeps every checkpoint of a training run, exactly, for the price of what changed.
"""

from typing import TYPE_CHECKING, Any

from cairn.errors import (
    Busy,
    CairnError,
    Conflict,
    Damaged,
    Dropped,
    NotFound,
    ReadOnly,
    StoreNotFound,
    UnsupportedValue,
    UsageError,
)
from cairn.history.commit import Commit
from cairn.store.handle import RunHandle as Run
from cairn.store.pending import Pending
from cairn.store.store import Store, init
from cairn.store.store import open_store as open  # noqa: A004 - cairn.open is the name users expect

if TYPE_CHECKING:
    from cairn.files.scan import folder

__all__ = [
    "Busy",
    "CairnError",
    "Commit",
    "Conflict",
    "Damaged",
    "Dropped",
    "NotFound",
    "Pending",
    "ReadOnly",
    "Run",
    "Store",
    "StoreNotFound",
    "UnsupportedValue",
    "UsageError",
    "folder",
    "init",
    "open",
]


def __getattr__(name: str) -> Any:
    """Import what few programs need when it is asked for."""
    if name == "folder":
        from cairn.files.scan import folder

        return folder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
