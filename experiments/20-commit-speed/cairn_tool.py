"""cairn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from states import State
from timing import files_below
from tool import Tool, Work

import cairn


def can(function: Callable[..., object], argument: str) -> bool:
    """Whether this version has an argument."""
    return argument in inspect.signature(function).parameters


class Cairn(Tool):
    """A store with one run."""

    name = "cairn"
    does_share = True

    def __init__(self, **options: Any) -> None:
        """Commit with these further arguments."""
        self._options = options

    def start(self, folder: Path) -> None:
        super().start(folder)
        self._store = cairn.init(folder / "store")
        self._run = self._store.run("main")
        self._step = 0

    def save(self, state: State) -> None:
        self._step += 1
        self._run.commit(state, step=self._step, **self._options)

    @property
    def has_later(self) -> bool:
        return can(cairn.Run.commit, "wait")

    def save_later(self, state: State) -> Callable[[], object]:
        self._step += 1
        later: dict[str, Any] = {"wait": False}
        pending: Any = self._run.commit(state, step=self._step, **later, **self._options)
        return lambda: pending.result()

    def loads(self, state: State) -> Mapping[str, Work]:
        component = next(iter(state))
        name = next(iter(state[component]))
        into: dict[str, Any] = {"into": state}
        found: dict[str, Work] = {
            "load": lambda: self._run.load(),
            "load, copies": lambda: self._run.load(copy=True),
            "load lazily": self._touch_all,
            "one tensor": lambda: self._run.open()[component][name],
            "to files": self._to_files,
        }
        if can(cairn.Run.load, "into"):
            found["load into"] = lambda: self._run.load(**into)
        return found

    def _touch_all(self) -> object:
        return [list(component.values()) for component in self._run.open().values()]

    def _to_files(self) -> None:
        self._run.checkout(self.folder / "files")

    def files(self) -> list[Path]:
        return files_below(self.folder / "store" / "packs")

    def forget(self) -> None:
        self._store.close()
        self._store = cairn.open(self.folder / "store")
        self._run = self._store.run("main")

    def stop(self) -> None:
        self._store.close()
