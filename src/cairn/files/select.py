"""Parts of a loaded state by path: `files/tokenizer`, `model`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cairn.errors import NotFound
from cairn.files.words import show
from cairn.state.nodes import Folder, Name, name_bytes
from cairn.state.paths import exact_key, readable_key


def select(state: Mapping[str, object], paths: Collection[str]) -> dict[str, object]:
    """Keep what the paths name, and what is below it; everything when there are none. Raises NotFound."""
    if not paths:
        return dict(state)
    chosen: dict[str, object] = {}
    for name, value in state.items():
        inside = [path.partition("/")[2] for path in paths if path.partition("/")[0] == name]
        if not inside:
            continue
        if "" in inside:
            chosen[name] = value
        elif isinstance(value, Folder):
            chosen[name] = _part(value, [[*path.strip("/").split("/")] for path in inside], name)
        else:
            raise NotFound(f"{name}/{inside[0]}: {name} is no folder; check out the component {name!r} as a whole")
    return chosen


def _part(folder: Folder, paths: list[list[str]], above: str) -> Folder:
    entries: dict[Name, object] = {}
    for path in paths:
        if _find(folder, path[0]) is None:
            names = ", ".join(show(name_bytes(name)) for name in list(folder.entries)[:10])
            raise NotFound(f"{above}/{path[0]}: expected one of {names or 'nothing: the folder is empty'}")
    for name, entry in folder.entries.items():
        deeper = [path[1:] for path in paths if _find(folder, path[0]) == name]
        if not deeper:
            continue
        if [] in deeper:
            entries[name] = entry
        elif isinstance(entry, Folder):
            entries[name] = _part(entry, deeper, f"{above}/{show(name_bytes(name))}")
        else:
            raise NotFound(f"{above}/{show(name_bytes(name))} is no folder")
    return Folder(folder.mode, entries)


def _find(folder: Folder, text: str) -> Name | None:
    """The entry of a name as it is, or as listings and messages show it."""
    if text in folder.entries:
        return text
    spelled = ((name, (readable_key(name), exact_key(name), show(name_bytes(name)))) for name in folder.entries)
    return next((name for name, spellings in spelled if text in spellings), None)
