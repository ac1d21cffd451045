"""The tensors inside two versions of a file: which of them changed, by name.

Only headers are read, and the tensors that do not lie in the same blobs. Nothing is executed. Two names for one range
of a file, as torch has for tied weights, are two tensors here.
"""

from __future__ import annotations

from collections.abc import Callable

from cairn.files.formats import tensors
from cairn.state.stored import StoredFile
from cairn.store.diff import Change, Side
from cairn.store.extents import Elements, of_file
from cairn.store.tensor_diff import tensor_kinds


def inside(
    before: StoredFile, after: StoredFile, file: Change, advance: Callable[[int], None]
) -> tuple[list[Change], int]:
    """Compare the tensors in a file whose bytes changed; return the changes and how many tensors are equal."""
    one, other = named(before), named(after)
    if not one and not other:
        return [], 0
    changes: list[Change] = []
    equal = 0
    for name in {**one, **other}:
        change = _change(name, one.get(name), other.get(name), file, advance)
        if change is None:
            equal += 1
        else:
            changes.append(change)
    return changes, equal


def named(file: StoredFile) -> dict[str, Elements]:
    """Name the tensors of a file; a name that occurs again gets a number."""
    data = of_file(file)
    named: dict[str, Elements] = {}
    found = tensors(lambda offset, size: bytes(data.read(offset, offset + size)), file.size, ahead=False)
    for info in found:
        name, number = info.name, 2
        while name in named:
            name, number = f"{info.name}#{number}", number + 1
        named[name] = Elements(info, data)
    return named


def _change(
    name: str, before: Elements | None, after: Elements | None, file: Change, advance: Callable[[int], None]
) -> Change | None:
    numbers = None
    if before is None or after is None:
        kinds = ["added" if before is None else "removed"]
    else:
        swapped = before.info.dtype == after.info.dtype and before.info.big_endian != after.info.big_endian
        kinds, numbers = tensor_kinds(before, after, advance)
        kinds = ["byteswapped"] * swapped + kinds
    if not kinds:
        return None
    path = f"{file.path}/{name}" if name else file.path
    return Change(path, file.component, tuple(kinds), _side(before), _side(after), numbers, file.path)


def _side(tensor: Elements | None) -> Side | None:
    if tensor is None:
        return None
    info = tensor.info
    order = "big" if info.big_endian else "little"
    return Side("tensor", info.dtype, info.shape, order, info.stop - info.start)
