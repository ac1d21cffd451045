"""Where a commit was made: versions, the caller's git revision, host and hardware. No paths, no arguments."""

from __future__ import annotations

import os
import platform
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

_FOLLOWED = ("numpy", "torch", "jax", "transformers", "lightning")
_SHA = re.compile(r"[0-9a-f]{40,64}", re.ASCII)


@lru_cache(maxsize=1)
def provenance() -> dict[str, Any]:
    """Describe this process as canonical JSON values. Modules that the caller did not import are not looked at."""
    # Imported here because it would be a fifth of the time that `cairn log` takes.
    from importlib import metadata

    versions = {"cairn": metadata.version("cairn-store"), "python": platform.python_version()}
    for name in _FOLLOWED:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            # torch's is a str that compares as a version does.
            versions[name] = str(version)
    return {
        "versions": versions,
        "git": _git_revision(),
        "host": platform.node(),
        "hardware": {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()},
    }


def _git_revision() -> str | None:
    """Return the revision checked out where the main module lies, read from its files; None when there is none."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is None:
        return None
    for folder in Path(main).absolute().parents:
        git = folder / ".git"
        try:
            return _follow(git, _read(git / "HEAD"))
        except FileNotFoundError:
            continue
        except OSError:
            return None  # A worktree's or submodule's `.git` is a file; the folder above is another repository.
    return None


def _follow(git: Path, text: str) -> str | None:
    reference = text.removeprefix("ref: ")
    if reference == text:
        return text if _SHA.fullmatch(text) else None
    try:
        found = _read(git / reference)
    except OSError:
        found = _packed(git, reference)
    return found if _SHA.fullmatch(found) else None


def _packed(git: Path, reference: str) -> str:
    try:
        lines = _read(git / "packed-refs").splitlines()
    except OSError:
        return ""
    return next((line.split()[0] for line in lines if line.endswith(f" {reference}")), "")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()
