"""Fuzzes the cutters with atheris: whatever the bytes, a cut is a cut, and nothing is raised.

Run from the project's folder, after `pip install atheris`, for as long as wanted:

    PYTHONPATH=. python tests/fuzz/fuzz_formats.py -max_total_time=600 [-max_len=8192] [CORPUS]

The first byte chooses what the rest is: a whole file, a pickle inside torch's archive, or the header of a safetensors,
npy or GGUF file, so that the fuzzer need not find lengths by chance. Without a corpus it starts from sound files.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["cairn.files"]):
    from tests.fuzz.samples import cut, names, npy_file, one_of_each, safetensors_file, torch_file

DATA = Path(__file__).parents[1] / "files" / "data"


def _npy(data: bytes) -> bytes:
    start = npy_file(0)[:8]
    return start + len(data).to_bytes(2, "little") + data + bytes(48) if len(data) < 1 << 16 else data


WRAPPERS: list[Callable[[bytes], bytes]] = [
    lambda data: data,
    lambda data: torch_file(data, {"0": bytes(48), "1": bytes(4)}),
    lambda data: safetensors_file(data, bytes(54)),
    _npy,
    lambda data: b"GGUF\x03\0\0\0" + data,
]


def check(data: bytes) -> None:
    """Makes a file of the bytes and checks what cutting and naming promise."""
    file = WRAPPERS[data[0] % len(WRAPPERS)](data[1:]) if data else b""
    cut(file)
    names(file)


def seeds() -> list[bytes]:
    """Sound inputs for every choice of the first byte."""
    files = one_of_each()
    found = [b"\0" + data for data in [*files.values(), *(path.read_bytes() for path in DATA.glob("*.[pg]*"))]]
    pickles = files["torch"].index(b"\x80\x02"), files["torch"].index(b"PK\x07\x08")
    header = int.from_bytes(files["safetensors"][:8], "little")
    found.append(b"\1" + files["torch"][pickles[0] : pickles[1]])
    found.append(b"\2" + files["safetensors"][8 : 8 + header])
    found.append(b"\3" + files["npy"][10:128])
    found.append(b"\4" + files["gguf"][8:])
    return found


def main() -> None:
    """Hands the arguments to libFuzzer, with a fresh corpus where none is given."""
    arguments = sys.argv
    if not any(not argument.startswith("-") for argument in arguments[1:]):
        corpus = Path(tempfile.mkdtemp(prefix="cairn-fuzz-"))
        for number, data in enumerate(seeds()):
            (corpus / str(number)).write_bytes(data)
        arguments = [*arguments, str(corpus)]
    atheris.Setup(arguments, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
