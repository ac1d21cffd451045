"""verify with its levels and repair, and doctor."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.test_space import flip

import cairn as library
from cairn.io.disk import Disk

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def damaged(store: Path) -> Path:
    """The store with a flipped bit in a tensor of step 20; beside it `backup`, a sound copy."""
    shutil.copytree(store, store.with_name("backup"))
    with library.open(store) as opened:
        flip(store, opened.ls("step:20", "model/w")[0].blobs[0].id)
    return store


def test_quick_says_that_it_read_no_tensors(damaged: Path, cairn: Call) -> None:
    """It does not see the flipped bit, and does not claim to."""
    status, out, _ = cairn("verify", "--quick")
    assert status == 0
    assert out.endswith("without reading tensors: nothing is missing.\n")
    assert cairn("verify")[0] == 6


def test_a_sample_and_an_age_say_how_much_was_read(store: Path, cairn: Call) -> None:
    """A share in percent or not; an age by its unit."""
    for args in (("--sample", "5%"), ("--sample", "0.05"), ("--max-age", "30d")):
        status, out, _ = cairn("verify", *args)
        assert status == 0
    assert "and read" in out
    assert out.endswith("nothing wrong was found.\n")


@pytest.mark.parametrize(
    "args",
    [
        ("--sample", "0"),
        ("--sample", "101%"),
        ("--sample", "some"),
        ("--max-age", "30"),
        ("--max-age", "d"),
        ("--quick", "--sample", "5%"),
        ("--quick", "--max-age", "1d"),
        ("--from", "backup"),
        ("--dry-run",),
        ("step:10", "--repair"),
        ("step:10", "--sample", "5%"),
    ],
)
def test_options_that_mean_nothing_are_refused(store: Path, cairn: Call, args: tuple[str, ...]) -> None:
    """As wrong usage, with what was expected."""
    status, out, err = cairn("verify", *args)
    assert (status, out) == (2, "")
    assert err


def test_repair_says_what_it_mends_and_from_where(damaged: Path, cairn: Call) -> None:
    """First what it would do, then what it did; then there is nothing to do."""
    status, out, _ = cairn("verify", "--repair", "--from", "backup", "--dry-run")
    assert status == 6
    assert "would be mended: blob " in out
    assert "from backup, for main step 20 model/w" in out
    assert not (damaged / "damaged").exists()
    status, out, _ = cairn("verify", "--repair", "--from", "backup")
    assert status == 0
    for part in ("mended: blob ", "saved: ", "set aside: pack ", "everything is intact."):
        assert part in out
    assert len(list((damaged / "damaged").iterdir())) == 1
    status, out, _ = cairn("verify", "--repair")
    assert (status, out.splitlines()[0]) == (0, "nothing to mend")


def test_repair_without_a_source_says_what_stays(damaged: Path, cairn: Call) -> None:
    """The damage is still damage, and its hint says how it may be mended."""
    status, out, _ = cairn("verify", "--repair")
    assert status == 6
    assert "left in place: pack " in out
    assert "--from PATH" in out
    assert cairn("verify", "--repair", "--from", "nowhere")[0] == 4


def test_a_repair_as_json_has_the_fields_of_the_library(damaged: Path, cairn: Call) -> None:
    """Report, with the Repair inside it."""
    document = json.loads(cairn("verify", "--repair", "--from", "backup", "--json")[1])
    assert document["ok"]
    assert document["repair"]["executed"]
    assert document["repair"]["mended"][0]["steps"] == ["main step 20 model/w"]


def test_doctor_lines_up_what_it_looked_at(store: Path, cairn: Call) -> None:
    """One line for each check, then what to do, then how many of what."""
    (store / "notes.txt").write_text("mine")
    status, out, _ = cairn("doctor")
    assert status == 0
    assert "ok       links " in out
    assert "\nnames: move them out of the store" in out
    assert "0 problems" in out.splitlines()[-1]
    checks = json.loads(cairn("doctor", "--json")[1])
    assert set(checks[0]) == {"name", "status", "found", "hint"}


def test_doctor_exits_with_1_at_a_problem(store: Path, cairn: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no commit can work."""

    def refused(self: Disk, source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted", str(target))

    monkeypatch.setattr(Disk, "link", refused)
    status, out, _ = cairn("doctor")
    assert status == 1
    assert "problem  links" in out
    assert "1 problem" in out
