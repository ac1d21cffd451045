"""Other people's files in words: their names, what they are, and why one cannot be read."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from cairn.errors import CairnError, UnsupportedValue

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
}


def show(raw: bytes) -> str:
    """A path for people: bytes that are no text, and control characters, are escaped."""
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def check_regular(path: str, mode: int) -> None:
    """Raise UnsupportedValue for what is no file and thus has no content to keep."""
    if not stat.S_ISREG(mode):
        raise UnsupportedValue(
            f"{path}: expected a file, folder or link, found {_KINDS.get(stat.S_IFMT(mode), 'something else')}, which "
            f"has no content to keep; remove it or commit a folder without it; nothing was published"
        )


@contextmanager
def being_read(path: str) -> Iterator[None]:
    """Turn what the system says of a file or folder that is being committed into a sentence that names it."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise changed(path, "is not there any more") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise changed(path, "became a link") from None
        reason = error.strerror or os.strerror(error.errno or errno.EIO)
        if isinstance(error, PermissionError):
            raise CairnError(
                f"{path}: expected a file or folder that this user may read, found one that is not ({reason}); change "
                f"its permissions or commit a folder without it; nothing was published"
            ) from error
        raise CairnError(f"{path} cannot be read: {reason}; nothing was published") from error


def changed(path: str, how: str) -> CairnError:
    """The error for a file that somebody else changed while it was being committed."""
    return CairnError(f"{path} {how} since the commit began to read it; nothing was published, commit again")
