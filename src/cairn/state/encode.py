"""A live state to its trees: first everything is validated and its leaves listed, then the trees are written.

`sketch` walks the state once, decides every spelling (`cairn.state.trees` has the format) and raises before anything
is written. Between it and `Sketch.manifest` the caller stores the leaves, in any order.

Types are tested exactly: `numpy.float64` is no float here and an enum's int no int, since neither would come back.
Ties are the same address, dtype, shape and strides (of jax, whose arrays never change: the same object); never equal
bytes, nor two loaded tensors that are views of one blob. Arrays that overlap otherwise are stored separately, and so
are those of two libraries, or a Parameter and a plain tensor. A list or dict that occurs twice comes back as two.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from cairn import canonical
from cairn.errors import UnsupportedValue
from cairn.objects.cutting import cut
from cairn.state import paths, refusals, tensors
from cairn.state.assemble import (
    Draft,
    Fields,
    FileDraft,
    Items,
    Joined,
    Pair,
)
from cairn.state.atoms import atom_text, key_text, plain_text
from cairn.state.basics import Malformed
from cairn.state.filesyntax import check_names
from cairn.state.leaf import Leaf
from cairn.state.nodes import MAX_MODE, Folder, NewFile, name_bytes
from cairn.state.nodes import Link as FileLink
from cairn.state.sketch import TOO_MANY_BYTES, Sketch
from cairn.state.stored import StoredFile
from cairn.state.trees import (
    COMPONENT_NAME,
    MAX_DATA_BYTES,
    MAX_DEPTH,
    MAX_EXPANDED_BYTES,
    MAX_TREE_BYTES,
    METADATA,
    PART_BYTES,
    SPLIT_BYTES,
    is_plain_key,
)

__all__ = ["Leaf", "cut", "sketch"]

_REF_BYTES = 90
"""Upper bound of a reference to a blob in a tree."""


def sketch(state: Mapping[str, object]) -> Sketch:
    """Validate a state, component name to value. Raises UnsupportedValue with the path of what cannot be kept."""
    if not isinstance(state, Mapping):
        raise UnsupportedValue(
            f"state: expected a mapping of component name to value, found {type(state).__qualname__}; "
            'give each part a name, as in {"model": …}'
        )
    encoder = _Encoder()
    drafts: dict[str, Draft] = {}
    leaves: dict[str, list[Leaf]] = {}
    files: dict[str, list[NewFile | StoredFile]] = {}
    for name, value in state.items():
        if type(name) is not str or COMPONENT_NAME.fullmatch(name) is None:
            raise UnsupportedValue(
                f"state: expected component names of up to 100 letters, digits, '.', '_' and '-' that begin with a "
                f"letter or digit, found {name!r:.120}; rename the component"
            )
        leaves[name], files[name] = [], []
        drafts[name] = encoder.component(name, value, leaves[name], files[name])
    if len(drafts) * (_REF_BYTES + 104) + SPLIT_BYTES > MAX_TREE_BYTES:
        raise UnsupportedValue(f"state: expected a few components, found {len(drafts)}; gather them in dicts")
    return Sketch(drafts, leaves, files, encoder.ties, tuple(encoder.left_out))


class _Encoder:
    """The walk over a state: where it is, what it has seen."""

    def __init__(self) -> None:
        self.ties: list[bytes] = []
        self.left_out: list[str] = []
        self._first: dict[object, tuple[str, tuple[str | int, ...], Leaf]] = {}
        self._bytes = 0

    def component(self, name: str, value: object, leaves: list[Leaf], files: list[NewFile | StoredFile]) -> Draft:
        self._component = name
        self._leaves = leaves
        self._files = files
        self._here: dict[object, tuple[str | int, ...]] = {}
        self._steps: list[str | int] = []
        self._keys: list[object] = []
        self._open: set[int] = set()
        return self._value(value)

    def _value(self, value: object) -> Draft:
        text = atom_text(value)
        if text is not None:
            self._spend(len(text))
            return text
        make = _CONTAINERS.get(type(value))
        if make is None:
            return self._tensor(value) or self._long(value)
        if id(value) in self._open:
            raise self._refusal("expected a tree of values, found a container inside itself; refer to it by name")
        if len(self._steps) >= MAX_DEPTH:
            raise self._refusal(f"expected at most {MAX_DEPTH} containers inside each other, found more; flatten them")
        self._open.add(id(value))
        draft = make(self, value)
        self._open.remove(id(value))
        return draft

    def _child(self, step: str | int, key: object, value: object) -> Draft:
        self._steps.append(step)
        self._keys.append(key)
        draft = self._value(value)
        self._steps.pop()
        self._keys.pop()
        return draft

    def _dict(self, value: dict[object, object]) -> Draft:
        if not all(map(is_plain_key, value)):
            return self._map("dict", value)
        fields = Fields([], [], [])
        for key, item in value.items():
            assert_key: str = key  # type: ignore[assignment]
            fields.names.append(assert_key.encode())
            fields.keys.append(plain_text(assert_key))
            fields.values.append(self._child(assert_key, key, item))
        self._spend(sum(map(len, fields.keys)) + 2 * len(fields.keys))
        return fields

    def _ordered(self, value: OrderedDict[object, object]) -> Draft:
        if METADATA not in vars(value):
            return self._counted(value)
        self._check_attributes(value, {METADATA})
        pairs = self._map("OrderedDict", value, b"")
        inner = self._child(METADATA, paths.Attribute(METADATA), vars(value)[METADATA])
        return Joined([pairs, b',"%s":' % METADATA.encode(), inner, b"}}"])

    def _counted(self, value: dict[object, object]) -> Draft:
        self._check_attributes(value, set())
        return self._map(type(value).__name__, value)

    def _check_attributes(self, value: object, allowed: set[str]) -> None:
        found = [*filter(lambda name: name not in allowed, vars(value))]
        if found:
            kind = type(value).__name__
            raise self._refusal(
                f"expected a {kind} without attributes of its own, found {found[0]!r:.80}; store it apart"
            )

    def _map(self, kind: str, value: dict[object, object], after: bytes = b"}}") -> Draft:
        pairs: list[Draft] = []
        spelled: set[bytes] = set()
        for place, (key, item) in enumerate(value.items()):
            text = self._key(key)
            if text in spelled:
                raise self._refusal(f"expected keys that differ, found {key!r:.80} twice, which is not equal to itself")
            spelled.add(text)
            self._spend(len(text) + 4)
            pairs.append(Pair(text, self._child(place, key, item)))
        return Items(b'{"$map":{"type":"%s","pairs":' % kind.encode(), pairs, after)

    def _folder(self, folder: Folder) -> Draft:
        self.left_out += folder.left_out
        entries = dict(sorted(folder.entries.items(), key=lambda item: name_bytes(item[0])))
        names = [*entries]
        try:
            check_names(names)
        except Malformed as error:
            raise self._refusal(str(error)) from None
        for name, entry in entries.items():
            if type(entry) not in (NewFile, StoredFile, FileLink, Folder):
                raise self._refusal(f"expected files, links and folders in a folder, found {name!r:.80}: {entry!r:.80}")
        head = b'{"$dir":{"mode":%d,"entries":' % (folder.mode & MAX_MODE)
        return Joined([head, self._dict(entries), b"}}"])  # type: ignore[arg-type] # names are keys like others

    def _file(self, file: NewFile | StoredFile) -> Draft:
        self._spend(300)
        self._files.append(file)
        return FileDraft(file, file.mode & MAX_MODE)

    def _link(self, link: FileLink) -> Draft:
        target = link.target if isinstance(link.target, str) else {"bytes": link.target.hex()}
        text = canonical.encode({"$link": target})
        self._spend(len(text))
        return text

    def _list(self, value: list[object]) -> Draft:
        self._spend(2 + len(value))
        return Items(b"", [self._child(place, place, item) for place, item in enumerate(value)], b"")

    def _tuple(self, value: tuple[object, ...]) -> Draft:
        self._spend(2 + len(value))
        items = [self._child(place, place, item) for place, item in enumerate(value)]
        return Items(b'{"$tuple":', items, b"}")

    def _key(self, key: object) -> bytes:
        text = key_text(key)
        if text is None:
            raise self._refusal(refusals.of_key(key))
        if len(text) > SPLIT_BYTES:
            raise self._refusal(f"expected short keys, found one of {len(text)} bytes; use a list of pairs")
        return text

    def _tensor(self, value: Any) -> Draft | None:
        try:
            seen = tensors.describe(value)
        except tensors.Refused as error:
            raise self._refusal(str(error)) from None
        if seen is None:
            return None
        around = tensors.around_blobs(seen.dtype, seen.shape, seen.ending)
        if around is None:
            raise self._refusal(f"expected a shape that fits in memory, found {seen.shape!s:.120}")
        before, after = around
        if seen.nbytes == 0:
            return before + b"[]" + after
        steps = tuple(self._steps)
        first = self._first.get(seen.memory)
        if first is None:
            leaf = self._leaf(value, seen.dtype, seen.nbytes, before, after)
            self._first[seen.memory] = (self._component, steps, leaf)
            return leaf
        component, place, leaf = first
        if component == self._component:
            return self._tie_text({"$tie": list(place)})
        here = self._here.setdefault(seen.memory, steps)
        if here is not steps:
            return self._tie_text({"$tie": list(here)})
        self.ties.append(self._tie_text({"at": [self._component, list(steps)], "of": [component, list(place)]}))
        return leaf

    def _tie_text(self, tie: dict[str, object]) -> bytes:
        text = canonical.encode(tie)
        if len(text) > PART_BYTES:
            raise self._refusal(
                f"expected ties of at most {PART_BYTES} bytes, found one of {len(text)}; shorten the keys"
            )
        self._spend(len(text) + 1)
        return text

    def _long(self, value: object) -> Leaf:
        if type(value) is bytes:
            return self._leaf(value, "bytes", len(value), b'{"$bytes":', b"}")
        if type(value) is str:
            data = value.encode("utf-8", "surrogatepass")
            return self._leaf(data, "str", len(data), b'{"$str":', b"}")
        if type(value) is int:
            raise self._refusal(f"found an int of {value.bit_length()} bits; store value.to_bytes(…)")
        raise self._refusal(refusals.of_type(value))

    def _leaf(self, value: Any, dtype: str, nbytes: int, before: bytes, after: bytes) -> Leaf:
        if nbytes > MAX_DATA_BYTES:
            raise self._refusal(f"expected at most {MAX_DATA_BYTES} bytes, found {nbytes}; store it in pieces")
        leaf = Leaf(value, dtype, nbytes, self._component, tuple(self._keys), before, after)
        self._spend(len(before) + len(after) + _REF_BYTES * len(cut(nbytes)))
        self._leaves.append(leaf)
        return leaf

    def _spend(self, nbytes: int) -> None:
        self._bytes += nbytes
        if self._bytes > MAX_EXPANDED_BYTES:
            raise self._refusal(TOO_MANY_BYTES)

    def _refusal(self, reason: str) -> UnsupportedValue:
        return UnsupportedValue(f"{paths.readable(self._component, self._keys)}: {reason}; nothing was written")


_CONTAINERS: dict[type, Callable[[_Encoder, Any], Draft]] = {
    dict: _Encoder._dict,
    OrderedDict: _Encoder._ordered,
    Counter: _Encoder._counted,
    list: _Encoder._list,
    tuple: _Encoder._tuple,
    Folder: _Encoder._folder,
    NewFile: _Encoder._file,
    StoredFile: _Encoder._file,
    FileLink: _Encoder._link,
}
