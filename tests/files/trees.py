"""Folders for tests: how to make any, and what is in one, told without cairn."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from safetensors.numpy import save

Told = dict[bytes, tuple[str, int, bytes]]


def told(root: Path) -> Told:
    """Everything in a folder by its path within it: what it is, its permissions, and its bytes or text."""
    raw = os.fsencode(root)
    found: Told = {b".": ("folder", stat.S_IMODE(os.lstat(raw).st_mode), b"")}
    for above, folders, files in os.walk(raw):
        for name in (*folders, *files):
            path = os.path.join(above, name)
            mode = os.lstat(path).st_mode
            here = os.path.relpath(path, raw)
            if stat.S_ISLNK(mode):
                found[here] = ("link", 0, os.readlink(path))
            elif stat.S_ISDIR(mode):
                found[here] = ("folder", stat.S_IMODE(mode), b"")
            else:
                with open(path, "rb") as file:
                    found[here] = ("file", stat.S_IMODE(mode), file.read())
    return found


def only_files(root: Path) -> dict[bytes, bytes]:
    """The bytes of the files in a folder."""
    return {path: data for path, (kind, _, data) in told(root).items() if kind == "file"}


def npz(**arrays: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    """An archive as numpy writes it."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def npy(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    """A file as numpy writes it."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


NAMES = st.one_of(
    st.sampled_from(
        [b"a", b"B", b"b", b"$file", b" x ", b'"q"', b"\xff", b"\xfe", b"new\nline", "é".encode(), b"e\xcc\x81"]
    ),
    st.binary(min_size=1, max_size=12).map(lambda raw: raw.replace(b"/", b"_").replace(b"\0", b"0")),
).filter(lambda raw: raw not in (b".", b".."))

TEXTS = st.sampled_from([b"a", b"missing", b"..", b"/nowhere/x", b"\xff\xfe", b"l", b"a/../b", b"x" * 300])


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """The bytes of a file: made by a library, changed a little, or any."""
    kind = draw(st.sampled_from(["empty", "any", "long", "safetensors", "npz", "npy"]))
    if kind == "empty":
        return b""
    if kind == "any":
        return draw(st.binary(max_size=40))
    array = np.arange(draw(st.sampled_from([0, 3, 1000, 20_000])), dtype=draw(st.sampled_from(["<f4", "<i8", ">f8"])))
    if kind == "long":
        return array.tobytes() + b"end"
    little = array.astype(array.dtype.newbyteorder("<"))
    data = {"safetensors": save({"w": little, "v": little[:2]}), "npz": npz(w=array, v=array[::2]), "npy": npy(array)}[
        kind
    ]
    change = draw(st.sampled_from(["none", "none", "cut", "grow", "flip"]))
    at = draw(st.integers(0, len(data) - 1))
    if change == "cut":
        return data[:at]
    if change == "flip":
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    return data + b"x" * draw(st.integers(1, 9)) if change == "grow" else data


Plan = dict[bytes, object]


def plans(depth: int = 3) -> st.SearchStrategy[Plan]:
    """What is to stand in a folder: names to (bytes, mode), a link's text, or (a plan, mode)."""
    files = st.tuples(contents(), st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o777]))
    links = TEXTS
    if depth == 0:
        return st.dictionaries(NAMES, st.one_of(files, links), max_size=4)
    folders = st.tuples(plans(depth - 1), st.sampled_from([0o755, 0o700, 0o555, 0o777]))
    return st.dictionaries(NAMES, st.one_of(files, links, folders), max_size=4)


def make(root: bytes, plan: Plan) -> None:
    """Make what a plan says."""
    os.makedirs(root)
    for name, what in plan.items():
        path = os.path.join(root, name)
        if isinstance(what, bytes):
            os.symlink(what, path)
            continue
        assert isinstance(what, tuple)
        inside, mode = what
        if isinstance(inside, dict):
            make(path, inside)
        else:
            with open(path, "wb") as file:
                file.write(inside)
        os.chmod(path, mode)
