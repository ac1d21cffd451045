"""Operations that are stopped between any two of their steps, or die there.

A `StagedDisk` is asked before every durable step of an operation and, if wanted, before every look at the disk. It can
run something else in between, hand the turn to another operation, or end its own as a killed process ends: nothing
more reaches the disk, and the kernel closes what was open, so locks are free.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

import cairn
from cairn.errors import CairnError
from cairn.io.disk import Disk
from cairn.io.handles import NewFile

HANG_SECONDS = 60.0
"""After this long a turn counts as a deadlock."""

Operation = Callable[[cairn.Store], object]


class Died(BaseException):
    """The end of a simulated process; no handler of the library may stop it."""


class Point(NamedTuple):
    """A place where an operation can be stopped: before a durable step or a look."""

    name: str
    path: Path
    is_step: bool


class StagedFile(NewFile):
    """A new file whose bytes are not really forced to the medium: these tests cut no power but by a model."""

    _disk: StagedDisk

    def sync(self) -> None:
        self._disk.step("fsync", self.path)

    def lock(self) -> bool:
        self._disk.look("lock", self.path)
        return super().lock()


class StagedDisk(Disk):
    """The real file system with a hook before every point."""

    def __init__(self, at: Callable[[int], None] | None = None, *, looks: bool = False) -> None:
        self.points: list[Point] = []
        self.at = at
        self.is_dead = False
        self._looks = looks
        self._files: list[NewFile] = []

    def step(self, name: str, path: Path) -> None:
        self._point(Point(name, path, True))

    def look(self, name: str, path: Path) -> None:
        """Called before each look; only an operation that is alive can look."""
        if self._looks or self.is_dead:
            self._point(Point(name, path, False))

    def die(self) -> NoReturn:
        """End the operation here and now."""
        self.is_dead = True
        for file in self._files:
            file.close()
        raise Died

    def _point(self, point: Point) -> None:
        if self.is_dead:
            raise Died
        self.points.append(point)
        if self.at is not None:
            self.at(len(self.points) - 1)

    def new_file(self, path: Path, descriptor: int) -> NewFile:
        """Wrap a descriptor."""
        return StagedFile(self, path, descriptor)

    def create(self, path: Path, mode: int = 0o444) -> NewFile:
        self.step("create", path)
        file = self.new_file(path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, mode))
        self._files.append(file)
        return file

    def sync_folder(self, path: Path) -> None:
        self.step("fsync folder", path)

    def read(self, path: Path) -> bytes:
        self.look("read", path)
        return super().read(path)

    def read_at(self, path: Path, offset: int, size: int) -> bytes:
        self.look("read", path)
        return super().read_at(path, offset, size)

    def map(self, path: Path) -> memoryview:
        self.look("map", path)
        return super().map(path)

    def size(self, path: Path) -> int | None:
        self.look("size", path)
        return super().size(path)

    def names(self, path: Path, *, strict: bool = False) -> list[str]:
        self.look("names", path)
        return super().names(path, strict=strict)

    def is_locked(self, path: Path) -> bool | None:
        self.look("is locked", path)
        return super().is_locked(path)

    def sleep(self, seconds: float) -> None:
        self.look("sleep", Path("clock"))


@dataclass
class Outcome:
    """What became of an operation."""

    result: object = None
    error: CairnError | None = None
    died: bool = False
    points: list[Point] = field(default_factory=list, repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether the caller was told that it is done."""
        return self.error is None and not self.died


def perform(root: Path, operation: Operation, disk: StagedDisk | None = None) -> Outcome:
    """Open the store anew, as another process would, and run an operation to its end."""
    disk = disk or StagedDisk()
    outcome = Outcome(points=disk.points)
    try:
        with cairn.open(root, disk=disk) as store:
            outcome.result = operation(store)
    except CairnError as error:
        outcome.error = error
    except Died:
        outcome.died = True
    return outcome


def interrupted(root: Path, operation: Operation, at: int, meanwhile: Callable[[], object]) -> Outcome:
    """Run an operation and, before one of its steps, something else to its end."""

    def stop(number: int) -> None:
        if number == at:
            meanwhile()

    return perform(root, operation, StagedDisk(stop))


def killed(root: Path, operation: Operation, at: int, *, looks: bool = False) -> Outcome:
    """Run an operation that dies before one of its points."""
    disk = StagedDisk(looks=looks)
    disk.at = lambda number: disk.die() if number == at else None
    return perform(root, operation, disk)


def spread(total: int, most: int) -> range:
    """At most so many of the numbers below a total, evenly spread."""
    return range(0, total, max(1, -(-total // most)))


Place = Callable[[Point], bool]
"""Where to stop: before the first point for which it says so."""


class Turn(NamedTuple):
    """Whose turn it is: for so many points, up to a place, to its end (`None`), or to its death (`KILL`)."""

    who: str
    how_far: int | Place | None


KILL = -1


def before(name: str, folder: str = "") -> Place:
    """The place before a point of this name at a path with such a part."""
    return lambda point: point.name == name and (not folder or folder in point.path.parts)


class _Actor(threading.Thread):
    """One operation in a thread of its own that moves only in its turns."""

    def __init__(self, root: Path, operation: Operation, disk: StagedDisk) -> None:
        super().__init__(daemon=True)
        self._root, self._operation, self._disk = root, operation, disk
        self._disk.at = self._pause
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._left: int | Place | None = 0
        self.outcome: Outcome | None = None
        self.crash: BaseException | None = None

    def run(self) -> None:
        self._go.acquire()
        try:
            self.outcome = perform(self._root, self._operation, self._disk)
        except BaseException as error:  # Raised again in the thread of the test.
            self.crash = error
        finally:
            self._done.release()

    def take_turn(self, how_far: int | Place | None) -> None:
        """Let the operation go on, and return when it stops."""
        if self.outcome is None and self.crash is None:
            self._left = how_far
            if not self.is_alive():
                self.start()
            self._go.release()
            assert self._done.acquire(timeout=HANG_SECONDS), "the operation hangs"
        if self.crash is not None:
            raise self.crash

    def abandon(self) -> None:
        """End an operation that a failed test left stopped."""
        if self.is_alive():
            self._left = KILL
            self._go.release()
            self.join(HANG_SECONDS)

    def _pause(self, number: int) -> None:
        while self._left == 0 or (callable(self._left) and self._left(self._disk.points[number])):
            self._done.release()
            self._go.acquire()
        if self._left == KILL:
            self._disk.die()
        if isinstance(self._left, int):
            self._left -= 1


def interleaved(
    root: Path,
    operations: Mapping[str, Operation],
    turns: Sequence[Turn],
    *,
    disks: Mapping[str, StagedDisk] | None = None,
    between: Callable[[], None] | None = None,
) -> dict[str, Outcome]:
    """Run several operations in turns; after the last turn the rest run to their ends, in order.

    `between` is called once after the turns, while the operations that did not end yet are stopped; those die then.
    """
    actors = {
        name: _Actor(root, operation, (disks or {}).get(name) or StagedDisk(looks=True))
        for name, operation in operations.items()
    }
    try:
        for turn in turns:
            actors[turn.who].take_turn(turn.how_far)
        if between is not None:
            between()
        for actor in actors.values():
            actor.take_turn(None if between is None else KILL)
    finally:
        for actor in actors.values():
            actor.abandon()
    return {name: actor.outcome for name, actor in actors.items() if actor.outcome is not None}
