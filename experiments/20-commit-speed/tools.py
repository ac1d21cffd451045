"""All tools, in the order of the tables."""

from __future__ import annotations

from cairn_tool import Cairn
from libraries import DistributedCheckpoint, DurableSafetensors, Orbax, Safetensors, TorchSave
from programs import Borg, Dvc, GitLfs, Restic
from tiny import GITS
from tool import Tool


def all_tools() -> list[Tool]:
    """Every tool, installed or not."""
    libraries = (Safetensors(), DurableSafetensors(), TorchSave(), DistributedCheckpoint(), Orbax())
    return [Cairn(), *libraries, GitLfs(), Dvc(), Restic(), Borg()]


def named(name: str) -> Tool:
    """One of them, or of those that only keep tiny states."""
    return next(tool for tool in [*all_tools(), *GITS] if tool.name == name)
