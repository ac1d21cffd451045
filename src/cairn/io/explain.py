"""Errors of the system as sentences."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cairn.errors import CairnError, ReadOnly

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def explained(doing: str, root: Path) -> Iterator[None]:
    """Turn an OSError into a sentence that says what was being done and what to do."""
    try:
        yield
    except OSError as error:
        where = error.filename or root
        if error.errno in _FULL:
            raise CairnError(
                f"no space left in {root} while {doing}: nothing of it was published and what was there is "
                f"untouched; free space with `cairn gc` and try again"
            ) from error
        if error.errno in _READ_ONLY:
            raise ReadOnly(
                f"{root} cannot be written ({error.strerror}: {where}) while {doing}: reading and verify work; "
                f"to write, open a store whose folder this user may change"
            ) from error
        raise CairnError(
            f"{doing} failed in {root}: {error.strerror or error} ({where}); nothing of it was published"
        ) from error


@contextmanager
def written_out(target: Path) -> Iterator[None]:
    """Turn an OSError into a sentence about a place outside the store, to which something is written."""
    try:
        yield
    except OSError as error:
        reason = "no space left" if error.errno in _FULL else error.strerror or str(error)
        raise CairnError(
            f"{target} cannot be written ({reason}: {error.filename or target}); what was there is untouched; free "
            f"space or choose another place"
        ) from error
