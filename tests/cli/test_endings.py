"""However a command ends: its exit status, and a sentence on stderr instead of a traceback."""

from __future__ import annotations

import dataclasses
import errno
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cairn.history.commit import Commit
from cairn.history.journal import Journal
from cairn.io.disk import Disk
from cairn.store.store import Store

Call = Callable[..., tuple[int, str, str]]


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """Make a function that raises, whatever it is given."""

    def stand_in(*args: object, **options: object) -> NoReturn:
        raise error

    return stand_in


@pytest.mark.parametrize(
    ("args", "status", "part"),
    [
        (("frob",), 2, "No such command 'frob'; try `cairn --help`"),
        (("show",), 2, "Missing argument 'REV'; try `cairn show --help`"),
        (("log", "-n", "none"), 2, "try `cairn log --help`"),
        (("log", "--frob"), 2, "No such option"),
        (("show", "best:acc"), 2, "best:acc:min or best:acc:max"),
        (("show", "nothing"), 4, "revision 'nothing': expected a run, a tag, latest"),
        (("show", "step:25"), 4, "the nearest are 10, 20, 30"),
        (("show", "abcdef012345"), 4, "no run, tag or commit id begins with 'abcdef012345'"),
        (("log", "--run", "mian"), 4, "expected one of main"),
        (("cat", "latest", "model/nothing"), 4, "model has w, head"),
        (("drop", "latest"), 5, "newest of run main"),
    ],
)
def test_errors_are_one_sentence_and_a_status(
    store: Path, cairn: Call, args: tuple[str, ...], status: int, part: str
) -> None:
    """stderr has one line that begins with the program's name; stdout has nothing."""
    found, out, err = cairn(*args)
    assert (found, out) == (status, "")
    assert err.startswith("cairn: ")
    assert part in err
    assert err.count("\n") == 1


def test_no_command_is_wrong_usage_and_gives_help(cairn: Call) -> None:
    """The help comes on stderr."""
    for args in ((), ("run",)):
        status, out, err = cairn(*args)
        assert (status, out) == (2, "")
        assert "Commands:" in err


def test_a_folder_that_is_no_store(tmp_path: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 3, whether the folder was named or none was found, with the way out."""
    monkeypatch.chdir(tmp_path)
    for args in (("log",), ("--store", "x", "log")):
        status, out, err = cairn(*args)
        assert (status, out) == (3, "")
        assert "make one with `cairn init" in err


def test_the_store_is_found_like_this(store: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder beside `store`, from inside it, by CAIRN_STORE, and by --store, which wins."""
    assert cairn("log")[0] == 0
    deep = store.parent / "a" / "b"
    deep.mkdir(parents=True)
    for folder in (deep, store, store / "packs"):
        monkeypatch.chdir(folder)
        assert cairn("log")[0] == 0
    monkeypatch.chdir("/")
    monkeypatch.setenv("CAIRN_STORE", str(store))
    assert cairn("log")[0] == 0
    assert cairn("--store", store.parent / "a", "log")[0] == 3


def test_an_ambiguous_id_lists_the_candidates(store: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 4 with every commit that the digits may mean."""

    def alike(self: Journal, prefix: str) -> Iterator[Commit]:
        for commit in self.run("main").state.commits.all():
            yield dataclasses.replace(commit, id="abcdef" + commit.id[6:])

    monkeypatch.setattr(Journal, "with_prefix", alike)
    status, _, err = cairn("show", "abcdef")
    assert status == 4
    for step in (10, 20, 30):
        assert f"main step {step} (abcdef" in err


def test_a_read_only_store_is_a_sentence(store: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing says that the store cannot be written and what works; reading works."""
    refusal = OSError(errno.EROFS, os.strerror(errno.EROFS), "leases/x")
    monkeypatch.setattr(Disk, "create", raising(refusal))
    status, out, err = cairn("tag", "good")
    assert (status, out) == (1, "")
    assert "cannot be written (Read-only file system" in err
    assert "reading and verify work" in err
    assert cairn("log")[0] == 0
    assert cairn("verify")[0] == 0


def test_a_damaged_store_file_is_damage(store: Path, cairn: Call) -> None:
    """Exit status 6 also when the store cannot be opened at all."""
    (store / "cairn.json").chmod(0o644)
    (store / "cairn.json").write_bytes((store / "cairn.json").read_bytes().replace(b"blake3", b"blake4"))
    status, _, err = cairn("log")
    assert status == 6
    assert err.startswith("cairn: ")


def test_an_interrupt_is_130(store: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command without a traceback."""
    monkeypatch.setattr(Store, "verify", raising(KeyboardInterrupt()))
    status, out, err = cairn("verify")
    assert (status, out, err.strip()) == (130, "", "cairn: interrupted")


def test_a_bug_is_a_sentence_that_asks_for_a_report(store: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception names its type and place."""
    monkeypatch.setattr(Store, "verify", raising(ZeroDivisionError("by\x1b[31m zero")))
    status, out, err = cairn("verify")
    assert (status, out) == (1, "")
    assert "unexpected ZeroDivisionError at test_endings.py:" in err
    assert "please report this line" in err
    assert "by\\x1b[31m zero" in err


def test_a_file_that_cannot_be_written_is_a_sentence(store: Path, cairn: Call) -> None:
    """The operating system's words, and the file."""
    status, _, err = cairn("cat", "latest", "model/w", "-o", "no/such/folder")
    assert (status, err) == (1, "cairn: No such file or directory: no/such/folder\n")


def run(store: Path, *args: str, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-W", "error", "-m", "cairn", *args]
    return subprocess.run(command, cwd=store.parent, check=False, **{"stderr": subprocess.PIPE, **streams})


@pytest.mark.parametrize("args", [("log",), ("log", "--json"), ("cat", "latest", "model/w")])
def test_a_reader_that_goes_away_is_no_traceback(store: Path, args: tuple[str, ...]) -> None:
    """`cairn log | head` ends quietly, yet not as if all had been printed."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(store, *args, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("args", [("log",), ("cat", "latest", "model/w")])
def test_a_full_disk_under_the_output_is_a_sentence(store: Path, args: tuple[str, ...]) -> None:
    """What could not be printed is a failure."""
    with open("/dev/full", "wb") as full:
        done = run(store, *args, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith(b"cairn: ")
    assert done.stderr.endswith(b"No space left on device\n")


def test_text_that_the_encoding_lacks_is_escaped(store: Path) -> None:
    """A terminal of another encoding gets escapes instead of an error."""
    done = run(store, "ls", "latest", "model", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "cp437"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"4\\xd75" in done.stdout


def test_long_work_shows_a_sign_of_life_on_a_terminal_only(store: Path) -> None:
    """It appears on stderr after a while, and never in a file."""
    code = (
        "import time\n"
        "from cairn.cli import progress\n"
        "progress.DELAY_SECONDS = 0.01\n"
        "with progress.working('Reading everything'): time.sleep(0.5)\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""
    outer, inner = pty.openpty()
    try:
        subprocess.run(command, stderr=inner, check=True)
        assert b"Reading everything" in os.read(outer, 4096)
    finally:
        os.close(inner)
        os.close(outer)


def test_the_module_is_the_command(store: Path) -> None:
    """`python -m cairn` says its version and runs commands."""
    done = run(store, "--version", stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout[:6]) == (0, b"cairn ")
