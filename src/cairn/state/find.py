"""One value of a commit by the path a person typed: `model/embed.weight`, `optimizer/state/0/"a/b"`.

Keys may hold any character, so a path is compared with the keys that are there. In the exact spelling of
`cairn.state.paths` it means one value; otherwise a str key may stand bare, and a path that then fits several values is
refused with the exact paths of all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from cairn.errors import Dropped, NotFound
from cairn.ids import BlobRef
from cairn.state import paths
from cairn.state.filesyntax import FileNode
from cairn.state.lazy import Pool
from cairn.state.nodes import Gone
from cairn.state.opened import Opened
from cairn.state.parts import missing
from cairn.state.place import Place
from cairn.state.source import Source
from cairn.state.syntax import Body

_SHOWN = 8


def find(manifest_ref: BlobRef, source: Source, path: str, *, as_numpy: bool = False) -> object:
    """Decode the value at a path. Raises NotFound, naming the candidates where there are several, and Damaged."""
    value, inside = locate(manifest_ref, source, path, as_numpy=as_numpy)
    if inside is not None:
        raise NotFound(f"{path!r}: found a file in front of {inside!r}; nothing is known of what is inside it")
    return value


def locate(
    manifest_ref: BlobRef, source: Source, path: str, *, as_numpy: bool = False, without: Collection[str] = ()
) -> tuple[object, str | None]:
    """Like `find`; a path that leads on behind a file gives the file and the rest of the path.

    Raises Dropped for what was dropped, as `without` says, and what holds any of it.
    """
    pool = Pool(manifest_ref, source, as_numpy=as_numpy, without=without)
    if path.partition("/")[0] not in pool.manifest.components:
        raise NotFound(f"{path!r}: expected a path that begins with one of {', '.join(pool.manifest.components)}")
    search = _searched(pool, path)
    if not search.found:
        raise NotFound(f"{path!r}: {search.nothing()}")
    place, raw, inside = search.found[0]
    value = pool.decoder.value(raw, place)
    gone = missing(value)
    if gone is not None:
        raise Dropped(f"{gone.path}: {gone.part} was dropped: it is no longer kept")
    return value, inside


def locate_node(pool: Pool, path: str) -> tuple[Place, Any] | None:
    """Find the place and the node at a path, or None. Raises NotFound for a path that fits several, and Damaged."""
    if path.partition("/")[0] not in pool.manifest.components:
        return None
    search = _searched(pool, path)
    if not search.found or search.found[0][2] is not None:
        return None
    place, raw, _ = search.found[0]
    return place, raw


def _searched(pool: Pool, path: str) -> _Search:
    """Look for a path in its component. Raises NotFound for a path that fits several values."""
    component, slash, rest = path.partition("/")
    search = _Search(pool)
    for bare in (False, True):
        search.look(*pool.root(component), rest if slash else None, bare)
        if search.found:
            break
    if len(search.found) > 1:
        raise NotFound(f"{path!r}: {search.several()}")
    return search


@dataclass(slots=True)
class _Search:
    """The values that a path fits, and how far it led."""

    pool: Pool
    found: list[tuple[Place, Any, str | None]] = field(default_factory=list)
    deepest: Place | None = None
    there: Opened | None = None

    def look(self, place: Place, raw: Any, rest: str | None, bare: bool) -> None:
        """Follow what is left of a path; nothing left is None, for the rest may be the empty key."""
        if rest is None:
            self.found.append((place, raw, None))
            return
        node = place.parse(raw)
        if isinstance(node, FileNode | Gone):
            self.found.append((place, raw, rest))
            return
        if not isinstance(node, Body):
            return
        opened = self.pool.open(node, place)
        if self.deepest is None or len(place.keys) >= len(self.deepest.keys):
            self.deepest, self.there = place, opened
        for step, key, entry, tree in opened.children():
            if len(self.found) > _SHOWN:
                return
            for spelling in _spellings(key, bare):
                if rest == spelling or rest.startswith(spelling + "/"):
                    left = rest[len(spelling) + 1 :] if len(rest) > len(spelling) else None
                    self.look(place.child(step, key, tree), entry, left, bare)

    def several(self) -> str:
        shown = [paths.exact(place.component, place.keys) for place, _, _ in self.found[:_SHOWN]]
        more = " and others" if len(self.found) > _SHOWN else ""
        return f"expected one value, found {', '.join(shown)}{more}; write the one you mean like this"

    def nothing(self) -> str:
        if self.deepest is None or self.there is None:
            return "expected a container, found a value without parts"
        keys = [paths.readable_key(key) for _, key, _, _ in islice(self.there.children(), _SHOWN)]
        more = ", …" if len(self.there) > _SHOWN else ""
        return f"found no such value; {self.deepest.path} has {', '.join(keys) or 'nothing in it'}{more}"


def _spellings(key: object, bare: bool) -> set[str]:
    exact = paths.exact_key(key)
    return {exact, key} if bare and type(key) is str else {exact}
