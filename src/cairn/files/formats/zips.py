"""Zip archives: the members, their data's place in the file, and nothing else; no member is unpacked.

Read as PKWARE's APPNOTE says, and more strictly where readers differ, because two readers that disagree about a file
are how such files lie: the end record closes the file, the central directory ends where the end records start, each
local header agrees with it, names are unique, and no two members share a byte. Gaps between members are allowed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.files.formats.model import MAX_HEADER, MAX_TENSORS, Refused, Source

STORED = 0

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")

_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_VERSION = 63
"""Newest version of the format whose members are what they seem."""
_HIDDEN = 0x0001 | 0x0020 | 0x0040 | 0x2000
"""Flags: encrypted, patched, strongly encrypted, directory masked."""
_DESCRIPTOR = 0x0008
"""Flag: sizes and checksum stand behind the data."""
_MARK = b"PK\x07\x08"
_WINDOW = 4096
"""Read at once where small members lie close together; large ones cost no more than this."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member: its name as bytes, how it is compressed, and where its data lie."""

    name: bytes
    method: int
    start: int
    stop: int

    @property
    def stored(self) -> bool:
        """Whether the data are the member's own bytes."""
        return self.method == STORED


@dataclass(frozen=True, slots=True)
class _Listed:
    """A member as the central directory lists it."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    header: int


@dataclass(frozen=True, slots=True)
class _Directory:
    start: int
    size: int
    count: int


def looks_like(head: bytes) -> bool:
    """Whether a file starts like an archive. One with other bytes in front is no archive to us."""
    return head[:4] in (b"PK\x03\x04", b"PK\x05\x06")


def members(source: Source) -> list[Member]:
    """List the members in the order of their data. Raises Refused."""
    directory = _find_directory(source)
    listed = sorted(_listed(source, directory), key=lambda entry: entry.header)
    window = _Window(source)
    found = []
    at = 0
    for entry in listed:
        if entry.header < at:
            raise Refused(
                f"expected members that share no byte, found {_show(entry.name)} at {entry.header} below {at}"
            )
        member = _located(window, entry)
        at = _end_of(window, entry, member)
        found.append(member)
    if at > directory.start:
        raise Refused(f"expected members before the directory at {directory.start}, found one up to {at}")
    return found


def _find_directory(source: Source) -> _Directory:
    tail_size = min(source.size, _END.size + _FULL16)
    if not source.ahead:
        end = source.exact(source.size - _END.size, _END.size, "an end record")
        tail_size = _END.size if end.startswith(b"PK\x05\x06") and end.endswith(b"\0\0") else tail_size
    tail = source.exact(source.size - tail_size, tail_size, "the end of an archive")
    found = len(tail)
    while (found := tail.rfind(b"PK\x05\x06", 0, found)) >= 0:
        if found + _END.size <= len(tail):
            _, disk, first, here, count, size, start, comment = _END.unpack_from(tail, found)
            if found + _END.size + comment == len(tail):
                break
    else:
        raise Refused("expected an end record with which the archive ends, found none")
    at = source.size - tail_size + found
    locator = source.exact(at - _LOCATOR.size, _LOCATOR.size, "a locator") if at >= _LOCATOR.size else b""
    if locator[:4] == b"PK\x06\x07":
        return _large_directory(source, at - _LOCATOR.size, locator, (count, size, start))
    if (disk, first) != (0, 0) or here != count:
        raise Refused(f"expected an archive in one part, found part {disk} of several")
    return _checked(_Directory(start, size, count), at)


def _large_directory(source: Source, at: int, locator: bytes, small: tuple[int, int, int]) -> _Directory:
    """Read the end record for large archives, with which the small one must agree where it says anything."""
    _, part, record, parts = _LOCATOR.unpack(locator)
    sig, length, _, _, disk, first, here, count, size, start = _END64.unpack(
        source.exact(record, _END64.size, "an end record for large archives")
    )
    if sig != b"PK\x06\x06" or record + 12 + length != at or length < _END64.size - 12:
        raise Refused(f"expected an end record for large archives from {record} to {at}, found another length or kind")
    if (part, disk, first) != (0, 0, 0) or parts > 1 or here != count:
        raise Refused(f"expected an archive in one part, found part {disk} of several")
    for value, found, full in zip((count, size, start), small, (_FULL16, _FULL32, _FULL32), strict=True):
        if found not in (value, full):
            raise Refused(f"expected end records that agree, found {value} and {found}")
    return _checked(_Directory(start, size, count), record)


def _checked(directory: _Directory, end: int) -> _Directory:
    if directory.count > MAX_TENSORS or directory.size > MAX_HEADER:
        raise Refused(
            f"expected at most {MAX_TENSORS} members and {MAX_HEADER} bytes of directory, "
            f"found {directory.count} and {directory.size}"
        )
    if directory.start + directory.size != end:
        raise Refused(f"expected a directory that ends at {end}, found {directory.start} and {directory.size} bytes")
    return directory


def _listed(source: Source, directory: _Directory) -> Iterator[_Listed]:
    """Read the central directory, which must hold exactly its count of members."""
    data = source.exact(directory.start, directory.size, "a central directory")
    names: set[bytes] = set()
    at = 0
    for number in range(directory.count):
        if at + _CENTRAL.size > len(data):
            raise Refused(f"expected {directory.count} members in the directory, found {number}")
        fields = _CENTRAL.unpack_from(data, at)
        sig, flags, method, crc = fields[0], fields[3], fields[4], fields[7]
        name_at = at + _CENTRAL.size
        extra_at = name_at + fields[10]
        comment_at = extra_at + fields[11]
        at = comment_at + fields[12]
        name = data[name_at:extra_at]
        if sig != b"PK\x01\x02" or at > len(data):
            raise Refused(f"expected member {number} of the directory, found {sig!r}")
        if name in names:
            raise Refused(f"expected members of different names, found {_show(name)} twice")
        if flags & _HIDDEN or fields[2] & 0xFF > _VERSION:
            raise Refused(f"expected members that are not encrypted, found {_show(name)} encrypted or in a newer way")
        names.add(name)
        wide = _widened((fields[9], fields[8], fields[16]), fields[13], data[extra_at:comment_at], name)
        yield _Listed(name, flags, method, crc, wide[1], wide[0], wide[2])
    if at != len(data):
        raise Refused(f"expected a directory of {at} bytes, found {len(data)}")


def _widened(values: tuple[int, int, int], disk: int, extra: bytes, name: bytes) -> tuple[int, int, int]:
    """Replace full 32-bit fields (size, packed size, header) by those of the zip64 extra field, in that order."""
    wide = _wide_field(extra, name) if _FULL32 in values or disk == _FULL16 else b""
    at = 0
    result = list(values)
    for index, value in enumerate(values):
        if value == _FULL32 and at + 8 <= len(wide):
            result[index] = int.from_bytes(wide[at : at + 8], "little")
            at += 8
        elif value == _FULL32 and wide:
            raise Refused(f"expected a 64-bit field for each full one of {_show(name)}, found {len(wide)} bytes")
    if disk and (disk != _FULL16 or wide[at : at + 4] != b"\0\0\0\0"):
        raise Refused(f"expected {_show(name)} in the same part of the archive, found it in part {disk}")
    return result[0], result[1], result[2]


def _wide_field(extra: bytes, name: bytes) -> bytes:
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        if at + 4 + size > len(extra):
            raise Refused(f"expected extra fields of {_show(name)} in {len(extra)} bytes, found one of {size} at {at}")
        if kind == 1:
            return extra[at + 4 : at + 4 + size]
        at += 4 + size
    return b""


def _located(window: _Window, entry: _Listed) -> Member:
    """Read a local header and hold it against the directory."""
    fixed = _LOCAL.unpack(window.read(entry.header, _LOCAL.size, "a local header"))
    sig, _, flags, method, _, _, crc, packed, size, name_size, extra_size = fixed
    head = window.read(entry.header + _LOCAL.size, name_size + extra_size, "a member's name")
    if sig != b"PK\x03\x04" or head[:name_size] != entry.name or method != entry.method:
        raise Refused(f"expected the header of {_show(entry.name)} at {entry.header}, found another")
    if (flags ^ entry.flags) & (_HIDDEN | _DESCRIPTOR):
        raise Refused(f"expected the flags of {_show(entry.name)} to agree, found {flags:#x} and {entry.flags:#x}")
    if _FULL32 in (packed, size):
        size, packed, _ = _widened((size, packed, 0), 0, head[name_size:], entry.name)
    for found, listed in ((crc, entry.crc), (packed, entry.packed), (size, entry.size)):
        if found != listed and not (flags & _DESCRIPTOR and found == 0):
            raise Refused(f"expected the sizes of {_show(entry.name)} to agree, found {found} and {listed}")
    if entry.method == STORED and entry.packed != entry.size:
        raise Refused(f"expected {_show(entry.name)} stored in {entry.size} bytes, found {entry.packed}")
    start = entry.header + _LOCAL.size + name_size + extra_size
    if start + entry.packed > window.source.size:
        raise Refused(f"expected {_show(entry.name)} of {entry.packed} bytes at {start}, found the end of the file")
    return Member(entry.name, entry.method, start, start + entry.packed)


def _end_of(window: _Window, entry: _Listed, member: Member) -> int:
    """Find where a member ends, its descriptor included; there are four spellings of those."""
    if not entry.flags & _DESCRIPTOR:
        return member.stop
    found = window.read(member.stop, min(24, window.source.size - member.stop), "a data descriptor")
    sizes = (entry.packed, entry.size)
    for form in ("<4sIII", "<4sIQQ") if max(sizes) <= _FULL32 else ("<4sIQQ",):
        full = struct.pack(form, _MARK, entry.crc, *sizes)
        for bare in (full, full[4:]):
            if found.startswith(bare):
                return member.stop + len(bare)
    raise Refused(f"expected a descriptor behind {_show(entry.name)} at {member.stop}, found {found[:4]!r}")


def _show(name: bytes) -> str:
    return f"{name.decode('utf-8', 'backslashreplace')!r:.80}"


class _Window:
    """Reads small pieces in ascending order, many at a time."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._start = 0
        self._data = b""

    def read(self, offset: int, size: int, what: str) -> bytes:
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            wanted = max(size, min(_WINDOW, self.source.size - offset)) if self.source.ahead else size
            self._data = self.source.exact(offset, wanted, what)
            self._start, at = offset, 0
        return self._data[at : at + size]
