"""What is in a commit, for people: `ls` and `cat`."""

from __future__ import annotations

from dataclasses import dataclass

from cairn.errors import NotFound
from cairn.history.commit import Commit
from cairn.ids import BlobRef
from cairn.state import paths
from cairn.state.walk import leaves, read_manifest
from cairn.store.core import Core


@dataclass(frozen=True, slots=True)
class Item:
    """A value of a commit, or a component when no path was asked for. `kind`: component, tensor, tie or value."""

    path: str
    kind: str
    dtype: str | None
    shape: tuple[int, ...] | None
    bytes: int
    tensors: int
    value: object
    tie: str | None
    blobs: tuple[BlobRef, ...]


def listing(core: Core, commit: Commit, path: str | None) -> list[Item]:
    """List the components of a commit, or the values at and below a path. Raises NotFound, Damaged."""
    components = read_manifest(commit.root, core.tree).components
    kept = [name for name in components if name not in commit.dropped]
    if path is None:
        items = _items(core, commit, kept)
        return [_component(name, [item for item in items if item.path.split("/")[0] == name]) for name in kept]
    component = path.split("/")[0]
    if component not in kept:
        raise NotFound(f"{commit} has no component {component!r}: expected one of {', '.join(kept)}")
    found = [
        item
        for item in _items(core, commit, [component])
        if item.path == path or item.path.startswith(path.rstrip("/") + "/")
    ]
    if not found:
        raise NotFound(f"{commit} has nothing at {path!r}; `cairn ls {commit.id[:12]} {component}` lists what there is")
    return found


def _items(core: Core, commit: Commit, only: list[str]) -> list[Item]:
    items = []
    for entry in leaves(commit.root, core.tree, only):
        component, *keys = entry.path
        tie = paths.readable(str(entry.tie[0]), entry.tie[1:]) if entry.tie else None
        items.append(
            Item(
                path=paths.readable(str(component), keys),
                kind=entry.kind,
                dtype=entry.dtype,
                shape=entry.shape,
                bytes=entry.nbytes,
                tensors=int(entry.kind == "tensor"),
                value=entry.value,
                tie=tie,
                blobs=entry.blobs,
            )
        )
    return items


def _component(name: str, items: list[Item]) -> Item:
    tensors = [item for item in items if item.kind == "tensor"]
    return Item(
        path=name,
        kind="component",
        dtype=None,
        shape=None,
        bytes=sum(item.bytes for item in tensors),
        tensors=len(tensors),
        value=None,
        tie=None,
        blobs=(),
    )
