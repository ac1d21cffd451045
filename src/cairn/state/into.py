"""Loading into tensors that are there: the parameters of a model, the moments of an optimizer.

A tensor of the commit goes into the one that stands at the same place of the target state: in the same component,
under the same keys. Both must have one element type, byte order and shape, since nothing is converted silently, and the
target's must be tied exactly where the commit's are. Whose they are, numpy's or torch's, is the target's affair.
All of this is checked before any of them is changed; what is no tensor comes from the commit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NoReturn

import numpy as np

from cairn.errors import UsageError
from cairn.state import arrays, dtypes, jax_values, torch_values
from cairn.state.arrays import Array
from cairn.state.known import Known
from cairn.state.make import live_key
from cairn.state.manifest import Manifest
from cairn.state.paths import Attribute, readable
from cairn.state.place import Place
from cairn.state.source import Fetch
from cairn.state.syntax import Link, Tensor
from cairn.state.trees import MAX_DEPTH, METADATA, TORCH

Keys = tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """A tensor that is to be filled."""

    place: Place
    value: Any
    memory: Array | None
    """Its elements as uninterpreted bytes, where the processor can write them."""
    start: int
    """The address of its first element."""
    identity: object
    """What two targets have in common when they are one memory."""

    @property
    def path(self) -> str:
        return self.place.path


class Filling:
    """Finds the tensors of a target state as a commit is read, checks them, and says what is to be copied."""

    def __init__(
        self, state: Mapping[str, object], only: Collection[str] | None, fetch: Fetch, manifest: Manifest
    ) -> None:
        """Look through the target, or these components of it. Raises UsageError for a state that is none."""
        if not isinstance(state, Mapping):
            raise UsageError(
                f"into: expected a state, component name to value, found {type(state).__name__}; "
                "write {'model': model.state_dict(), …}"
            )
        self._values: dict[tuple[str, Keys], Any] = {}
        for name, value in state.items():
            if only is None or name in only:
                self._values.update({(name, keys): found for keys, found in _values(value, name, ())})
        self._known = Known(fetch, manifest, self._fill)
        self._found: dict[tuple[str, Keys], _Target] = {}
        self._filled: dict[object, _Target] = {}

    def tensor(self, node: Tensor, place: Place) -> Any:
        """Have the tensor at a place filled, and return it. Raises UsageError where the two do not agree."""
        return self._own(place, self._known.tensor(node, place))

    def tied(self, node: Link, place: Place) -> Any:
        """Return the tensor at a place whose memory is filled already. Raises UsageError where it is another."""
        return self._own(place, self._known.tied(node, place))

    def check_ties(self, place: Place) -> None:
        """Refuse ties of the manifest to what is no tensor of the component that was just loaded. Raises Damaged."""
        self._known.check_ties(place)

    def check(self) -> None:
        """Refuse tensors that the commit does not have, and memory that would be filled twice. Raises UsageError."""
        for spot, value in self._values.items():
            if spot not in self._found and _is_tensor(value):
                _refuse(readable(*spot), "none, since the commit has none there", f"a tensor in `into` ({_say(value)})")
        lying: list[tuple[int, _Target]] = []
        for start, stop, target in sorted(map(_extent, self._filled.values()), key=lambda extent: extent[:2]):
            lying = [(end, other) for end, other in lying if end > start]
            for _, other in lying:
                if _share(target, other):
                    _refuse(target.path, "a memory of its own, as in the commit", f"some of that of {other.path}")
            lying.append((stop, target))

    def _fill(self, node: Tensor, fetch: Fetch, place: Place) -> _Target:
        target = self._target(place)
        _check_like(node, target)
        other = self._filled.setdefault(target.identity, target) if node.nbytes else target
        if other is not target:
            _refuse(target.path, "a memory of its own, as in the commit", f"that of {other.path}")
        if target.memory is None:
            fresh, memory = torch_values.fresh(node.dtype, node.shape, TORCH, target.path)
            fetch.fill(node.blobs, memory)
            fetch.after(partial(torch_values.assign, target.value, fresh))
        elif target.memory.flags.c_contiguous and not node.big:
            _fill_bytes(node, fetch, arrays.bytes_of(target.memory))
        elif node.nbytes:
            data = fetch.view(node.blobs)
            if data is None:
                data = np.empty(node.nbytes, np.uint8).data
                fetch.fill(node.blobs, data)
            fetch.after(partial(_assign, target.memory, data, node))
        return target

    def _own(self, place: Place, first: _Target) -> Any:
        """The target's tensor at a place that is tied to a first one, or is it."""
        if place is first.place:
            return first.value
        target = self._found.get(_spot(place)) or self._target(place)
        if target.identity != first.identity:
            _refuse(target.path, f"the memory of {first.path}, to which it is tied in the commit", "another")
        return target.value

    def _target(self, place: Place) -> _Target:
        spot = _spot(place)
        if spot not in self._values:
            _refuse(place.path, "a tensor in `into`", "none; leave its component out with only=, or load without into=")
        target = self._found[spot] = _target(self._values[spot], place)
        return target


def _values(value: Any, component: str, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    """The values of a state that are no containers, by their keys."""
    if len(keys) > MAX_DEPTH:
        _refuse(readable(component, keys[:3]), f"at most {MAX_DEPTH} containers inside each other", "more")
    children: list[tuple[object, Any]] = []
    if isinstance(value, Mapping):
        children += value.items()
        if isinstance(value, OrderedDict) and METADATA in vars(value):
            children.append((Attribute(METADATA), vars(value)[METADATA]))
    elif isinstance(value, list | tuple):
        children += enumerate(value)
    else:
        yield keys, value
    for key, item in children:
        yield from _values(item, component, (*keys, key))


def _spot(place: Place) -> tuple[str, Keys]:
    return place.component, tuple([live_key(key, place) for key in place.keys])


def _target(value: Any, place: Place) -> _Target:
    memory = _memory(value, place)
    if memory is None:
        return _Target(place, value, None, value.data_ptr(), torch_values.memory_of(value, TORCH))
    start = memory.__array_interface__["data"][0]
    return _Target(place, value, memory, start, (start, value.dtype, memory.shape, memory.strides))


def _memory(value: Any, place: Place) -> Array | None:
    """The elements of a tensor as uninterpreted bytes; None where only torch can write them. Raises UsageError."""
    if type(value) is np.ndarray:
        if not value.flags.writeable:
            _refuse(
                place.path,
                "an array in `into` that can be written",
                "a read-only one",
            )
        raw = value
    elif torch_values.kind_of(value) is not None:
        reason = torch_values.why_refused(value)
        if reason is not None:
            raise UsageError(f"{place.path} in `into`: {reason}; no tensor was changed")
        found = torch_values.raw_elements(value)
        if found is None:
            return None
        raw = found
    else:
        _refuse(place.path, "an array of numpy or a tensor of torch in `into`", _say(value))
    if raw.size and any(step == 0 and extent > 1 for step, extent in zip(raw.strides, raw.shape, strict=True)):
        _refuse(
            place.path,
            "elements with a memory of their own",
            "some that share one",
        )
    return raw.view(_void(raw.dtype.itemsize))


@lru_cache
def _void(itemsize: int) -> arrays.DType:
    return np.dtype((np.void, itemsize))


def _check_like(node: Tensor, target: _Target) -> None:
    value = target.value
    if isinstance(value, np.ndarray):
        found = (arrays.name_of(value.dtype), arrays.is_big(value.dtype), value.shape)
    else:
        name = torch_values.name_of(value)
        found = (name, False, dtypes.in_values(name or "", tuple(value.shape)))
    wanted = (node.dtype, node.big, node.shape)
    if found != wanted:
        _refuse(target.path, f"{_spell(*wanted)} in `into`, as committed", f"{_spell(*found)}; nothing is converted")


def _fill_bytes(node: Tensor, fetch: Fetch, memory: memoryview) -> None:
    at = 0
    for ref in node.blobs:
        part = memory[at : at + ref.size]
        at += ref.size
        data = fetch.view([ref])
        if data is None:
            fetch.fill([ref], part)
        else:
            fetch.after(partial(_copy, part, data))


def _copy(target: memoryview, data: memoryview) -> None:
    # numpy lets other threads run while it copies.
    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(data, np.uint8))


def _assign(target: Array, data: memoryview, node: Tensor) -> None:
    raw = np.frombuffer(data, np.uint8)
    if node.big:
        raw = raw.copy()
        arrays.swap(raw, node.dtype)
    np.copyto(target, raw.view(target.dtype).reshape(target.shape))


def _extent(target: _Target) -> tuple[int, int, _Target]:
    """The first byte of a tensor's memory, and that behind the last."""
    if target.memory is None:
        return target.start, target.start + torch_values.reach(target.value), target
    start = stop = target.start
    for step, extent in zip(target.memory.strides, target.memory.shape, strict=True):
        reach = step * (extent - 1)
        start, stop = start + min(reach, 0), stop + max(reach, 0)
    return start, stop + target.memory.itemsize, target


def _share(one: _Target, other: _Target) -> bool:
    if one.memory is None or other.memory is None:
        return one.memory is other.memory and bool(one.value.device == other.value.device)
    return np.shares_memory(one.memory, other.memory)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray) or torch_values.is_relative(value) or jax_values.is_array(value)


def _say(value: Any) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{kind} of {value.dtype}, {tuple(value.shape)}" if _is_tensor(value) else kind


def _spell(name: str | None, big: bool, shape: tuple[int, ...]) -> str:
    return f"{name or 'an unknown type'}{' (big-endian)' * big} of shape {shape}"


def _refuse(path: str, expected: str, found: str) -> NoReturn:
    raise UsageError(f"{path}: expected {expected}, found {found}; no tensor was changed")
