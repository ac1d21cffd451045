"""numpy's `.npy`: a magic string, a version, a header that is a Python dictionary, and the array's bytes.

Read as `numpy/lib/format.py` writes it, versions 1.0, 2.0 and 3.0. The header is matched, not evaluated: three keys
once each, in any order. Arrays of objects are pickles, and structured arrays no tensors: both are told apart, as
`NoTensor`, from what is no array at all.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from cairn.files.formats.model import MAX_DIMENSIONS, Refused, Slice, Source, TensorInfo, elements
from cairn.state.dtypes import LIBRARY_NAMES, is_time

MAGIC = b"\x93NUMPY"
MAX_NPY_HEADER = 1 << 16

_S = r"[ \t\n]*+"
_DESCR = r"""(?P<q>['"])(?P<order>[<>|=]?)(?P<kind>[biufcmMSUV])(?P<size>\d{1,9})(?P<unit>\[\w{1,12}\])?(?P=q)"""
_EXTENT = rf"(?:0|[1-9]\d{{0,18}}+)L?{_S}"
_SHAPE = rf"\({_S}(?P<shape>|(?:{_EXTENT},{_S}){{1,{MAX_DIMENSIONS}}}+(?:{_EXTENT})?)\)"
_FIELD = (
    rf"""(?:'descr'|"descr"){_S}:{_S}{_DESCR}"""
    rf"""|(?:'fortran_order'|"fortran_order"){_S}:{_S}(?P<fortran>True|False)"""
    rf"""|(?:'shape'|"shape"){_S}:{_S}{_SHAPE}"""
)
_HEADER = re.compile(rf"\{{{_S}(?:(?:{_FIELD}){_S}(?:,{_S}|(?=\}}))){{3}}\}}{_S}", re.ASCII)
_OTHER = re.compile(rf"""\{{{_S}(?:'descr'|"descr"){_S}:{_S}(?:\[|\(|['"][<>|=]?O['"\d])""")
_KINDS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
_NAMES = {library: name for name, library in LIBRARY_NAMES.items()}


class NoTensor(Refused):
    """A sound array whose elements are objects or structures."""


@dataclass(frozen=True, slots=True)
class Array:
    """What a header says, checked against the size that it stands in."""

    dtype: str
    itemsize: int
    big_endian: bool
    shape: tuple[int, ...]
    fortran: bool
    start: int
    stop: int


def read(source: Source, start: int, stop: int) -> Array:
    """Read the header of an array that must fill these bytes of the file. Raises Refused."""
    head = source.exact(start, min(12, stop - start), "the start of an array")
    major = head[6] if len(head) == 12 and head[:6] == MAGIC and head[7] == 0 else 0
    if major not in (1, 2, 3):
        raise Refused(f"expected an array of version 1.0, 2.0 or 3.0, found {head[:8]!r}")
    before = 10 if major == 1 else 12
    length = int.from_bytes(head[8:before], "little")
    if length > min(MAX_NPY_HEADER, stop - start - before):
        raise Refused(f"expected an array's header in {stop - start} bytes, found a length of {length}")
    text = source.exact(start + before, length, "an array's header").decode(
        "utf-8" if major == 3 else "latin-1", "replace"
    )
    return _checked(text, start + before + length, stop)


def cut(source: Source) -> tuple[Slice, ...]:
    """Find the array's bytes in a file that is one array. Raises Refused."""
    array = read(source, 0, source.size)
    return (piece(array),) if array.stop > array.start else ()


def tensors(source: Source) -> list[TensorInfo]:
    """Describe the array of a file that is one array; its name is empty. Raises Refused."""
    return [info("", read(source, 0, source.size))]


def piece(array: Array) -> Slice:
    """The array's bytes as a slice."""
    return Slice(array.start, array.stop, min(array.itemsize & -array.itemsize, 16))


def info(name: str, array: Array) -> TensorInfo:
    """Describe an array under a name."""
    strides = None
    if array.fortran and len(array.shape) > 1:
        steps = [1]
        for extent in array.shape[:-1]:
            steps.append(steps[-1] * extent)
        strides = tuple(steps)
    return TensorInfo(
        name, array.dtype, array.shape, array.start, array.stop, strides=strides, big_endian=array.big_endian
    )


def _checked(text: str, start: int, stop: int) -> Array:
    if _OTHER.match(text):
        raise NoTensor(f"expected an array of a plain type, found {text[:80]!r}")
    match = _HEADER.fullmatch(text)
    if match is None or match["kind"] is None or match["fortran"] is None or match["shape"] is None:
        raise Refused(f"expected a header with descr of a plain type, fortran_order and shape, found {text[:80]!r}")
    shape = tuple(int(extent.strip().rstrip("L")) for extent in match["shape"].split(",") if extent.strip())
    count = elements(shape)
    size = int(match["size"]) * (4 if match["kind"] == "U" else 1)
    if count * size != stop - start:
        raise Refused(f"expected {count} elements of {size} bytes, found {stop - start} bytes")
    big = match["order"] == ">" or (match["order"] == "=" and sys.byteorder == "big")
    return Array(_name(match), size, big and size > 1, shape, match["fortran"] == "True", start, stop)


def _name(match: re.Match[str]) -> str:
    """The name in trees, else numpy's own."""
    kind, size, unit = match["kind"], int(match["size"]), match["unit"] or ""
    spelled = match["order"] + kind + match["size"] + unit
    if kind in "mM":
        name = ("timedelta64" if kind == "m" else "datetime64") + unit
        return name if size == 8 and is_time(name) else spelled
    library = "bool" if (kind, size) == ("b", 1) else _KINDS.get(kind, "?") + str(8 * size)
    return _NAMES.get(library, spelled)
