"""What a power cut leaves: a model of which bytes and names are on the medium.

The bytes of a file are safe once the file was forced to the medium, a name (made, moved or removed) once its folder
was. What is not safe may be there after the cut or not, each name and each file for itself; a move may leave both
names, or none. Real file systems promise more, in different ways; a store that survives this survives all of them.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.races.harness import StagedDisk, StagedFile

from cairn.io.handles import NewFile

MODELLED = ("cairn.json", "runs", "tags", "packs", "trash", "leases", "tmp", "settings")
"""The index is derived and the reserve holds nothing: what a cut does to them cannot matter."""


@dataclass(eq=False)
class Node:
    """A file or a folder: what it holds, and what of that is safe."""

    is_folder: bool
    data: bytes = b""
    safe: bytes | None = None
    names: dict[str, Node] = field(default_factory=dict)
    """The safe names of a folder."""
    pending: dict[str, list[Node | None]] = field(default_factory=dict)
    """What happened to names since the folder was forced: the new holder of the name, or None."""

    def get(self, name: str) -> Node | None:
        """Who has the name now."""
        return self.pending[name][-1] if name in self.pending else self.names.get(name)


Item = tuple[Node, str]
"""Something that is not safe: a name in a folder or, with an empty name, the bytes of a file."""

Choice = Callable[[Item, int], int]
"""How many of the changes to an item survive, of so many."""


class Platter:
    """The medium under one store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = Node(is_folder=True)
        for name in sorted(os.listdir(root)):
            if name in MODELLED:
                self.top.names[name] = _scan(root / name)

    def node(self, path: Path) -> Node | None:
        """The file or folder at a path."""
        node: Node | None = self.top
        for name in path.relative_to(self.root).parts:
            node = node.get(name) if node is not None else None
        return node

    def put(self, path: Path, node: Node | None) -> None:
        """Give a name to a node, or to nobody."""
        folder = self.node(path.parent)
        if folder is not None and (folder is not self.top or path.name in MODELLED):
            folder.pending.setdefault(path.name, []).append(node)

    def force(self, path: Path) -> None:
        """Make the names in a folder safe."""
        folder = self.node(path) if path.is_relative_to(self.root) else None
        if folder is not None:
            for name, changes in folder.pending.items():
                folder.names.pop(name, None)
                if (holder := changes[-1]) is not None:
                    folder.names[name] = holder
            folder.pending.clear()

    def unsafe(self) -> list[Item]:
        """What a cut may undo, as far as it can be reached by a name."""
        items: list[Item] = []
        seen: set[int] = set()

        def visit(node: Node) -> None:
            if id(node) in seen:
                return
            seen.add(id(node))
            if not node.is_folder and node.safe != node.data:
                items.append((node, ""))
            items.extend((node, name) for name in node.pending)
            for name in sorted(node.names.keys() | node.pending.keys()):
                for holder in (node.names.get(name), *node.pending.get(name, ())):
                    if holder is not None:
                        visit(holder)

        visit(self.top)
        return items

    def cuts(self, rng: random.Random, samples: int) -> Iterator[Choice]:
        """Ways in which a cut can go: all undone, each one alone undone, each one alone done, and random ones."""
        items = self.unsafe()
        yield lambda item, count: 0
        for one in items if len(items) > 1 else ():
            yield lambda item, count, one=one: 0 if item == one else count  # type: ignore[misc]
            yield lambda item, count, one=one: count if item == one else 0  # type: ignore[misc]
        for _ in range(samples if len(items) > 2 else 0):
            drawn = {(id(node), name): rng.random() for node, name in items}
            yield lambda item, count, drawn=drawn: round(  # type: ignore[misc]
                drawn.get((id(item[0]), item[1]), 0.0) * count
            )

    def survivors(self, choice: Choice) -> dict[Path, bytes | None]:
        """What is there after a cut: the bytes of each file, None for a folder."""
        found: dict[Path, bytes | None] = {}

        def visit(node: Node, at: Path) -> None:
            if not node.is_folder:
                found[at] = _bytes_left(node, choice((node, ""), 1))
                return
            found[at] = None
            for name in sorted(node.names.keys() | node.pending.keys()):
                changes = [node.names.get(name), *node.pending.get(name, ())]
                kept = choice((node, name), len(changes) - 1) if len(changes) > 1 else 0
                holder = changes[kept]
                if holder is not None:
                    visit(holder, at / name)

        visit(self.top, Path())
        return found


def _scan(path: Path) -> Node:
    if path.is_dir():
        return Node(True, names={name: _scan(path / name) for name in sorted(os.listdir(path))})
    data = path.read_bytes()
    return Node(False, data, data)


def _bytes_left(node: Node, kept: int) -> bytes:
    if kept or node.safe == node.data:
        return node.data
    # Where the length is on the medium and the data is not, a file reads as zeros.
    return node.safe if node.safe is not None else bytes(len(node.data))


def write_out(found: dict[Path, bytes | None], target: Path) -> None:
    """Make a store folder of what a cut left."""
    for at, data in found.items():
        if data is None:
            (target / at).mkdir(parents=True)
        else:
            (target / at).write_bytes(data)


def fingerprint(found: dict[Path, bytes | None]) -> bytes:
    """Tell apart what cuts left, as far as it can matter: what lies in tmp and leases after a cut is dead."""
    digest = hashlib.sha256()
    for at, data in sorted(found.items()):
        if at.parts[:1] not in (("tmp",), ("leases",)):
            digest.update(f"{at} {None if data is None else len(data)}\n".encode() + (data or b""))
    return digest.digest()


class PoweredFile(StagedFile):
    """A new file whose bytes the platter knows."""

    _disk: PoweredDisk

    def write(self, data: object) -> None:
        super().write(data)  # type: ignore[arg-type] # handed on as it came
        self._note()

    def write_at(self, offset: int, data: object) -> None:
        super().write_at(offset, data)  # type: ignore[arg-type] # handed on as it came
        self._note()

    def sync(self) -> None:
        super().sync()
        node = self._disk.platter.node(self.path)
        if node is not None:
            node.safe = node.data

    def _note(self) -> None:
        node = self._disk.platter.node(self.path)
        if node is not None:
            size = os.fstat(self._descriptor).st_size
            node.data = os.pread(self._descriptor, size, 0)


class PoweredDisk(StagedDisk):
    """A staged disk that tells a platter what it does. Several disks may share one."""

    def __init__(self, platter: Platter, at: Callable[[int], None] | None = None, *, looks: bool = False) -> None:
        super().__init__(at, looks=looks)
        self.platter = platter

    def step(self, name: str, path: Path) -> None:
        super().step(name, path)
        if name == "mkdir":
            self.platter.put(path, Node(is_folder=True))

    def new_file(self, path: Path, descriptor: int) -> NewFile:
        self.platter.put(path, Node(is_folder=False))
        return PoweredFile(self, path, descriptor)

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self.platter.put(target, self.platter.node(source))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        node = self.platter.node(source)
        self.platter.put(source, None)
        self.platter.put(target, node)

    def unlink(self, path: Path) -> bool:
        done = super().unlink(path)
        if done:
            self.platter.put(path, None)
        return done

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self.platter.force(path)
