"""diff: files, folders and links, and the tensors inside files of known formats."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import cairn
from cairn.errors import NotFound
from cairn.files.formats import tensors
from cairn.ids import BlobRef
from cairn.store.core import Core
from cairn.store.diff import Diff, Numbers

W = np.arange(60_000, dtype=np.float32).reshape(200, 300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to commit."""
    path = tmp_path / "checkpoint"
    (path / "empty").mkdir(parents=True)
    (path / "config.json").write_text('{"a": 1}')
    (path / "gone.txt").write_text("x" * 100)
    (path / "run.sh").write_text("#!/bin/sh")
    (path / "latest").symlink_to("config.json")
    return path


def changed(store: cairn.Store, folder: Path, change: Callable[[], object], **options: Any) -> Diff:
    """Commit a folder before and after it was changed, and compare."""
    run = store.run()
    before = run.commit({"files": cairn.folder(folder)})
    change()
    return store.diff(before.id, run.commit({"files": cairn.folder(folder)}).id, **options)


def kinds(found: Diff) -> dict[str, tuple[str, ...]]:
    """The changes in short."""
    return {change.path: change.kinds for change in found.changes}


def test_files_folders_and_links(store: cairn.Store, folder: Path) -> None:
    """Content, modes, targets, and one thing in the place of another; what stayed is not mentioned."""

    def change() -> None:
        (folder / "config.json").write_text('{"a": 22}')
        (folder / "gone.txt").unlink()
        (folder / "new.txt").write_text("new")
        (folder / "run.sh").chmod(0o755)
        (folder / "empty").chmod(0o700)
        (folder / "latest").unlink()
        (folder / "latest").symlink_to("new.txt")

    (folder / "run.sh").chmod(0o644)
    (folder / "empty").chmod(0o755)
    found = changed(store, folder, change)
    assert kinds(found) == {
        "files/config.json": ("changed",),
        "files/empty": ("mode",),
        "files/gone.txt": ("removed",),
        "files/latest": ("changed",),
        "files/new.txt": ("added",),
        "files/run.sh": ("mode",),
    }
    config, empty, _, latest, _, script = found.changes
    assert config.before is not None
    assert config.after is not None
    assert (config.before.bytes, config.after.bytes) == (8, 9)
    assert config.before.hash != config.after.hash
    assert [side and side.mode for side in (empty.before, empty.after)] == [0o755, 0o700]
    assert [side and side.value for side in (latest.before, latest.after)] == ["config.json", "new.txt"]
    assert [side and side.mode for side in (script.before, script.after)] == [0o644, 0o755]
    assert kinds(store.diff(found.before.id, found.after.id, "run.sh")) == {"files/run.sh": ("mode",)}


def test_a_file_becomes_a_folder_or_a_link(store: cairn.Store, folder: Path) -> None:
    """What was there is replaced, and what is inside the new folder is added."""

    def change() -> None:
        (folder / "gone.txt").unlink()
        (folder / "gone.txt").mkdir()
        (folder / "gone.txt" / "inner").write_text("")
        (folder / "run.sh").unlink()
        (folder / "run.sh").symlink_to("latest")

    assert kinds(changed(store, folder, change)) == {
        "files/gone.txt": ("replaced",),
        "files/gone.txt/inner": ("added",),
        "files/run.sh": ("replaced",),
    }


def test_names_that_are_no_text(store: cairn.Store, folder: Path) -> None:
    """Names are bytes as the file system has them."""

    def change() -> None:
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_text("x")

    assert kinds(changed(store, folder, change)) == {r"files/b'\xff'": ("added",)}


def test_tensors_inside_safetensors_by_name(store: cairn.Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added, removed, changed, reshaped and retyped ones; those in the same blobs are equal without being read."""
    path = folder / "model.safetensors"
    other = W.copy()
    other[0, 0] += 2
    before = {"same": W, "w.10": W, "w.9": W + 1, "gone": W[:1], "flat": W[:2], "cast": W[-4:]}
    after = {"same": W, "w.10": other, "w.9": W * 2, "new": W[2:3], "flat": W[:2].reshape(-1), "cast": W[-4:] > 0}
    save_file(before, path)
    run = store.run()
    one = run.commit({"files": cairn.folder(folder)})
    save_file(after, path)
    two = run.commit({"files": cairn.folder(folder)})
    read: list[BlobRef] = []
    data = Core.data

    def read_data(core: Core, refs: list[BlobRef]) -> memoryview:
        read.extend(refs)
        return data(core, refs)

    monkeypatch.setattr(Core, "data", read_data)
    found = store.diff(one.id, two.id)
    assert kinds(found) == {
        "files/model.safetensors": ("changed",),
        "files/model.safetensors/cast": ("retyped", "changed"),
        "files/model.safetensors/flat": ("reshaped",),
        "files/model.safetensors/gone": ("removed",),
        "files/model.safetensors/new": ("added",),
        "files/model.safetensors/w.9": ("changed",),
        "files/model.safetensors/w.10": ("changed",),
    }
    assert len([ref for ref in read if ref.size == W.nbytes]) == 4
    last = found.changes[-1]
    assert last.numbers == Numbers(60_000, 1, 2.0, 2 / float(np.linalg.norm(W.astype("f8").ravel())), 0)
    assert (last.file, last.kind, last.component) == ("files/model.safetensors", "tensor", "files")
    assert found.components[0].equal_tensors == 1
    assert kinds(store.diff(one.id, two.id, values=False)) == {"files/model.safetensors": ("changed",)}


def test_a_path_leads_to_a_tensor_in_a_file(store: cairn.Store, folder: Path) -> None:
    """Whether or not the file's other tensors changed; a name that neither file has is not found."""
    path = folder / "model.safetensors"
    save_file({"a.b": W, "c": W, "d/e": W}, path)
    found = changed(store, folder, lambda: save_file({"a.b": W, "c": W * 2, "d/e": W + 1}, path))
    ids = found.before.id, found.after.id
    assert kinds(store.diff(*ids, "model.safetensors/c")) == {"files/model.safetensors/c": ("changed",)}
    assert kinds(store.diff(*ids, "files/model.safetensors/d/e")) == {"files/model.safetensors/d/e": ("changed",)}
    assert kinds(store.diff(*ids, "model.safetensors/c", values=False)) == {"files/model.safetensors/c": ("changed",)}
    assert store.diff(*ids, "model.safetensors/a.b").same
    assert store.diff(ids[0], ids[0], "model.safetensors/c").same
    for typo in ("model.safetensors/typo", "config.json/a", "latest/c"):
        with pytest.raises(NotFound, match="found nothing behind"):
            store.diff(*ids, typo)


def test_the_header_alone_is_no_change_of_a_tensor(store: cairn.Store, folder: Path) -> None:
    """Other metadata: the file changed, its tensors did not."""
    path = folder / "model.safetensors"
    save_file({"w": W}, path, {"format": "pt"})
    found = changed(store, folder, lambda: save_file({"w": W}, path, {"format": "np", "more": "x" * 100}))
    assert kinds(found) == {"files/model.safetensors": ("changed",)}
    assert found.components[0].equal_tensors == 1


def test_arrays_of_numpy(store: cairn.Store, folder: Path) -> None:
    """An .npy is one array under its file's own path; Fortran's order and byte order are no change of values."""
    np.save(folder / "one.npy", W)
    np.savez(folder / "some.npz", same=W, f=np.asfortranarray(W), big=W.astype(">f4"), w=W[:3])

    def change() -> None:
        np.save(folder / "one.npy", W + 1)
        np.savez(folder / "some.npz", same=W, f=W + 0, big=W, w=np.asfortranarray(W[:3] * 3))

    found = changed(store, folder, change)
    assert [(change.path, change.kinds, change.kind) for change in found.changes] == [
        ("files/one.npy", ("changed",), "file"),
        ("files/one.npy", ("changed",), "tensor"),
        ("files/some.npz", ("changed",), "file"),
        ("files/some.npz/big", ("byteswapped",), "tensor"),
        ("files/some.npz/w", ("changed",), "tensor"),
    ]
    numbers = found.changes[-1].numbers
    assert numbers is not None
    assert (numbers.changed, numbers.max_abs) == (899, 2.0 * 899)
    assert numbers.relative_l2 == pytest.approx(2.0)
    assert found.components[0].equal_tensors == 2


def test_broken_and_unknown_files_are_compared_as_bytes(store: cairn.Store, folder: Path) -> None:
    """What looks like a format and is none, and what was one and is none now."""
    (folder / "lies.safetensors").write_bytes(struct.pack("<Q", 9) + b"{" + b"x" * 20)
    save_file({"w": W}, folder / "cut.safetensors")

    def change() -> None:
        (folder / "lies.safetensors").write_bytes(struct.pack("<Q", 9) + b"{" + b"y" * 20)
        whole = (folder / "cut.safetensors").read_bytes()
        (folder / "cut.safetensors").write_bytes(whole[:-1])

    assert kinds(changed(store, folder, change)) == {
        "files/cut.safetensors": ("changed",),
        "files/cut.safetensors/w": ("removed",),
        "files/lies.safetensors": ("changed",),
    }


def test_of_an_archive_only_what_is_around_its_tensors_is_read(tmp_path: Path) -> None:
    """Without reading ahead the names are the same, and no byte of an array is touched."""
    np.savez(tmp_path / "a.npz", a=W, b=W + 1, c=np.asfortranarray(W))
    data = (tmp_path / "a.npz").read_bytes()
    ranges: list[tuple[int, int]] = []

    def read_at(offset: int, size: int) -> bytes:
        ranges.append((offset, offset + size))
        return data[offset : offset + size]

    expected = tensors(lambda offset, size: data[offset : offset + size], len(data))
    found = tensors(read_at, len(data), ahead=False)
    assert found == expected
    assert len(found) == 3
    assert not [(low, info) for low, high in ranges for info in found if low < info.stop and info.start < high]
    commented = data[:-2] + b"\x02\x00hi"
    assert tensors(lambda offset, size: commented[offset : offset + size], len(commented), ahead=False) == expected


def test_the_same_bytes_in_other_blobs_are_named(
    store: cairn.Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version may cut a file at other places: its commit is another, the file is not."""
    from cairn.files import source
    from cairn.files.formats import Cut

    save_file({"w": W}, folder / "model.safetensors")
    found = changed(
        store, folder, lambda: monkeypatch.setattr(source, "cut_file", lambda read_at, size: Cut("opaque", (), None))
    )
    assert set(kinds(found).values()) == {("recut",)}
    assert "files/model.safetensors" in kinds(found)
