"""What the machine can do at most, and what it is."""

from __future__ import annotations

import errno
import importlib.metadata
import mmap
import os
import platform
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from timing import seconds

MEMCPY, HASH_ONE, HASH_ALL = "memcpy", "BLAKE3, one core", "BLAKE3, all cores"
WRITES = {"O_DIRECT, 8 MiB": (8 << 20, True), "O_DIRECT, 16 MiB": (16 << 20, True), "buffered": (8 << 20, False)}
"""Ways to write a preallocated file and fsync it: bytes of a write, and whether past the page cache."""
TOOL = "machine"
_IN_MEMORY = 256 << 20
_PAGE = 4096
PACKAGES = ("cairn-store", "numpy", "blake3", "safetensors", "torch", "orbax-checkpoint", "jax", "dvc", "matplotlib")
PROGRAMS = (("git", "--version"), ("git-lfs", "--version"), ("restic", "version"), ("borg", "--version"))


def bounds(folder: Path, nbytes: int) -> Iterator[tuple[str, float]]:
    """Yield what the machine takes at least for a state of so many bytes: to copy, to hash, to make them durable."""
    size = _whole_pages(min(_IN_MEMORY, nbytes))
    buffer = mmap.mmap(-1, size)
    source = np.frombuffer(buffer, np.uint8)
    source[:] = 7
    target = np.ones_like(source)
    share = nbytes / size
    yield MEMCPY, seconds(lambda: np.copyto(target, source)) * share
    yield HASH_ONE, seconds(lambda: blake3(buffer)) * share
    yield HASH_ALL, seconds(lambda: blake3(buffer, max_threads=blake3.AUTO)) * share
    path = folder / "raw"
    for what, (step, is_direct) in WRITES.items():
        try:
            took = seconds(partial(_write, path, buffer, _whole_pages(nbytes), step, is_direct=is_direct))
        except OSError as error:
            # Some file systems have no way past the page cache.
            if not is_direct or error.errno != errno.EINVAL:
                raise
        else:
            yield what, took
        path.unlink(missing_ok=True)


def _write(path: Path, buffer: mmap.mmap, nbytes: int, step: int, *, is_direct: bool) -> None:
    """Write so many bytes to a new file and make them durable."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | (os.O_DIRECT if is_direct else 0))
    os.posix_fallocate(descriptor, 0, nbytes)
    view = memoryview(buffer)
    written = 0
    while written < nbytes:
        start = written % len(buffer)
        written += os.write(descriptor, view[start : start + min(step, nbytes - written)])
    os.fsync(descriptor)
    os.close(descriptor)


def _whole_pages(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


def describe(folder: Path) -> dict[str, Any]:
    """Say what the machine is, and which versions were measured."""
    return {
        "processor": _line("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": _line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "file system": _said("df", "--output=fstype", str(folder)).split()[-1],
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """The versions of everything that is installed here."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | {command[0]: said for command in PROGRAMS if (said := _said(*command))}


def revision() -> str:
    """The git revision of the repository, marked when something in it differs from that."""
    return _said("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40")


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _line(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""
