"""A pack is read only when its header says exactly what the file holds."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from tests.cairn import folders

import cairn
from cairn.io.disk import Disk
from cairn.objects.reader import PackReader, read_header

FIRST, SECOND = b"some bytes", b"of a pack"
ONE, TWO = blake3(FIRST).hexdigest(), blake3(SECOND).hexdigest()


def document() -> dict[str, Any]:
    """Make the header of a sound pack of two blobs, the second a tree."""
    return {
        "__metadata__": {"cairn.pack": "1", "write_id": "0" * 32, "serial": "1", "trees": "1"},
        ONE: {"dtype": "U8", "shape": [10], "data_offsets": [0, 10]},
        TWO: {"dtype": "U8", "shape": [9], "data_offsets": [10, 19]},
    }


def place(folder: Path, head: bytes, data: bytes = FIRST + SECOND) -> Path:
    """Write a pack under the name that its head gives it."""
    path = folder / f"{blake3(head).hexdigest()}.safetensors"
    path.write_bytes(head + data)
    return path


def with_length(text: bytes) -> bytes:
    """Put the length in front of a header."""
    return struct.pack("<Q", len(text)) + text


def spelled(header: object) -> bytes:
    """Spell a header with its length."""
    return with_length(json.dumps(header).encode())


def read(path: Path) -> list[bytes]:
    """Read all blobs of a pack."""
    reader = PackReader(Disk(), path, path.name.partition(".")[0])
    return [bytes(reader.bytes_at(found.offset, found.size)) for found in reader.header.places.values()]


def test_a_sound_pack_is_read(tmp_path: Path) -> None:
    """Any spelling of the header will do, as long as the name is the hash of it."""
    path = place(tmp_path, spelled(document()))
    assert read(path) == [FIRST, SECOND]
    header = read_header(Disk(), path, None)
    assert header.trees == [TWO]
    assert header.write_id == "0" * 32


def entry(name: str, **changes: object) -> Callable[[dict[str, Any]], None]:
    """Return a change of one blob's entry."""
    return lambda header: header[name].update(changes)


def metadata(**changes: object) -> Callable[[dict[str, Any]], None]:
    """Return a change of the metadata."""
    return lambda header: header["__metadata__"].update(changes)


def moved(header: dict[str, Any]) -> None:
    """Put the second blob first."""
    header[ONE] = header.pop(ONE)


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a hole": entry(TWO, data_offsets=[11, 20]),
    "an overlap": entry(TWO, data_offsets=[9, 18]),
    "the other order": moved,
    "an end before the begin": entry(ONE, data_offsets=[10, 0]),
    "no bytes": entry(ONE, data_offsets=[0, 0], shape=[0]),
    "less than the file": entry(TWO, data_offsets=[10, 18], shape=[8]),
    "more than the file": entry(TWO, data_offsets=[10, 20], shape=[10]),
    "a huge offset": entry(TWO, data_offsets=[10, 1 << 62], shape=[(1 << 62) - 10]),
    "a shape of another size": entry(ONE, shape=[9]),
    "two dimensions": entry(ONE, shape=[2, 5]),
    "another type": entry(ONE, dtype="F32"),
    "an offset that is no int": entry(ONE, data_offsets=[0, 10.0]),
    "an offset that is a bool": entry(ONE, data_offsets=[False, 10]),
    "an offset that is text": entry(ONE, data_offsets=["0", "10"]),
    "a member too many": entry(ONE, note="x"),
    "no entry": lambda header: header.update({ONE: None}),
    "a name that is no id": lambda header: header.update({"w": header.pop(TWO)}),
    "an upper-case id": lambda header: header.update({TWO.upper(): header.pop(TWO)}),
    "no metadata": lambda header: header.pop("__metadata__"),
    "metadata that is a list": lambda header: header.update(__metadata__=[]),
    "another version": metadata(**{"cairn.pack": "2"}),
    "no write id": lambda header: header["__metadata__"].pop("write_id"),
    "a short write id": metadata(write_id="00"),
    "more trees than blobs": metadata(trees="3"),
    "trees that are a number": metadata(trees=1),
    "trees below none": metadata(trees="-1"),
    "trees in other digits": metadata(trees="١"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_header_that_does_not_fit_its_file_is_refused(name: str, tmp_path: Path) -> None:
    """Names, offsets, sizes and counts are proven before anything is read, even when the hash is right."""
    header = document()
    CHANGES[name](header)
    path = place(tmp_path, spelled(header))
    with pytest.raises(cairn.Damaged, match=path.name):
        read(path)


HEADS = {
    "empty": b"",
    "no length": b"\1\0\0",
    "no header": struct.pack("<Q", 0),
    "longer than the file": struct.pack("<Q", 10_000) + b"{}",
    "longer than can be": struct.pack("<Q", (1 << 64) - 1) + b"{}",
    "no JSON": with_length(b"{]"),
    "not UTF-8": with_length(b'{"\xff":1}'),
    "a list": with_length(b"[1, 2]"),
    "nested without end": with_length(b"[" * 100_000),
    "a duplicate key": with_length(json.dumps(document()).replace(TWO, ONE).encode()),
    "a huge number": with_length(json.dumps(document()).replace("[0, 10]", "[0, 1" + "0" * 5000 + "]").encode()),
}


@pytest.mark.parametrize("name", HEADS)
def test_what_is_no_header_is_refused(name: str, tmp_path: Path) -> None:
    """Garbage of any kind ends in Damaged, naming the file, without reading far or allocating much."""
    path = place(tmp_path, HEADS[name])
    with pytest.raises(cairn.Damaged, match=path.name):
        read(path)


def test_a_pack_under_another_name_is_refused(tmp_path: Path) -> None:
    """The name must be the hash of the head."""
    path = place(tmp_path, spelled(document()))
    other = tmp_path / f"{'0' * 64}.safetensors"
    path.rename(other)
    with pytest.raises(cairn.Damaged, match="expected a header that hashes to its name"):
        read(other)


def test_a_foreign_pack_does_no_harm(store: cairn.Store) -> None:
    """Files in `packs/` that are no packs of this store are told by verify and change no answer and no commit."""
    store.run().commit({"model": np.arange(10.0)}, step=1)
    (pack,) = folders.packs(store.path)
    folder = store.path / "packs" / "00"
    folder.mkdir()
    shutil.copy(pack, folder / f"00{'f' * 62}.safetensors")
    (folder / f"00{'a' * 62}.safetensors").write_bytes(b"")
    (folder / f"00{'b' * 62}.safetensors").mkdir()
    shutil.copy(pack, folder / pack.name)
    with cairn.open(store.path) as again:
        again.reindex()
        again.run().commit({"model": np.arange(10.0) + 1}, step=2)
        assert again.load("step:1")["model"].tolist() == list(range(10))
        report = again.verify()
        assert {finding.file.rpartition("/")[2][:3] for finding in report.findings} == {
            "00f",
            "00a",
            "00b",
            pack.name[:3],
        }
        again.gc()
    assert len(os.listdir(folder)) == 4


def test_a_pack_with_other_blobs_of_ours_is_used(store: cairn.Store, tmp_path: Path) -> None:
    """A sound pack that somebody put there serves its blobs: names say nothing, hashes say all."""
    with cairn.init(tmp_path / "other") as other:
        other.run().commit({"model": np.arange(100.0)}, step=1)
    (pack,) = folders.packs(tmp_path / "other")
    target = store.path / "packs" / pack.parent.name / pack.name
    target.parent.mkdir()
    shutil.copy(pack, target)
    store.run().commit({"model": np.arange(100.0)}, step=7)
    last = store.run()
    assert len(folders.packs(store.path)) == 1
    assert last.load()["model"].tolist() == list(range(100))


def test_no_pack_id_comes_back(store: cairn.Store) -> None:
    """The same blobs written again, after gc took them, get another pack: its write id is in the header."""
    run = store.run()
    run.commit({"model": np.arange(10.0)}, step=1)
    (first,) = folders.packs(store.path)
    store.delete_run("main")
    store.gc()
    assert folders.packs(store.path) == []
    store.run("main").commit({"model": np.arange(10.0)}, step=1)
    (second,) = folders.packs(store.path)
    assert second.name != first.name
    assert list(folders.head(second)[1])[:1] == [blake3(np.arange(10.0).tobytes()).hexdigest()]
