"""ls, cat and show on committed files, and on the tensors inside them."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save
from tests.files import trees

import cairn as library
from cairn.state.arrays import Array

Call = Callable[..., tuple[int, str, str]]

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)


def gguf(name: str, array: Array, kind: int) -> bytes:
    """A file of llama.cpp with one tensor."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", array.ndim)
    head += struct.pack(f"<{array.ndim}Q", *array.shape[::-1]) + struct.pack("<IQ", kind, 0)
    return head.ljust(-(-len(head) // 32) * 32, b"\0") + array.tobytes()


def torch_archive() -> bytes:
    """An archive as torch.save writes it: {"w": a transposed tensor, "sub": {"b": a part of the same storage}}."""
    storage = b"ctorch\nFloatStorage\n"

    def tensor(offset: int, shape: bytes, strides: bytes) -> bytes:
        key = b"(X\x07\x00\x00\x00storage" + storage + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x0ctQ"
        return b"ctorch._utils\n_rebuild_tensor_v2\n(" + key + b"K" + bytes([offset]) + shape + strides + b"\x89}tR"

    data = b"\x80\x02}(X\x01\x00\x00\x00w" + tensor(0, b"K\x04K\x03\x86", b"K\x01K\x04\x86")
    data += b"X\x03\x00\x00\x00sub}(X\x01\x00\x00\x00b" + tensor(4, b"K\x04\x85", b"K\x01\x85") + b"uu."
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("m/data.pkl", data)
        archive.writestr("m/data/0", WEIGHTS.tobytes())
    return buffer.getvalue()


FILES = {
    "model.safetensors": save({"lm_head.weight": WEIGHTS, "odd/name": WEIGHTS[0]}, {"format": "pt"}),
    "o.npz": trees.npz(w=WEIGHTS, f=np.asfortranarray(WEIGHTS), big=WEIGHTS.astype(">f4")),
    "x.npy": trees.npy(WEIGHTS.T),
    "m.gguf": gguf("blk.0", WEIGHTS, 0),
    "q.gguf": gguf("blk.q", np.zeros((1, 32 * 34 // 34), np.uint8).repeat(1, 0), 24),
    "pytorch_model.bin": torch_archive(),
    "half.safetensors": save({"h": WEIGHTS.astype(ml_dtypes.bfloat16)}),
    "config.json": b'{"a": "\xc3\xa9\x1b"}\n',
    "raw.bin": bytes(range(256)) * 4,
    "sub/long.txt": b"words\n" * 100_000,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a folder of files and a live component."""
    place = tmp_path_factory.mktemp("inside")
    for name, data in FILES.items():
        (place / "ck" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "ck" / name).write_bytes(data)
    (place / "ck" / "link").symlink_to("config.json")
    (place / "ck" / "empty").mkdir()
    os.symlink(b"\xff", os.fsencode(place / "ck" / "raw"))
    with library.init(place / "store") as store:
        store.run().commit({"model": {"w": WEIGHTS}, "files": library.folder(place / "ck")}, step=1)
    return place / "store"


@pytest.fixture
def call(made: Path, cairn: Call) -> Call:
    """Calls the command line on that store."""
    return lambda *args: cairn("--store", made, *args)


def lines(out: str) -> list[list[str]]:
    """The words of each line below the head."""
    return [line.split() for line in out.splitlines()[1:]]


def test_ls_counts_and_lists_files(call: Call) -> None:
    """Components with their files and bytes; files with their sizes, links with what they lead to."""
    total = sum(map(len, FILES.values()))
    assert lines(call("ls", "latest")[1]) == [["model", "1", "48", "B"], ["files", "10", f"{total / 1024:.1f}", "KiB"]]
    out = call("ls", "latest", "files")[1]
    listed = {words[0]: words[1:] for words in lines(out)}
    assert listed["files/config.json"] == ["file", "13", "B"]
    assert listed["files/link"] == ["link", "to", "config.json"]
    assert listed["files/raw"] == ["link", "to", "\\udcff"]
    assert listed["files/empty"] == ["folder", "{}"]
    assert call("ls", "latest", "sub")[1].splitlines()[1].startswith("files/sub/long.txt  file")


@pytest.mark.parametrize("before", ["", "files/"])
def test_ls_of_a_file_lists_the_tensors_inside(call: Call, before: str) -> None:
    """Type, shape and bytes of each; a path may lead to one of them."""
    listed = lines(call("ls", "latest", f"{before}model.safetensors")[1])
    assert [words[0] for words in listed] == [
        "files/model.safetensors",
        "files/model.safetensors/lm_head.weight",
        "files/model.safetensors/odd/name",
    ]
    assert listed[1][1:] == ["F32", "3×4", "48", "B"]
    assert lines(call("ls", "latest", f"{before}model.safetensors/lm_head.weight")[1]) == listed[1:2]
    assert lines(call("ls", "latest", f"{before}pytorch_model.bin/sub")[1]) == [
        ["files/pytorch_model.bin/sub/b", "F32", "4", "16", "B"]
    ]
    assert call("ls", "latest", f"{before}model.safetensors/nothing")[0] == 4


TENSORS: list[tuple[str, Array]] = [
    ("model.safetensors/lm_head.weight", WEIGHTS),
    ("model.safetensors/odd/name", WEIGHTS[0]),
    ("files/o.npz/w", WEIGHTS),
    ("o.npz/f", WEIGHTS),
    ("o.npz/big", WEIGHTS),
    ("x.npy/", WEIGHTS.T),
    ("m.gguf/blk.0", WEIGHTS),
    ("pytorch_model.bin/w", WEIGHTS.T),
    ("pytorch_model.bin/sub/b", WEIGHTS[1]),
    ("model/w", WEIGHTS),
]


@pytest.mark.parametrize(("path", "expected"), TENSORS)
def test_cat_gives_a_tensor_of_a_file(call: Call, tmp_path: Path, path: str, expected: Array) -> None:
    """As .npy, whatever the format and the order of its elements."""
    assert call("cat", "latest", path, "-o", tmp_path / "t.npy") == (0, "", "")
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), expected)


def test_cat_gives_types_that_numpy_lacks(call: Call, tmp_path: Path) -> None:
    """BF16 as its bytes."""
    call("cat", "latest", "half.safetensors/h", "-o", tmp_path / "h.npy")
    found = np.load(tmp_path / "h.npy").view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found, WEIGHTS.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("name", FILES)
def test_cat_gives_the_bytes_of_a_file(call: Call, tmp_path: Path, name: str) -> None:
    """Byte for byte."""
    assert call("cat", "latest", name, "-o", tmp_path / "out") == (0, "", "")
    assert (tmp_path / "out").read_bytes() == FILES[name]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("model.safetensors/nothing", "has no tensor 'nothing': expected one of lm_head.weight, odd/name"),
        ("config.json/a", "has no tensor 'a': it has no tensors"),
        ("sub", "is a folder"),
        ("files", "is a folder"),
        ("link", "is a link to 'config.json'"),
        ("nothing", "found no such value"),
    ],
)
def test_cat_says_what_there_is_instead(call: Call, path: str, words: str) -> None:
    """Status 4, with the names."""
    status, out, err = call("cat", "latest", path)
    assert (status, out) == (4, "")
    assert words in err


def test_cat_shows_text_and_describes_the_rest(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal nothing in a file can move the cursor."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert call("cat", "latest", "config.json")[1] == '{"a": "é\\x1b"}\n'
    assert "bytes       1.0 KiB" in call("cat", "latest", "raw.bin")[1]
    assert "3×4" in call("cat", "latest", "model.safetensors/lm_head.weight")[1]


def test_a_tensor_without_a_type_in_numpy_is_refused(tmp_path: Path, cairn: Call) -> None:
    """Blocks of quantised numbers are listed, but only the file can be had."""
    (tmp_path / "q.gguf").write_bytes(gguf("q", np.zeros((1, 32), np.uint8), 8)[:-32] + bytes(34))
    with library.init(tmp_path / "store") as store:
        store.run().commit({"files": library.folder(tmp_path / "q.gguf")})
    assert lines(cairn("--store", tmp_path / "store", "ls", "latest", "q.gguf")[1])[1][1:] == [
        "Q8_0",
        "1×32",
        "34",
        "B",
    ]
    status, _, err = cairn("--store", tmp_path / "store", "cat", "latest", "q.gguf/q")
    assert status == 1
    assert "found Q8_0 of shape (1, 32)" in err


def test_show_counts_files(call: Call) -> None:
    """What is in a commit stands beside where it came from."""
    out = call("show", "latest")[1]
    assert "content   model: 1 tensor, 48 B\n          files: 10 files, " in out


def test_du_weighs_files(tmp_path: Path, cairn: Call) -> None:
    """A commit that differs in one small file owns little."""
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "w").write_bytes(os.urandom(1 << 20))
    with library.init(tmp_path / "store") as store:
        for step in (1, 2):
            (tmp_path / "ck" / "n").write_text(str(step))
            store.run().commit({"files": library.folder(tmp_path / "ck")}, step=step)
        rows = {row.commit.step: row for row in store.du().commits}
    assert rows[1].raw > 1 << 20
    assert rows[2].own < 2000
    assert rows[2].shared >= 1 << 20


def test_a_path_into_files_does_not_hide_a_component(tmp_path: Path, cairn: Call) -> None:
    """A component wins over a file of its name; the whole path always works."""
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / "model").write_text("a file")
    with library.init(tmp_path / "store") as store:
        store.run().commit({"model": 5, "files": library.folder(tmp_path / "ck")})
        assert store.cat("latest", "model") == 5
        assert store.cat("latest", "files/model").read() == b"a file"
