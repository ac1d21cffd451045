"""What is in a commit, for people: `ls` and `cat`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cairn.errors import Dropped, NotFound
from cairn.history.commit import Commit
from cairn.ids import BlobRef
from cairn.state import paths
from cairn.state.nodes import FileRefs
from cairn.state.stored import StoredFile
from cairn.state.walk import leaves, read_manifest
from cairn.store.core import Core


@dataclass(frozen=True, slots=True)
class Item:
    """A value of a commit, or a component when no path was asked for.

    `kind`: component, tensor, tie, file, link, value, or dropped: an entry of a folder that is no longer kept, whose
    `value` is the part that was dropped. `bytes` of a component are those of its tensors and files.
    """

    path: str
    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    bytes: int
    tensors: int
    files: int
    value: object
    tie: str | None
    blobs: tuple[BlobRef, ...]


def listing(core: Core, commit: Commit, path: str | None) -> list[Item]:
    """List the components of a commit, or the values at and below a path, the tensors of a file included.

    Raises NotFound, Damaged.
    """
    components = read_manifest(commit.root, core.tree).components
    kept = [name for name in components if name not in commit.dropped]
    if path is None:
        return [_component(name, [item for item, _ in _items(core, commit, [name])]) for name in kept]
    component = path.split("/")[0]
    if component not in kept:
        raise NotFound(f"{commit} has no component {component!r}: expected one of {', '.join(kept)}")
    path = path.rstrip("/")
    found: list[Item] = []
    for item, refs in _items(core, commit, [component]):
        if item.path == path or item.path.startswith(path + "/"):
            found.append(item)
        elif item.kind == "dropped" and path.startswith(item.path + "/"):
            raise Dropped(f"{commit}: {item.path} was dropped ({item.value}): it is no longer kept")
        if refs is not None and (path == item.path or path.startswith(item.path + "/")):
            found += [tensor for tensor in _inside(core, item, refs) if (tensor.path + "/").startswith(path + "/")]
    if not found:
        raise NotFound(f"{commit} has nothing at {path!r}; `cairn ls {commit.id[:12]} {component}` lists what there is")
    return found


def _items(core: Core, commit: Commit, only: list[str]) -> Iterator[tuple[Item, FileRefs | None]]:
    for entry in leaves(commit.root, core.tree, only, commit.dropped):
        component, *keys = entry.path
        refs = entry.value if isinstance(entry.value, FileRefs) else None
        yield (
            Item(
                path=paths.readable(str(component), keys),
                kind=entry.kind,
                dtype=entry.dtype,
                shape=entry.shape,
                bytes=entry.nbytes,
                tensors=int(entry.kind == "tensor"),
                files=int(entry.kind == "file"),
                value=entry.value if refs is None else None,
                tie=paths.readable(str(entry.tie[0]), entry.tie[1:]) if entry.tie else None,
                blobs=entry.blobs,
            ),
            refs,
        )


def _inside(core: Core, item: Item, refs: FileRefs) -> list[Item]:
    """The tensors inside a file."""
    # Imported here because most listings look into no file.
    from cairn.files import inside

    found = inside.tensors(StoredFile(0, refs, core, item.path))
    return [
        Item(
            path=f"{item.path}/{tensor.name}",
            kind="tensor",
            dtype=tensor.dtype,
            shape=tensor.shape,
            bytes=inside.nbytes(tensor),
            tensors=1,
            files=0,
            value=None,
            tie=None,
            blobs=(),
        )
        for tensor in found
    ]


def _component(name: str, items: list[Item]) -> Item:
    held = [item for item in items if item.kind in ("tensor", "file")]
    return Item(
        path=name,
        kind="component",
        dtype=None,
        shape=None,
        bytes=sum(item.bytes for item in held),
        tensors=sum(item.tensors for item in held),
        files=sum(item.files for item in held),
        value=None,
        tie=None,
        blobs=(),
    )
