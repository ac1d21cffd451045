"""Every error that cairn raises on purpose: one base class, one sentence each.

A message names the object, what was expected, what was found and what to do. The command line maps each class
to an exit status through `exit_code`.
"""

from __future__ import annotations


class CairnError(Exception):
    """Anything that cairn refuses or cannot do."""

    exit_code = 1


class UsageError(CairnError):
    """An argument has no meaning here: a bad name, a bad revision, options that exclude each other."""

    exit_code = 2


class UnsupportedValue(CairnError):
    """A value of the state cannot be kept exactly; nothing was written."""


class StoreNotFound(CairnError):
    """The folder is not a store, or not one that this version reads."""

    exit_code = 3


class NotFound(CairnError):
    """A run, tag, revision, component or path does not exist, or stands for several things."""

    exit_code = 4


class Dropped(NotFound):
    """The content was dropped on purpose and is no longer kept."""


class Conflict(CairnError):
    """Somebody else got there first: the run moved, the step or the name exists."""

    exit_code = 5


class Busy(Conflict):
    """Another process holds what this operation needs."""


class Damaged(CairnError):
    """Bytes in the store are missing or are not what their name says."""

    exit_code = 6


class ReadOnly(CairnError):
    """The store lies on a read-only file system or may not be written by this user."""
