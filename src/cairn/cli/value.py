"""One value of a commit: as bytes for a file or a pipe, or described for a terminal."""

from __future__ import annotations

import json
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from cairn.cli import text
from cairn.errors import NotFound
from cairn.files.plain import take_apart
from cairn.state import arrays
from cairn.state.nodes import Folder, Link
from cairn.state.stored import StoredFile

_SHOWN_BYTES = 64
_SHOWN_TEXT = 1 << 20


def check(path: str, value: object) -> None:
    """Raise NotFound for what has no bytes of its own."""
    if isinstance(value, Folder):
        raise NotFound(f"{path!r} is a folder: expected a file; `cairn ls` lists it, `cairn checkout` writes it")
    if isinstance(value, Link):
        raise NotFound(f"{path!r} is a link to {value.target!r}: expected a file; name what it leads to")


def write(value: object, file: IO[bytes]) -> None:
    """Write a tensor as .npy, files, bytes and text as they are, everything else as JSON."""
    if isinstance(value, np.ndarray):
        np.lib.format.write_array(file, value, allow_pickle=False)
    elif isinstance(value, StoredFile):
        for chunk in value.chunks():
            file.write(chunk)
    elif isinstance(value, bytes):
        file.write(value)
    elif isinstance(value, str):
        file.write(value.encode("utf-8", "surrogatepass"))
    else:
        file.write(_json(value).encode() + b"\n")


def described(path: str, value: object) -> str:
    """Describe a value so that nothing in it can disturb a terminal."""
    if isinstance(value, np.ndarray):
        return _tensor(path, value)
    if isinstance(value, StoredFile):
        return _file(path, value)
    if isinstance(value, bytes):
        rest = " …" if len(value) > _SHOWN_BYTES else ""
        return f"{text.size(len(value))}: {value[:_SHOWN_BYTES].hex(' ')}{rest}"
    if isinstance(value, str):
        return "\n".join(map(text.safe, value.split("\n")))
    return _json(value)


def _file(path: str, file: StoredFile) -> str:
    """The text of a file that is text, else what is known of it."""
    if file.size <= _SHOWN_TEXT:
        try:
            shown = file.read().decode()
        except UnicodeDecodeError:
            shown = "\0"
        if "\0" not in shown:
            return "\n".join(map(text.safe, shown.removesuffix("\n").split("\n")))
    rows = [
        ("file", text.safe(path)),
        ("bytes", text.size(file.size)),
        ("mode", f"{file.mode:04o}"),
        ("BLAKE3", file.hash),
        ("to save it", "-o FILE, or let another program read the output"),
    ]
    return text.pairs(rows)


def _tensor(path: str, array: npt.NDArray[Any]) -> str:
    rows = [
        ("tensor", text.safe(path)),
        ("type", arrays.name_of(array.dtype) or str(array.dtype)),
        ("shape", "×".join(map(str, array.shape)) or "0-d"),
        ("bytes", text.size(array.nbytes)),
        *_statistics(array),
        ("values", np.array2string(array, threshold=100, edgeitems=3)),
        ("to save it", "-o FILE.npy, or let another program read the output"),
    ]
    return text.pairs(rows)


def _statistics(array: npt.NDArray[Any]) -> list[tuple[str, str]]:
    """The range of real numbers, and how many are none."""
    if not array.size or array.dtype.kind in "bcmM":
        return []
    with np.errstate(all="ignore"):
        numbers = array.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        rows = [("NaN", str(nan)) if (nan := int(np.isnan(numbers).sum())) else ("", "")]
        infinite = numbers.size - finite.size - nan
        rows.append(("infinite", str(infinite) if infinite else ""))
        if finite.size:
            rows.append(("range", f"{finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}"))
    return rows


def _json(value: object) -> str:
    return json.dumps(take_apart(value).value, indent=2, allow_nan=False)
