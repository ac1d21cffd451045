"""What a power cut leaves: a model of which bytes and names are on the medium.

The bytes of a file are safe once the file was forced to the medium, a name (made, moved or removed) once its folder
was. What is not safe may be there after the cut or not, each name and each file for itself; a move may leave both
names but never none. Real file systems promise more, in different ways; a store that survives this survives them all.
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

MODELLED = ("cairn.json", "runs", "tags", "packs", "trash", "damaged", "leases", "tmp", "settings")
"""The index is derived and the reserve holds nothing: what a cut does to them cannot matter."""


@dataclass(eq=False)
class Node:
    """A file or a folder: what it holds, and what of that is safe."""

    is_folder: bool
    data: bytes = b""
    safe: bytes | None = None
    names: dict[str, Node] = field(default_factory=dict)
    """The safe names of a folder."""
    pending: dict[str, list[Node | Moved | None]] = field(default_factory=dict)
    """What happened to names since the folder was forced: the new holder of the name, or what became of the old."""

    def get(self, name: str) -> Node | None:
        """Who has the name now."""
        holder = self.pending[name][-1] if name in self.pending else self.names.get(name)
        return holder if isinstance(holder, Node) else None

    def history(self, name: str) -> list[Node | Moved | None]:
        """Who has had the name: the safe holder first, the holder now last."""
        return [self.names.get(name), *self.pending.get(name, ())]


@dataclass(eq=False)
class Moved:
    """The end of a name that gave its file another."""

    node: Node
    folder: Node
    name: str


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

    def put(self, path: Path, node: Node | Moved | None) -> None:
        """Give a name to a node, or to nobody."""
        folder = self.node(path.parent)
        if folder is not None and (folder is not self.top or path.name in MODELLED):
            folder.pending.setdefault(path.name, []).append(node)

    def move(self, source: Path, target: Path) -> None:
        """Give a file another name."""
        node, folder = self.node(source), self.node(target.parent)
        self.put(target, node)
        if node is not None and folder is not None:
            self.put(source, Moved(node, folder, target.name))

    def force(self, path: Path) -> None:
        """Make the names in a folder safe, and with the end of a name the one that came for it."""
        folder = self.node(path) if path.is_relative_to(self.root) else None
        if folder is not None:
            for name, changes in folder.pending.items():
                folder.names.pop(name, None)
                holder = changes[-1]
                if isinstance(holder, Node):
                    folder.names[name] = holder
                elif isinstance(holder, Moved) and holder.node in holder.folder.pending.get(holder.name, ()):
                    holder.folder.names[holder.name] = holder.node
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
                for holder in node.history(name):
                    if isinstance(holder, Node):
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

    def survivors(self, choice: Choice) -> dict[Path, Node]:
        """What is there after a cut."""
        least = self._moved(choice)
        found: dict[Path, Node] = {}

        def visit(node: Node, at: Path) -> None:
            found[at] = node
            for name in sorted(node.names.keys() | node.pending.keys()):
                kept = choice((node, name), len(node.pending[name])) if name in node.pending else 0
                holder = node.history(name)[max(kept, least.get((id(node), name), 0))]
                if isinstance(holder, Node):
                    visit(holder, at / name)

        visit(self.top, Path())
        return found

    def _moved(self, choice: Choice) -> dict[tuple[int, str], int]:
        """How many changes of a name survive at least, because the name that a file had before is gone."""
        least: dict[tuple[int, str], int] = {}
        for node, name in self.unsafe():
            if name:
                holder = node.history(name)[choice((node, name), len(node.pending[name]))]
                if isinstance(holder, Moved) and holder.node in (later := holder.folder.pending.get(holder.name, [])):
                    least[id(holder.folder), holder.name] = later.index(holder.node) + 1
        return least


def _scan(path: Path) -> Node:
    if path.is_dir():
        return Node(True, names={name: _scan(path / name) for name in sorted(os.listdir(path))})
    data = path.read_bytes()
    return Node(False, data, data)


def bytes_left(node: Node, choice: Choice) -> bytes:
    """What a file holds after a cut."""
    if node.safe == node.data or choice((node, ""), 1):
        return node.data
    # Where the length is on the medium and the data is not, a file reads as zeros.
    return node.safe if node.safe is not None else bytes(len(node.data))


def write_out(found: dict[Path, Node], choice: Choice, target: Path) -> None:
    """Make a store folder of what a cut left; a file with two names has two names there."""
    written: dict[int, Path] = {}
    for at, node in found.items():
        if node.is_folder:
            (target / at).mkdir(parents=True)
        elif id(node) in written:
            (target / at).hardlink_to(written[id(node)])
        else:
            written[id(node)] = target / at
            (target / at).write_bytes(bytes_left(node, choice))


def fingerprint(found: dict[Path, Node], choice: Choice) -> bytes:
    """Tell apart what cuts left, as far as it can matter: what lies in tmp and leases after a cut is dead."""
    digest = hashlib.sha256()
    for at, node in sorted(found.items(), key=lambda item: item[0]):
        if at.parts[:1] not in (("tmp",), ("leases",)):
            digest.update(f"{at} {node.is_folder}\n".encode() + bytes_left(node, choice))
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
        self.platter.move(source, target)

    def unlink(self, path: Path) -> bool:
        done = super().unlink(path)
        if done:
            self.platter.put(path, None)
        return done

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self.platter.force(path)
