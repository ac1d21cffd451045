"""What went wrong for others with files, names, links and modes: the rows of the list of cases, by their ids."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file
from tests.files import trees

import cairn
from cairn.io.disk import Disk
from cairn.io.handles import OpenFile
from cairn.state.arrays import Array


def there_and_back(store: cairn.Store, place: Path, step: int | None = None) -> Path:
    """Commit a folder, check it out, and compare the two."""
    before = trees.told(place)
    store.run().commit({"files": cairn.folder(place)}, step=step)
    out = place.with_name(f"{place.name}.{step}.out")
    store.checkout("latest", out)
    assert trees.told(out) == before == trees.told(place)
    return out


def folder_of(place: Path, files: dict[str, bytes]) -> Path:
    """A folder with files."""
    for name, data in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return place


def test_sym_01_links_are_kept_as_links(store: cairn.Store, tmp_path: Path) -> None:
    """SYM-01: inside, outside, absolute, in a circle, dangling, to a folder: the same text, and nothing is followed."""
    (tmp_path / "outside.bin").write_bytes(b"not mine" * 10_000)
    place = folder_of(tmp_path / "ck", {"a.safetensors": save({"w": np.zeros(3)}), "sub/x": b"x"})
    texts = {
        "last.safetensors": "a.safetensors",
        "up": "../outside.bin",
        "abs": "/outside/x/blob",
        "loop": "loop",
        "gone": "missing",
        "dirlink": "sub/",
        "self": ".",
    }
    for name, text in texts.items():
        (place / name).symlink_to(text)
    os.symlink(b"\xff\xfe", os.fsencode(place / "raw"))
    out = there_and_back(store, place)
    assert {name: os.readlink(out / name) for name in texts} == texts
    assert store.du().stored < 10_000


def test_edir_01_empty_folders_come_and_go(store: cairn.Store, tmp_path: Path) -> None:
    """EDIR-01: they are there for the step that had them, gone for the one that had not, and come back."""
    one = folder_of(tmp_path / "one", {"x.json": b"{}"})
    (one / "logs").mkdir()
    (one / "a" / "b" / "c").mkdir(parents=True)
    two = folder_of(tmp_path / "two", {"x.json": b"{}"})
    (tmp_path / "void").mkdir()
    run = store.run()
    for step, place in enumerate((one, two, tmp_path / "void"), 1):
        run.commit({"files": cairn.folder(place)}, step=step)
    for step, place in ((1, one), (2, two), (1, one), (3, tmp_path / "void")):
        store.checkout(f"step:{step}", tmp_path / "out", force=True)
        assert trees.told(tmp_path / "out") == trees.told(place)


def test_hard_01_hard_links_are_equal_files(store: cairn.Store, tmp_path: Path) -> None:
    """HARD-01: stored once, whole in every part; the relation between the names is not kept."""
    place = folder_of(tmp_path / "ck", {"a.bin": os.urandom(1 << 20)})
    (place / "sub").mkdir()
    (place / "sub" / "b.bin").hardlink_to(place / "a.bin")
    out = there_and_back(store, place, 1)
    assert (out / "a.bin").stat().st_nlink == 1
    assert store.du().stored < (1 << 20) + 10_000
    store.checkout("latest", tmp_path / "part", only=["sub"])
    assert (tmp_path / "part" / "sub" / "b.bin").read_bytes() == (place / "a.bin").read_bytes()


def test_hard_01_an_unreadable_name_loses_nothing(plain_user: Path) -> None:
    """HARD-01: with the mode of a shared file at 000 the commit fails, naming one of its names."""
    place = folder_of(plain_user / "ck", {"a.bin": b"x"})
    (place / "b.bin").hardlink_to(place / "a.bin")
    (place / "a.bin").chmod(0)
    with cairn.init(plain_user / "store") as store:
        with pytest.raises(cairn.CairnError, match=r"ck/[ab]\.bin: expected a file or folder that this user may read"):
            store.run().commit({"files": cairn.folder(place)})
        assert store.runs() == []


def socket_at(path: Path) -> None:
    """Make a socket."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


@pytest.mark.parametrize(("make", "kind"), [(os.mkfifo, "a FIFO"), (socket_at, "a socket")])
def test_spec_01_what_has_no_content_is_refused_by_name(
    store: cairn.Store, tmp_path: Path, make: Callable[[Path], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC-01: a FIFO does not hang the commit, and nothing is dropped while success is reported."""
    place = folder_of(tmp_path / "ck", {"a": b"x"})
    monkeypatch.chdir(place)
    make(Path("pipe"))
    with pytest.raises(cairn.UnsupportedValue, match=rf"ck/pipe: expected a file, folder or link, found {kind}"):
        cairn.folder(place)
    with pytest.raises(cairn.UnsupportedValue, match=f"found {kind}"):
        cairn.folder(place / "pipe")
    with pytest.raises(cairn.UnsupportedValue, match="found a device"):
        cairn.folder("/dev/null")


def test_spec_01_a_fifo_that_takes_a_files_place_does_not_hang(store: cairn.Store, tmp_path: Path) -> None:
    """SPEC-01: not even between looking and reading."""
    place = folder_of(tmp_path / "ck", {"a": b"x"})
    found = cairn.folder(place)
    (place / "a").unlink()
    os.mkfifo(place / "a")
    with pytest.raises(cairn.UnsupportedValue, match="found a FIFO"):
        store.run().commit({"files": found})


@pytest.mark.parametrize("mode", [0o000, 0o600, 0o300])
def test_spec_01_an_unreadable_folder_is_named(plain_user: Path, mode: int) -> None:
    """SPEC-01: without the right to list it or to go in, the commit fails."""
    place = folder_of(plain_user / "ck", {"in/a": b"x"})
    (place / "in").chmod(mode)
    with pytest.raises(cairn.CairnError, match=r"ck/in(/a)?: expected a file or folder that this user may read"):
        cairn.folder(place)


def test_spec_01_a_sparse_file_is_stored_compactly(store: cairn.Store, tmp_path: Path) -> None:
    """SPEC-01: its zeros are one blob."""
    (tmp_path / "ck").mkdir()
    with (tmp_path / "ck" / "sparse").open("wb") as file:
        file.truncate((96 << 20) + 5)
    store.run().commit({"files": cairn.folder(tmp_path / "ck")}, step=1)
    assert store.du().stored < 17 << 20
    (item,) = store.ls("latest", "sparse")
    assert item.bytes == (96 << 20) + 5


COMMITS = """
import sys, cairn
with cairn.open(sys.argv[1]) as store:
    print(store.run(sys.argv[3]).commit({"files": cairn.folder(sys.argv[2])}, step=1).manifest)
    store.checkout(sys.argv[3], sys.argv[4])
"""


def test_nonutf8_01_names_are_bytes_whatever_the_locale(store: cairn.Store, tmp_path: Path) -> None:
    """NONUTF8-01: two names that are no text stay two, and listings escape them."""
    (tmp_path / "ck").mkdir()
    for name in (b"\xff", b"\xfe", b"new\nline", "ü".encode()):
        Path(os.fsdecode(os.fsencode(tmp_path / "ck") + b"/" + name)).write_bytes(name)
    manifests = set()
    for number, words in enumerate(({"LC_ALL": "C"}, {"PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"})):
        out = tmp_path / f"out{number}"
        command = [sys.executable, "-c", COMMITS, str(store.path), str(tmp_path / "ck"), f"r{number}", str(out)]
        done = subprocess.run(command, env=os.environ | words, capture_output=True, text=True, check=True)
        manifests.add(done.stdout)
        assert trees.told(out) == trees.told(tmp_path / "ck")
    assert len(manifests) == 1
    shown = subprocess.run(
        [sys.executable, "-m", "cairn", "--store", str(store.path), "ls", "r0", "files", "--json"],
        env=os.environ | {"LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    names = [item["path"] for item in json.loads(shown.stdout)]
    assert names == ['files/"new\\nline"', "files/ü", "files/b'\\xfe'", "files/b'\\xff'"]
    for name in names:
        assert store.cat("r0", name).size > 0


def test_emptyf_01_empty_files_are_files(store: cairn.Store, tmp_path: Path) -> None:
    """EMPTYF-01: each comes back with no bytes, and verify misses nothing."""
    place = folder_of(tmp_path / "ck", dict.fromkeys(["__init__.py", "a.log", "b.log", "model.safetensors"], b""))
    there_and_back(store, place)
    assert store.verify().ok
    assert store.cat("latest", "a.log").read() == b""


def test_uni_01_names_are_never_normalised(store: cairn.Store, tmp_path: Path) -> None:
    """UNI-01: both spellings of an accent, and what looks alike or cannot be seen, in one folder."""
    names = ["\u00e9", "e\u0301", "\ufb01", "fi", "\U0001f600", "\u200f", "\t", " ", "...", "a\x1b[31m"]
    place = folder_of(tmp_path / "ck", {name: name.encode() for name in names})
    there_and_back(store, place)
    assert len(store.ls("latest", "files")) == len(names)


class CaselessDisk(Disk):
    """A disk that takes upper and lower case, and both spellings of an accent, for the same when it is asked."""

    def size(self, path: Path) -> int | None:
        names = [path.name, path.name.lower(), path.name.lower().replace("e\u0301", "\u00e9")]
        sizes = [Disk.size(self, path.with_name(name)) for name in names]
        return next((size for size in sizes if size is not None), None)


@pytest.mark.parametrize("names", [("Model.json", "model.json"), ("caf\u00e9", "cafe\u0301")])
def test_case_01_names_that_would_be_one_file_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    """CASE-01: both come back here; where they would be one file nothing is written, and the pair is named."""
    place = folder_of(tmp_path / "ck", {f"sub/{name}": name.encode() for name in names})
    with cairn.init(tmp_path / "store") as store:
        there_and_back(store, place)
    with cairn.open(tmp_path / "store", disk=CaselessDisk()) as store:
        with pytest.raises(
            cairn.Conflict, match=f"sub/{names[0]} and sub/{names[1]}|sub/{names[1]} and sub/{names[0]}"
        ):
            store.checkout("latest", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        store.checkout("latest", tmp_path / "out", only=[f"sub/{names[0]}"])


def test_tokj_01_a_large_json_is_stored_once_and_not_parsed(store: cairn.Store, tmp_path: Path) -> None:
    """TOKJ-01: the same in 20 steps costs nothing more, and every spelling comes back as it was."""
    pretty = json.dumps({f"token {number}": number for number in range(100_000)}, indent=2).encode()
    place = folder_of(tmp_path / "ck", {"tokenizer.json": pretty})
    for step in range(20):
        (place / "step").write_bytes(b"%d" % step)
        store.run().commit({"files": cairn.folder(place)}, step=step)
    assert store.du().stored < len(pretty) + 30_000
    spellings = {
        "small": json.dumps(json.loads(pretty)).encode(),
        "double": b'{"a": 1, "a": 2}',
        "huge": b"[1e400, 1.0, 1]",
        "escape": b'"\\u00e9"',
        "plain": '"é"'.encode(),
        "crlf": b"{\r\n}\r\n",
        "bom": b"\xef\xbb\xbf{}",
        "bare": b"{}",
    }
    there_and_back(store, folder_of(tmp_path / "spellings", spellings), 100)


class Changing(OpenFile):
    """A file to which something happens while it is read."""

    happen: Callable[[], object] | None = None

    def read_at(self, offset: int, size: int) -> bytes:
        data = super().read_at(offset, size)
        if Changing.happen is not None and offset >= 1 << 20:
            happen, Changing.happen = Changing.happen, None
            happen()
        return data


class ChangingDisk(Disk):
    """A disk with such files."""

    def open_file(self, path: Path | bytes) -> OpenFile:
        return Changing(path)


def truncated(path: Path) -> None:
    """Make a file shorter."""
    os.truncate(path, 0)


def appended(path: Path) -> None:
    """Make a file longer."""
    with path.open("ab") as file:
        file.write(b"more")


def rewritten(path: Path) -> None:
    """Change a byte of a file."""
    with path.open("r+b") as file:
        file.write(b"\x01")
    os.utime(path, ns=(1, 1))


def replaced(path: Path) -> None:
    """Put another file in its place, with the same bytes."""
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").replace(path)


def linked(path: Path) -> None:
    """Put a link in its place."""
    path.unlink()
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("happen", "words"),
    [
        (truncated, "became shorter|was written to"),
        (appended, "was written to"),
        (rewritten, "was written to"),
        (replaced, "was replaced"),
        (linked, "was replaced"),
        (Path.unlink, "is not there any more"),
    ],
)
@pytest.mark.parametrize("is_cut", [True, False])
def test_hashch_01_a_file_that_changes_fails_the_commit(
    tmp_path: Path, happen: Callable[[Path], object], words: str, is_cut: bool
) -> None:
    """HASHCH-01: it becomes shorter, longer, other, or goes while it is read: an error names it; nothing is kept."""
    place = tmp_path / "ck"
    place.mkdir()
    changing = place / "model.safetensors"
    header = save({"a": np.ones(1 << 18, np.float32), "b": np.zeros(1 << 18, np.float32)})
    changing.write_bytes(header if is_cut else b"")
    os.truncate(changing, len(header) if is_cut else 70 << 20)
    with cairn.init(tmp_path / "store", disk=ChangingDisk()) as store:
        found = cairn.folder(place, disk=ChangingDisk())
        Changing.happen = lambda: happen(changing)
        with pytest.raises(cairn.CairnError, match=f"ck/model.safetensors ({words}).*nothing was published"):
            store.run().commit({"files": found}, step=1)
        assert Changing.happen is None
        assert store.runs() == []
        store.gc()
        assert store.verify().ok
        store.run().commit({"files": cairn.folder(place)}, step=1)
        assert store.verify().ok


@pytest.mark.parametrize("happen", [linked, Path.unlink, lambda path: path.chmod(0)])
def test_hashch_01_a_file_that_goes_before_it_is_read_is_named(
    plain_user: Path, happen: Callable[[Path], object]
) -> None:
    """HASHCH-01: between looking and reading."""
    place = folder_of(plain_user / "ck", {"a": b"x"})
    with cairn.init(plain_user / "store") as store:
        found = cairn.folder(place)
        happen(place / "a")
        with pytest.raises(cairn.CairnError, match="ck/a"):
            store.run().commit({"files": found}, step=1)


def test_ro_01_a_store_that_this_user_may_not_write_is_read(plain_user: Path) -> None:
    """RO-01: without any write permission everything reads and nothing is made; what writes fails at once, in words."""
    root = plain_user / "store"
    place = folder_of(plain_user / "ck", {"a.json": b"{}", "m.safetensors": save({"w": np.arange(9.0)})})
    with cairn.init(root) as store:
        for step in (1, 2):
            store.run().commit({"files": cairn.folder(place), "model": np.full(9, step)}, step=step)
    every = [root, *root.rglob("*")]
    modes = {path: path.stat().st_mode for path in every}
    for path in every:
        path.chmod(modes[path] & ~0o222)
    before = trees.told(root)
    with cairn.open(root) as store:
        assert [commit.step for commit in store.log()] == [2, 1]
        np.testing.assert_array_equal(store.load("step:1", only={"model"})["model"], np.full(9, 1))
        store.checkout("step:2", plain_user / "out", only=["files"])
        assert trees.told(plain_user / "out") == trees.told(place)
        assert store.verify().findings == ()
        assert store.diff("step:1", "step:2").changes
        assert store.gc(dry_run=True).dead == ()
        for write in (
            lambda: store.run().commit({"model": np.ones(3)}, step=3),
            lambda: store.gc(),
            lambda: store.drop(["step:1"]),
            lambda: store.keep(["last:1"]),
            lambda: store.tag("good", "latest"),
            lambda: store.verify(repair=True),
        ):
            with pytest.raises(cairn.ReadOnly, match="cannot be written"):
                write()
    assert trees.told(root) == before
    for path in every:
        path.chmod(modes[path])


def torch_like() -> bytes:
    """An archive laid out as torch does."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("model/data/0", np.arange(100.0).tobytes())
        archive.writestr("model/version", b"3\n")
    return buffer.getvalue()


def test_trunc_01_files_that_were_cut_short_are_kept_as_they_are(store: cairn.Store, tmp_path: Path) -> None:
    """TRUNC-01: at every length, and with bytes too many: stored as plain bytes, and said."""
    files: dict[str, bytes] = {}
    for name, whole in (("st", save({"w": np.arange(120.0), "v": np.arange(9)})), ("pt", torch_like())):
        files |= {f"{name}.{length}": whole[:length] for length in range(0, len(whole), 7)}
        files[f"{name}.more"] = whole + b"more"
        files[f"{name}.whole"] = whole
    place = folder_of(tmp_path / "ck", files)
    there_and_back(store, place, 1)
    run = store.run()
    run.commit({"files": cairn.folder(place)}, step=2)
    assert run.last is not None
    told = {file.path: file.reason for file in run.last.opaque}
    assert all("expected" in reason for reason in told.values())
    assert set(told) >= {name for name, data in files.items() if len(data) > 8 and not name.endswith("whole")}
    assert not {name for name in told if name.endswith("whole")}
    assert run.last.files["torch"] == run.last.files["safetensors"] == 1


def test_idx_01_shards_are_kept_as_they_are(store: cairn.Store, tmp_path: Path) -> None:
    """IDX-01: missing, stray and misplaced shards: bytes come back, and no file of another step stays behind."""
    one, two, three = (save({"w": np.full(4, number)}) for number in (1.0, 2.0, 3.0))
    index = json.dumps({"weight_map": {"w": "s1", "v": "s2"}}).encode()
    steps = [
        {"model.safetensors.index.json": index, "s1.safetensors": one},
        {"model.safetensors.index.json": index, "s1.safetensors": one, "s2.safetensors": two, "s3.safetensors": three},
        {"model.safetensors.index.json": index, "s1.safetensors": two, "s2.safetensors": one},
    ]
    for step, files in enumerate(steps):
        place = folder_of(tmp_path / str(step), files)
        store.run().commit({"files": cairn.folder(place)}, step=step)
    for step in (1, 0, 2, 0):
        store.checkout(f"step:{step}", tmp_path / "out", force=True)
        assert trees.told(tmp_path / "out") == trees.told(tmp_path / str(step))


def test_linkw_01_changing_what_was_checked_out_cannot_hurt_the_store(store: cairn.Store, tmp_path: Path) -> None:
    """LINKW-01: it is a copy, never a link to anything in the store."""
    place = folder_of(tmp_path / "ck", {"config.json": b"{}", "model.safetensors": save({"w": np.arange(50_000.0)})})
    out = there_and_back(store, place, 1)
    with (out / "config.json").open("ab") as file:
        file.write(b"x")
    with (out / "model.safetensors").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff")
    assert store.verify().ok
    store.checkout("latest", tmp_path / "again")
    assert trees.told(tmp_path / "again") == trees.told(place)
    assert all(path.stat().st_nlink == 1 for path in out.iterdir())


def test_mmap_01_a_checkout_over_mapped_files_changes_no_value(store: cairn.Store, tmp_path: Path) -> None:
    """MMAP-01: files are replaced by renaming, so who has mapped the old ones goes on reading them."""
    out = tmp_path / "out"
    run = store.run()
    run.commit({"files": cairn.folder(folder_of(tmp_path / "one", {"w.npy": trees.npy(np.arange(90_000.0))}))}, step=1)
    store.checkout("latest", out)
    mapped = np.load(out / "w.npy", mmap_mode="r")
    run.commit({"model": {"w": np.asarray(mapped)}}, step=2)
    run.commit({"files": cairn.folder(folder_of(tmp_path / "two", {"w.npy": trees.npy(np.ones(7))}))}, step=3)
    store.checkout("latest", out, force=True)
    loaded = run.load(step=2)["model"]["w"]
    np.testing.assert_array_equal(mapped, np.arange(90_000.0))
    store.drop(["step:1", "step:2"])
    store.gc()
    np.testing.assert_array_equal(loaded, mapped)
    np.testing.assert_array_equal(np.load(out / "w.npy"), np.ones(7))


def test_metaord_01_the_same_tensors_in_other_headers_are_stored_once(store: cairn.Store, tmp_path: Path) -> None:
    """METAORD-01: each file comes back with its own header; the tensor is one blob."""
    tensors: dict[str, Array] = {"w": np.arange(50_000, dtype=np.float32), "v": np.arange(7)}
    metadata = {str(number): str(number) for number in range(16)}
    files = {f"{number}.safetensors": save(tensors, metadata) for number in range(3)}
    whole = save(tensors)
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    odd = json.dumps(dict(reversed(header.items())), indent=3).encode() + b"    "
    files["odd.safetensors"] = len(odd).to_bytes(8, "little") + odd + whole[8 + length :]
    there_and_back(store, folder_of(tmp_path / "ck", files))
    assert store.du().stored < 200_000 + 20_000


def test_world_01_parts_of_all_ranks_come_back_and_their_number_can_be_read(store: cairn.Store, tmp_path: Path) -> None:
    """WORLD-01: a folder of four ranks' parts is the same for whoever asks; the JSON is read without a tensor."""
    rows = np.arange(64.0).reshape(16, 4)
    files = {f"rank_{rank}.npz": trees.npz(rows=rows[4 * rank : 4 * rank + 4]) for rank in range(4)}
    place = folder_of(tmp_path / "ck", files | {"world.json": b'{"world_size": 4}'})
    there_and_back(store, place, 1)
    assert json.loads(store.cat("latest", "world.json").read())["world_size"] == 4
    with pytest.raises(cairn.NotFound, match=r"rank_5\.npz.*rank_0\.npz, rank_1\.npz, rank_2\.npz, rank_3\.npz"):
        store.cat("latest", "rank_5.npz")
    parts = [store.cat("latest", f"rank_{rank}.npz/rows") for rank in range(4)]
    np.testing.assert_array_equal(np.concatenate(parts), rows)


def test_nanj_01_a_file_that_is_no_json_comes_back(store: cairn.Store, tmp_path: Path) -> None:
    """NANJ-01: NaN and Infinity in trainer_state.json are bytes like others."""
    there_and_back(store, folder_of(tmp_path / "ck", {"trainer_state.json": b'{"loss": NaN, "best": -Infinity}'}))


def test_deep_folders_up_to_the_limit(store: cairn.Store, tmp_path: Path) -> None:
    """Eighty folders inside each other are kept; more are refused before anything is written."""
    deep = tmp_path / "ck"
    for _ in range(80):
        deep = deep / "d"
    folder_of(deep, {"leaf": b"x"})
    there_and_back(store, tmp_path / "ck")
    (deep / "d").mkdir()
    with pytest.raises(cairn.UnsupportedValue, match="at most 80 folders inside each other"):
        cairn.folder(tmp_path / "ck")


def test_a_checked_out_file_opens_in_its_library(store: cairn.Store, tmp_path: Path) -> None:
    """What another tool wrote, another tool reads."""
    (tmp_path / "ck").mkdir()
    save_file({"w": np.arange(1000.0)}, tmp_path / "ck" / "m.safetensors")
    out = there_and_back(store, tmp_path / "ck")
    np.testing.assert_array_equal(load_file(out / "m.safetensors")["w"], np.arange(1000.0))
    shutil.rmtree(out)
