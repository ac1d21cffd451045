"""Programs that keep files. A trainer has written the state to safetensors files before, which is not timed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from libraries import write_safetensors
from states import State
from timing import make_durable
from tool import Tool, Work


class Program(Tool):
    """A program on files; each start of it is part of what it takes."""

    does_share = True
    is_slow = True
    command: str

    def missing(self) -> str | None:
        return None if self._found() else f"no {self.command}"

    def start(self, folder: Path) -> None:
        super().start(folder)
        self.files_in = folder / "files"
        self.files_in.mkdir()
        self._saves = 0
        self._env = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(folder / "site"),
            "RESTIC_REPOSITORY": str(folder / "repository"),
            "RESTIC_PASSWORD": "speed",
            "BORG_BASE_DIR": str(folder),
            "BORG_REPO": str(folder / "repository"),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
            **{f"GIT_{who}_{what}": "speed@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        self._setup()

    def prepare(self, state: State) -> None:
        # What did not change is written again, too: a trainer does not know.
        make_durable(write_safetensors(state, self.files_in))

    def loads(self, state: State) -> Mapping[str, Work]:
        shutil.rmtree(self.files_in)
        self.files_in.mkdir()
        return {"to files": self._restore}

    def call(self, *words: object) -> None:
        """Run a command where the files are."""
        subprocess.run([str(word) for word in words], cwd=self.files_in, env=self._env, check=True, capture_output=True)

    def _found(self) -> str | None:
        return shutil.which(self.command) or shutil.which(self.command, path=Path(sys.executable).parent)

    def _setup(self) -> None:
        raise NotImplementedError  # Every program has its own way.

    def _restore(self) -> None:
        raise NotImplementedError  # Every program whose loads are measured has its own way.


class GitLfs(Program):
    """git add and git commit, the files being git-lfs's."""

    name = "git-lfs"
    command = "git-lfs"

    def _setup(self) -> None:
        self.call("git", "init", "--quiet")
        self.call("git", "lfs", "install", "--local")
        self.call("git", "lfs", "track", "*.safetensors")

    def save(self, state: State) -> None:
        self.call("git", "add", "--all")
        self.call("git", "commit", "--quiet", "--allow-empty", "--message", "step")

    def loads(self, state: State) -> Mapping[str, Work]:
        for path in self.files_in.glob("*.safetensors"):
            path.unlink()
        return {"to files": self._restore}

    def _restore(self) -> None:
        self.call("git", "checkout", "--", ".")


class Dvc(Program):
    """dvc add."""

    name = "DVC"
    command = "dvc"

    def _setup(self) -> None:
        self.call("dvc", "init", "--quiet", "--no-scm")

    def save(self, state: State) -> None:
        self.call("dvc", "add", "--quiet", *sorted(self.files_in.glob("*.safetensors")))

    def loads(self, state: State) -> Mapping[str, Work]:
        for path in self.files_in.glob("*.safetensors"):
            path.unlink()
        return {"to files": self._restore}

    def _restore(self) -> None:
        self.call("dvc", "checkout", "--quiet")


class Restic(Program):
    """restic, which encrypts and compresses."""

    name = "restic"
    command = "restic"

    def _setup(self) -> None:
        self.call("restic", "init", "--quiet")

    def save(self, state: State) -> None:
        self.call("restic", "backup", "--quiet", ".")

    def _restore(self) -> None:
        self.call("restic", "restore", "--quiet", "latest", "--target", self.folder / "restored")


class Borg(Program):
    """borg without encryption, with its default compression."""

    name = "borg"
    command = "borg"

    def _setup(self) -> None:
        self.call("borg", "init", "--encryption", "none")

    def save(self, state: State) -> None:
        self._saves += 1
        self.call("borg", "create", f"::{self._saves}", ".")

    def _restore(self) -> None:
        self.call("borg", "extract", f"::{self._saves}")
