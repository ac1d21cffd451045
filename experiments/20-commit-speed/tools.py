"""All tools, in the order of the tables."""

from __future__ import annotations

from cairn_tool import Cairn
from libraries import DistributedCheckpoint, DurableSafetensors, Orbax, Safetensors, TorchSave
from programs import Borg, Dvc, GitLfs, Restic
from tool import Tool


def all_tools() -> list[Tool]:
    """Every tool, installed or not."""
    libraries = (Safetensors(), DurableSafetensors(), TorchSave(), DistributedCheckpoint(), Orbax())
    return [Cairn(), *libraries, GitLfs(), Dvc(), Restic(), Borg()]


def named(name: str) -> Tool:
    """One of them."""
    return next(tool for tool in all_tools() if tool.name == name)
