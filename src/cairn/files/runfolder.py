"""The checkpoints in the folder of a training run, recognised by their names.

`checkpoint-500`, `step_500`, `global_step500`, `iter_0000500`, each a folder, or a file like `step-500.pt`; and
Lightning's `epoch=3-step=1200.ckpt`, whose name may hold metrics. Names that begin with `tmp` or a dot, or end like
`.tmp`, are being written. So is a `checkpoint-500` without `trainer_state.json` where others have one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.canonical import MAX_INT
from cairn.errors import NotFound
from cairn.files import trainer
from cairn.files.words import being_read, show
from cairn.io.disk import Disk

_KINDS = ("ckpt", "pt", "pth", "bin", "safetensors", "npz", "npy", "gguf", "pkl", "msgpack", "h5", "tar", "zip")
_SUFFIX = rf"(?:\.(?:{'|'.join(_KINDS)}))?"
_NUMBERED = re.compile(rf"(?:checkpoint|ckpt|global_?step|step|iter|iteration)[-_=]?(\d{{1,16}}){_SUFFIX}", re.ASCII)
_LIGHTNING = re.compile(rf"(?:.*[-_])?step=(\d{{1,16}})(?:[-_].*)?{_SUFFIX}", re.ASCII | re.DOTALL)
_PAIR = re.compile(r"(?:^|[-_/])([A-Za-z][\w.]*)=(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)", re.ASCII)
_TEMPORARY = re.compile(r"\.?tmp[-_.]?(.+)|\.(.+)|(.+?)(?:\.(?:tmp|temp|partial|incomplete)(?:[-_.].*)?|~)", re.DOTALL)
_KNOWN = "names like checkpoint-500, step_500, global_step500 or epoch=3-step=1200.ckpt"


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint in a run folder."""

    path: Path
    step: int
    epoch: int | None
    metrics: Mapping[str, float | int]
    note: str | None
    """Why its metrics are not known, where that is odd."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that is called like a checkpoint and is none, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Survey:
    """The checkpoints of a run folder by step, and what was left out."""

    found: tuple[Found, ...]
    left_out: tuple[LeftOut, ...]


def survey(folder: Path, disk: Disk) -> Survey:
    """Look through a run folder. Raises NotFound when it holds no checkpoint, or two of one step."""
    words = show(os.fsencode(folder))
    if not folder.is_dir():
        raise NotFound(f"{words}: expected the folder of a run, found {'a file' if folder.exists() else 'nothing'}")
    with being_read(words):
        return _survey(folder, disk, words)


def _survey(folder: Path, disk: Disk, words: str) -> Survey:
    names = sorted(os.listdir(folder))
    steps = {name: step for name in names if (step := _step(name)) is not None}
    left_out = [LeftOut(_show(name), reason) for name in names if (reason := _refusal(folder, name, steps))]
    gone = {item.name for item in left_out}
    found = [_found(disk, folder / name, step) for name, step in steps.items() if _show(name) not in gone]
    _check_steps(words, found)
    if not found:
        raise NotFound(f"{words}: expected checkpoints with {_KNOWN}, found none{_and(left_out)}")
    return Survey(tuple(sorted(found, key=lambda each: each.step)), tuple(left_out))


def _step(name: str) -> int | None:
    match = None if _TEMPORARY.fullmatch(name) else _NUMBERED.fullmatch(name) or _LIGHTNING.fullmatch(name)
    step = int(match[1]) if match else None
    return step if step is not None and step <= MAX_INT else None


def _refusal(folder: Path, name: str, steps: Mapping[str, int]) -> str | None:
    """Say why something that is called like a checkpoint is left out; None for what is taken, and for all else."""
    path = folder / name
    if name not in steps:
        match = _TEMPORARY.fullmatch(name)
        inner = next(filter(None, match.groups()), "") if match else ""
        return "it is still being written, or was never finished" if inner and _step(inner) is not None else None
    if not path.exists():
        return "it is a link that leads nowhere"
    if path.is_symlink():
        real = path.resolve()
        return next((f"it is a link to {_show(other)}" for other in steps if folder.resolve() / other == real), None)
    if not path.is_dir():
        return None if path.suffix[1:] in _KINDS else "it is a file of no known kind"
    if not os.listdir(path):
        return "it is empty"
    is_whole = (path / trainer.TRAINER_STATE).exists()
    others = [other for other in steps if (folder / other / trainer.TRAINER_STATE).exists()]
    if not is_whole and others and name.startswith("checkpoint"):
        return f"it has no {trainer.TRAINER_STATE}, which is written last, and {_show(others[0])} has one"
    return None


def _found(disk: Disk, path: Path, step: int) -> Found:
    state = trainer.read(disk, path, step) if path.is_dir() else None
    said = {name: float(text) for name, text in _PAIR.findall(path.name)}
    epoch = int(said["epoch"]) if said.get("epoch", 0.5).is_integer() and 0 <= said["epoch"] <= MAX_INT else None
    named = {name: value for name, value in said.items() if name not in ("step", "epoch")}
    if isinstance(state, trainer.TrainerState):
        return Found(path, step, epoch if state.epoch is None else state.epoch, {**named, **state.metrics}, None)
    return Found(path, step, epoch, named, state)


def _check_steps(words: str, found: Iterable[Found]) -> None:
    first: dict[int, Found] = {}
    for each in found:
        other = first.setdefault(each.step, each)
        if other is not each:
            raise NotFound(
                f"{words}: expected one checkpoint for each step, found {_show(other.path.name)} and "
                f"{_show(each.path.name)} for step {each.step}; move one of them away, or commit the one you mean with "
                f"`cairn commit`; nothing was written"
            )


def _show(name: str) -> str:
    return show(os.fsencode(name))


def _and(left_out: list[LeftOut]) -> str:
    return "".join(f"; {item.name} was left out: {item.reason}" for item in left_out[:5])
