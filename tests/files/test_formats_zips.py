"""Zip archives are cut at large members and recognised by names; one that two readers could read differently is not."""

from __future__ import annotations

import io
import random
import struct
import time
import zipfile

import pytest
from tests.fuzz.samples import Item, cut, names, pieces, reader, zip_file

from cairn.files.formats import cut_file

NOISE = random.Random(0).randbytes(70_000)


def refused(data: bytes) -> str:
    """Cuts an archive that must stay opaque, and returns the reason."""
    found = cut(data)
    assert found.format == "opaque"
    assert found.reason is not None
    assert names(data) == []
    return found.reason


def test_large_members_are_slices() -> None:
    """Members over 64 KiB are slices, stored or deflated as they are; everything else is kept in order between them."""
    data = zip_file(
        [
            Item("big", NOISE),
            Item("small", b"x" * 65_536),
            Item("deflated", NOISE[:69_000], deflated=True),
            Item("dir/"),
        ]
    )
    assert cut(data).format == "zip"
    first, second = pieces(data)
    assert first == NOISE
    assert second in data
    assert len(second) > 65_536


def test_archives_of_the_standard_library_are_understood() -> None:
    """What zipfile writes is cut, whether it could seek or had to write data descriptors."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    for target in (io.BytesIO(), Pipe()):
        with zipfile.ZipFile(target, "w") as archive:
            archive.comment = b"a comment"
            archive.writestr("a", NOISE)
            archive.writestr("b", b"", zipfile.ZIP_DEFLATED)
            archive.writestr("c", bytes(100_000), zipfile.ZIP_DEFLATED)
            with archive.open("wide", "w", force_zip64=True) as member:
                member.write(NOISE[::-1])
        assert pieces(target.getvalue()) == [NOISE, NOISE[::-1]]


@pytest.mark.parametrize("form", ["<4sIII", "<III", "<4sIQQ", "<IQQ"])
def test_every_spelling_of_a_descriptor_is_known(form: str) -> None:
    """Sizes behind the data are checked in each of the four spellings that writers use."""
    data = zip_file([Item("a", NOISE, descriptor=form), Item("b", b"", descriptor=form)])
    assert pieces(data) == [NOISE]
    damaged = data.replace(struct.pack("<I", 70_000), struct.pack("<I", 70_001), 1)
    assert "descriptor" in refused(damaged)


def test_large_end_records_are_read() -> None:
    """Records of zip64 are used where the small ones are full, and must agree where they are not."""
    items = [Item("a", NOISE, wide=True), Item("b", b"x")]
    data = zip_file(items, wide=True, comment=b"PK\x05\x06 is only text here")
    assert pieces(data) == [NOISE]
    end = data.rindex(b"PK\x05\x06\0\0")
    assert "agree" in refused(data[: end + 10] + struct.pack("<H", 1) + data[end + 12 :])
    record = data.rindex(b"PK\x06\x06")
    assert "end record for large archives" in refused(data[: record + 4] + b"\x2d" + data[record + 5 :])
    assert "in one part" in refused(data[: record + 16] + b"\x01" + data[record + 17 :])


def test_wide_directory_entries_are_read() -> None:
    """A full 32-bit field of the directory stands for the 64-bit one in its extra field."""
    data = bytearray(zip_file([Item("a", NOISE, extra=struct.pack("<HHQQQ", 1, 24, 70_000, 70_000, 0))]))
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 20 : entry + 28] = b"\xff" * 8
    data[entry + 42 : entry + 46] = b"\xff" * 4
    assert pieces(bytes(data)) == [NOISE]
    data[entry + 46 + 1 + 2] = 16
    assert "64-bit field" in refused(bytes(data))
    data[entry + 46 + 1 + 2] = 25
    assert "extra field" in refused(bytes(data))


def test_gaps_between_members_are_plain_bytes() -> None:
    """Alignment and rubbish between members is kept like everything that is no slice."""
    data = zip_file([Item("a", b"1"), Item("b", NOISE)], gap=b"PK\x03\x04 not really")
    assert pieces(data) == [NOISE]


def test_names_are_only_names() -> None:
    """Members named `../x` or like nothing at all are cut like any other: nothing is ever extracted."""
    data = zip_file([Item("../x", NOISE), Item("/etc/passwd", NOISE[::-1]), Item("", b""), Item("\0", b"")])
    assert pieces(data) == [NOISE, NOISE[::-1]]


def test_bombs_are_harmless() -> None:
    """A member that claims to unpack to terabytes is never unpacked."""
    bomb = zip_file([Item("bomb", bytes(1_000_000), deflated=True)])
    assert cut(bomb).format == "zip"


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([Item("a", NOISE, flags=1)], "encrypted"),
        ([Item("a", NOISE, flags=0x2000)], "encrypted"),
        ([Item("a", NOISE), Item("a", NOISE)], "twice"),
        ([Item("a", NOISE, local_name="b")], "expected the header of"),
        ([Item("a", NOISE, local_method=8)], "expected the header of"),
        ([Item("a", NOISE, local_crc=1)], "to agree"),
        ([Item("a", b"x", size=1 << 31)], "end of the file"),
        ([Item("a", b"x", size=20), Item("b", b"y")], "share no byte"),
        ([Item("a", b"x", size=60)], "before the directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_doubtful_members_keep_the_archive_whole(items: list[Item], reason: str) -> None:
    """A member that is hidden, claimed twice or described in two ways makes the archive opaque."""
    assert reason in refused(zip_file(items))


def test_overlapping_members_keep_the_archive_whole() -> None:
    """Two entries of the directory that share one member's bytes are no two members."""
    data = bytearray(zip_file([Item("a", NOISE), Item("b", NOISE)]))
    second = data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = bytes(4)
    assert "share no byte" in refused(bytes(data))


def test_lying_directories_keep_the_archive_whole() -> None:
    """Counts, offsets and lengths of the directory must be exact."""
    data = zip_file([Item("a", b"1"), Item("b", b"2")])
    end = len(data) - 22

    def lie(at: int, value: bytes) -> bytes:
        return data[: end + at] + value + data[end + at + len(value) :]

    assert "in one part" in refused(lie(4, b"\x01"))
    assert "members in the directory" in refused(lie(8, b"\x03\0\x03"))
    assert "a directory of" in refused(lie(8, b"\x01\0\x01"))
    assert "a directory that ends" in refused(lie(12, b"\x7f"))
    assert "a directory that ends" in refused(lie(16, b"\xff\xff\xff\x7f"))
    assert "an end record" in refused(lie(20, b"\x01"))
    entry = data.index(b"PK\x01\x02")
    assert "member 0" in refused(data[:entry] + b"PK\x01\x03" + data[entry + 4 :])
    assert "same part" in refused(data[: entry + 34] + b"\x01" + data[entry + 35 :])


def test_other_starts_are_no_archives() -> None:
    """An archive behind other bytes is plain bytes, without a reason; an empty archive is an archive."""
    assert cut(b"#!/bin/sh\n" + zip_file([Item("a", NOISE)])).reason is None
    assert cut(zip_file([])).format == "zip"


def test_truncated_archives_stay_opaque() -> None:
    """TRUNC-01: an archive cut short at any length is opaque, and says that its end is missing."""
    data = zip_file([Item("a", b"1" * 50), Item("b", b"2" * 50, descriptor="<4sIII")], comment=b"end")
    for size in range(len(data)):
        found = cut(data[:size])
        assert found.format == "opaque"
        assert (found.reason is not None) == (size >= 4)


def test_many_members_are_fast() -> None:
    """MANY-01: an archive of 10 000 members is listed in a fraction of a second, in few reads."""
    data = zip_file([Item(f"model/data/{i}", b"abcd" * 4, descriptor="<4sIII") for i in range(10_000)])
    reads = 0

    def read_at(offset: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return reader(data)(offset, size)

    started = time.process_time()
    found = cut_file(read_at, len(data))
    assert time.process_time() - started < 0.2 * 3, "expected 0.1 s"
    assert found.reason is None
    assert reads < 1000


def test_the_number_of_members_is_bounded() -> None:
    """A count that no archive of tensors has is refused before the directory is read."""
    data = zip_file([Item("a", b"1")], wide=True)
    record = data.rindex(b"PK\x06\x06")
    count = struct.pack("<QQ", 1 << 40, 1 << 40)
    assert "at most" in refused(data[: record + 24] + count + data[record + 40 :])
