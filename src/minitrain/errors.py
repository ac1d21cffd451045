"""Every error that the trainer raises on purpose: one base class, one sentence each.

A message names the object, what was expected and what was found; if a tensor is involved, it names the tensor.
"""

from __future__ import annotations


class MinitrainError(Exception):
    """Anything that the trainer refuses or cannot do."""


class CheckpointError(MinitrainError):
    """A folder is not a whole checkpoint that this version can read, or a value cannot be written into one."""


class StateMismatch(MinitrainError):
    """A state does not fit the live object that it should be restored into."""
