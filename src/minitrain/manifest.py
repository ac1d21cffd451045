"""The manifest: what a checkpoint is, where it came from, and the digest of each of its files.

It is the source of truth of a checkpoint folder. It is written last and read first. A folder whose files do not have
the digests that its manifest lists was torn between two saves, and is not a checkpoint.

Time, host name and paths are absent on purpose: the same state saved twice on one machine gives the same manifest.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from minitrain.errors import CheckpointError
from minitrain.model import MiniGPTConfig

SCHEMA_VERSION = "1.0"


def describe(
    *,
    config: MiniGPTConfig,
    seed: int,
    data_manifest_hash: str,
    step: int,
    epoch: int,
    extra_metrics: Mapping[str, Any],
    files: Mapping[str, bytes],
) -> dict[str, Any]:
    """Returns the manifest of a checkpoint that consists of these files."""
    return {
        "schema_version": SCHEMA_VERSION,
        "step": step,
        "epoch": epoch,
        "extra_metrics": dict(extra_metrics),
        "seed": seed,
        "config": dataclasses.asdict(config),
        "config_hash": config_hash(config),
        "data_manifest_hash": data_manifest_hash,
        "git_sha": git_sha(),
        "versions": versions(),
        "hardware": hardware(),
        "files": {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in files.items()},
    }


def sha256(data: bytes) -> str:
    """Returns the digest as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def encode_json(value: Any, subject: str) -> bytes:
    """Returns readable JSON; refuses what JSON cannot give back as it was."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{subject} cannot be written as JSON: {error}.") from None
    return text.encode() + b"\n"


def config_hash(config: MiniGPTConfig) -> str:
    """Returns the SHA-256 of the configuration as JSON with sorted keys."""
    return sha256(json.dumps(dataclasses.asdict(config), sort_keys=True).encode())


def versions() -> dict[str, str]:
    """Returns the versions of what computes and stores the state."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "safetensors": metadata.version("safetensors"),
    }


def hardware() -> dict[str, Any]:
    """Returns what decides the last bit of a matrix product.

    The state is exact everywhere. That the *losses* of a resumed run are equal as well needs the same kernel,
    and the library picks its kernel by the processor it finds.
    """
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "blas": blas.get("name"),
        "blas_version": blas.get("version"),
        "blas_core": _blas_core(),
    }


def _blas_core() -> str | None:
    # numpy does not tell which of OpenBLAS's kernels is in use; the library that it loaded does.
    try:
        library = ctypes.CDLL(import_module("numpy._core._multiarray_umath").__file__)
        core_name = library.scipy_openblas_get_corename64_
    except (ImportError, AttributeError, OSError):
        return None
    core_name.restype = ctypes.c_char_p
    return str(core_name().decode("ascii"))


def git_sha() -> str | None:
    """Returns the commit of this code, or None where it is not a tracked file of a git repository."""
    here = Path(__file__)
    try:
        # A trainer installed inside some other project's repository is not that project's code.
        _git(here, "ls-files", "--error-unmatch", here.name)
        return _git(here, "rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(file: Path, *arguments: str) -> str:
    command = ["git", "-C", str(file.parent), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
