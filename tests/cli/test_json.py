"""--json prints the fields of the library's objects under the same names."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import cairn as library
from cairn.cli.jsonout import plain
from cairn.cli.main import cli
from cairn.ids import BlobRef
from cairn.state.paths import Scalar

Call = Callable[..., tuple[int, str, str]]


def refuse(constant: str) -> None:
    """Fail at what the standard library reads and JSON lacks."""
    raise AssertionError(f"{constant} is no JSON")


def document(text: str) -> Any:
    """Read strict JSON."""
    return json.loads(text, parse_constant=refuse)


def leaves(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Walk the commands that do something."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def as_dict(value: Any) -> Any:
    """Spell a dataclass with what the standard library has."""
    # A selection becomes a tuple of commits, whose fields asdict does not look for.
    text = json.dumps(dataclasses.asdict(value), default=dataclasses.asdict)
    fields = json.loads(text, parse_constant=lambda name: name)
    assert list(fields) == [field.name for field in dataclasses.fields(value)]
    return fields


@pytest.mark.parametrize("revision", ["step:10", "latest"])
def test_a_commit_has_the_fields_of_the_library(store: Path, cairn: Call, revision: str) -> None:
    """show prints every field of Commit, a NaN metric as a string."""
    with library.open(store) as opened:
        expected = as_dict(opened.commit(revision))
    assert document(cairn("show", revision, "--json")[1]) == expected


def test_lists_have_the_fields_of_the_library(store: Path, cairn: Call) -> None:
    """log, ls, reflog and tag print arrays of Commit, Item, Move and Tag."""
    cairn("tag", "good", "step:20")
    with library.open(store) as opened:
        log = [as_dict(commit) for commit in opened.log()]
        moves = [as_dict(move) for move in opened.run("main").reflog()]
        tags = [as_dict(tag) for tag in opened.tags().values()]
        components = [as_dict(item) for item in opened.ls("latest")]
        optimizer = [as_dict(item) for item in opened.ls("latest", "optimizer")]
    assert document(cairn("log", "--json")[1]) == log
    assert document(cairn("reflog", "--json")[1]) == moves
    assert document(cairn("tag", "--json")[1]) == tags
    assert document(cairn("ls", "latest", "--json")[1]) == components
    assert document(cairn("ls", "latest", "optimizer", "--json")[1]) == optimizer
    assert optimizer[-1]["value"] == "NaN"


def test_reports_have_the_fields_of_the_library(store: Path, cairn: Call) -> None:
    """verify, du and gc print Report, Usage and GcPlan; what these compute stands beside the fields."""
    with library.open(store) as opened:
        report, usage = as_dict(opened.verify()), as_dict(opened.du(["latest"]))
        plan = opened.gc(keep_last=1, compact=True, dry_run=True)
    assert document(cairn("verify", "--json")[1]) == {"ok": True, **report}
    assert document(cairn("du", "latest", "--json")[1]) == usage
    sums = {name: getattr(plan, name) for name in ("dead_bytes", "rewritten_bytes", "compacted_bytes")}
    assert document(cairn("gc", "--keep-last", 1, "--compact", "--dry-run", "--json")[1]) == {**as_dict(plan), **sums}
    assert plan.dead_bytes > 0


@pytest.mark.parametrize(
    ("args", "check"),
    [
        (("tag", "good", "step:20"), lambda made: made["step"] == 20),
        (("rewind", "step:20"), lambda made: made["step"] == 20),
        (("run", "create", "other", "step:20"), lambda made: made["name"] == "other" and made["tip"]["step"] == 20),
        (("run", "list"), lambda made: [(run["name"], run["commits"]) for run in made] == [("main", 3)]),
        (("run", "rename", "main", "new"), lambda made: made == {"renamed": "main", "name": "new"}),
        (("run", "delete", "main"), lambda made: made == {"deleted": "main"}),
        (("drop", "step:10", "step:20"), lambda made: [commit["dropped"] for commit in made] == [["*"], ["*"]]),
        (("undrop", "step:10"), lambda made: made == []),
        (("checkout", "latest", "out"), lambda made: "out/model.safetensors" in made),
        (("reindex",), lambda made: made == {"packs": 3}),
        (("init", "new"), lambda made: made["path"] == "new" and len(made["id"]) == 32),
    ],
)
def test_every_command_prints_one_document(
    store: Path, cairn: Call, args: tuple[str, ...], check: Callable[[Any], bool]
) -> None:
    """With --json stdout is one JSON document and stderr is empty."""
    status, out, err = cairn(*args, "--json")
    assert (status, err) == (0, "")
    assert check(document(out))


def test_every_command_but_cat_can_print_json() -> None:
    """What cat prints is the content itself; everything else has --json."""
    without = {
        name for name, command in leaves(cli) if "--json" not in [each for one in command.params for each in one.opts]
    }
    assert without == {"cat"}


def test_deleting_a_tag_prints_one_document(store: Path, cairn: Call) -> None:
    """A command without a result says what it did."""
    cairn("tag", "good")
    assert document(cairn("tag", "good", "--delete", "--json")[1]) == {"deleted": "good"}


def test_json_spells_what_json_lacks() -> None:
    """Numbers that JSON lacks are strings, blobs and tuples arrays, paths strings."""
    values = {
        "floats": [math.nan, math.inf, -math.inf, 0.1],
        "blob": BlobRef("ab", 3),
        "path": Path("a/b"),
        "tuple": (1, True, None),
        "complex": complex(1, math.nan),
        "bytes": b"\xff",
        "scalar": Scalar("F32", b"\x00\x01"),
    }
    assert plain(values) == {
        "floats": ["NaN", "Infinity", "-Infinity", 0.1],
        "blob": ["ab", 3],
        "path": "a/b",
        "tuple": [1, True, None],
        "complex": {"$complex": [1.0, "NaN"]},
        "bytes": {"$bytes": "/w=="},
        "scalar": {"$scalar": {"dtype": "F32", "data": "0001"}},
    }
    with pytest.raises(TypeError, match="no JSON for object"):
        plain(object())
