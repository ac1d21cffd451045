"""Rules as text, and what they keep of a line of commits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cairn
from cairn.history.commit import seconds
from cairn.state.parts import Parts
from cairn.state.parts import parse as part_of
from cairn.store.rules import parse
from cairn.store.verdict import Verdict, judge


@dataclass(frozen=True)
class Row:
    """What rules look at, and nothing else."""

    id: str
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    time: str = "2026-01-01T00:00:00.000000Z"
    dropped: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The time as a number."""
        return seconds(self.time)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("last:3", "last:3"),
        ("every:1000", "every:1000"),
        ("best:val_loss", "best:val_loss:min:1"),
        ("best:val_loss:2", "best:val_loss:min:2"),
        ("best:acc:max", "best:acc:max:1"),
        ("best:acc:max:3", "best:acc:max:3"),
        ("best:min:max", "best:min:max:1"),
        ("within:30d", "within:30d"),
        ("optimizer:2", "optimizer:2"),
        ("files:*.pt:2", "files:*.pt:2"),
        ("files:sub/:2", "files:sub:2"),
        ("files:a:b.pt:2", "files:a:b.pt:2"),
        ("part:optimizer:2", "optimizer:2"),
        ("part:last:2", "part:last:2"),
        ("part:part:2", "part:part:2"),
        ("part:best:x.pt:2", "part:best:x.pt:2"),
    ],
)
def test_a_rule_is_spelled_as_it_is_read(text: str, spelled: str) -> None:
    """One spelling for each rule; a component called like a word of rules has one, too."""
    assert str(parse(text)) == spelled
    assert parse(spelled) == parse(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("last", "at least 1"),
        ("last:0", "at least 1"),
        ("last:-1", "at least 1"),
        ("last:١", "at least 1"),
        ("every:x", "at least 1"),
        ("best:acc", "say which is better, best:acc:min or best:acc:max"),
        ("best:", "best:METRIC"),
        ("best:loss:up:2", "best:METRIC"),
        ("best:loss:min:0", "at least 1"),
        ("within:30", "as in 90m"),
        ("within:0d", "as in 90m"),
        ("optimizer", "expected last:N"),
        ("optimizer:many", "at least 1"),
        ("files:a/../b:2", "expected a component"),
        ("files::2", "expected a component"),
        (":2", "expected a component"),
        ("", "expected last:N"),
    ],
)
def test_what_is_no_rule_is_refused_with_what_was_expected(text: str, found: str) -> None:
    """A wrong rule never keeps or drops anything."""
    with pytest.raises(cairn.UsageError, match=found):
        parse(text)


LOSSES = {1: math.nan, 2: 0.5, 3: math.nan, 4: 0.4, 5: math.inf, 6: -math.inf, 8: 0.3}


def kept(line: list[Row], *rules: str, always: dict[str, list[str]] | None = None) -> dict[str, tuple[str, ...]]:
    """What some rules keep, with the reasons."""
    return {row.id: reasons for row, reasons in judge(line, [parse(rule) for rule in rules], always or {}).kept}


def test_nan_and_no_value_are_never_best() -> None:
    """NANM-01: of two best losses -inf and .3 stay; a NaN that came first does not block those after it."""
    line = [Row(str(step), step, {"loss": LOSSES[step]} if step in LOSSES else {}) for step in range(8, 0, -1)]
    assert set(kept(line, "best:loss:min:2")) == {"6", "8"}
    assert set(kept(line, "best:loss:max:2")) == {"5", "2"}
    nobody = [row for row in line if row.step in (1, 3, 7)]
    assert set(kept(nobody, "best:loss:min:2")) == {"1", "3", "7"}
    assert set(kept(nobody, "best:loss:min:2", "last:1")) == {"7"}


def test_of_equal_values_the_newest_is_best() -> None:
    """The first of a line is the newest."""
    assert set(kept([Row("new", 2, {"loss": 1.0}), Row("old", 1, {"loss": 1})], "best:loss")) == {"new"}


def test_a_duration_counts_from_the_newest_commit() -> None:
    """Not from now: a run that ended long ago keeps what it has. Times that are none are kept."""
    times = ("2020-01-08T00:00:00Z", "2020-01-07T00:00:00.000000Z", "2020-01-06T23:59:59.9Z", "never", "2020-01-01")
    line = [Row(time, time=time) for time in times]
    assert list(kept(line, "within:1d")) == [times[0], times[1], times[3]]
    assert list(kept(line, "within:1w")) == list(times)
    assert list(kept(line, "within:999999999w")) == list(times)


def test_each_commit_that_stays_has_all_its_reasons() -> None:
    """Rules add up; what is kept in any case says so, too."""
    line = [Row(str(step), step, {"loss": step}) for step in (30, 20, 10, 5)]
    assert kept(line, "last:1", "every:10", "best:loss", "every:20", always={"20": ["tag good"]}) == {
        "30": ("last 1", "every 10"),
        "20": ("every 10", "every 20", "tag good"),
        "10": ("every 10",),
        "5": ("best 1 by loss, min",),
    }


names = st.text("ab.", min_size=1, max_size=3)
rows = st.builds(
    Row,
    id=st.uuids().map(str),
    step=st.none() | st.integers(0, 12),
    metrics=st.dictionaries(st.sampled_from(["loss", "acc"]), st.integers(-2, 2) | st.floats(), max_size=2),
    time=st.integers(0, 50).map(lambda hours: f"2026-01-{1 + hours // 24:02}T{hours % 24:02}:00:00Z"),
    dropped=st.sampled_from([(), (), (), ("*",), ("optimizer",), ("files",), ("files:a",)]),
)
rules = st.sampled_from(
    (
        *("last:1", "last:3", "every:3", "every:5", "best:loss", "best:acc:max:2", "within:5h", "within:1d"),
        *("optimizer:1", "optimizer:2", "files:a:1"),
    )
)


@given(st.lists(rows, max_size=9), st.lists(rules, max_size=4), st.sets(st.integers(0, 8)))
def test_rules_do_what_a_naive_reading_of_them_says(line: list[Row], texts: list[str], safe: set[int]) -> None:
    """Each commit is judged by itself, as the words of the rules say; and a second application changes nothing."""
    always = {row.id: ["tag"] for at, row in enumerate(line) if at in safe}
    verdict = judge(line, [parse(text) for text in texts], always)
    whole = [text for text in texts if not text.startswith(("optimizer", "files"))]
    present = [row for row in line if "*" not in row.dropped]
    whole = [
        text for text in whole if not text.startswith("best") or any(_keeps(text, row, present) for row in present)
    ]
    stay = [
        row for row in present if not whole or row.id in always or any(_keeps(text, row, present) for text in whole)
    ]
    assert [row for row, _ in verdict.kept] == stay
    assert list(verdict.dropped) == [row for row in present if row not in stay]
    lost = {row.id: {limit.subject for limit in limits} for row, limits in verdict.reduced}
    assert lost == {row.id: gone for row in stay if (gone := _loses(texts, row, stay, always))}
    assert not again(line, verdict, texts, always).dropped
    assert not again(line, verdict, texts, always).reduced


def _keeps(text: str, row: Row, present: list[Row]) -> bool:
    word, *rest = text.split(":")
    newer = present[: present.index(row)]
    if word == "last":
        return len(newer) < int(rest[0])
    if word == "every":
        return row.step is not None and row.step % int(rest[0]) == 0
    if word == "within":
        hours = int(rest[0][:-1]) * {"h": 1, "d": 24}[rest[0][-1]]
        return _hour(present[0]) - _hour(row) <= hours
    sign = -1 if "max" in rest else 1
    values = {one.id: sign * one.metrics[rest[0]] for one in present if rest[0] in one.metrics}
    values = {name: value for name, value in values.items() if value == value}
    if row.id not in values:
        return False
    ahead = [one for one in values if values[one] < values[row.id]]
    ahead += [one.id for one in newer if values.get(one.id) == values[row.id]]
    return len(ahead) < (int(rest[2]) if len(rest) > 2 else 1)


def _hour(row: Row) -> int:
    return int(row.time[8:10]) * 24 + int(row.time[11:13])


def _loses(texts: list[str], row: Row, stay: list[Row], always: dict[str, list[str]]) -> set[str]:
    gone = set()
    for part in ("optimizer", "files:a"):
        counts = [int(text.rpartition(":")[2]) for text in texts if text.rpartition(":")[0] == part]
        holders = [one for one in stay if not {part, part.partition(":")[0]} & set(one.dropped)]
        if counts and row in holders and row.id not in always and holders.index(row) >= max(counts):
            gone.add(part)
    return gone


def again(line: list[Row], verdict: Verdict[Row], texts: list[str], always: dict[str, list[str]]) -> Verdict[Row]:
    """Apply the rules to what they left."""
    gone: dict[str, tuple[str, ...]] = {row.id: ("*",) for row in verdict.dropped}
    gone |= {row.id: tuple(limit.subject for limit in limits) for row, limits in verdict.reduced}
    left = [Row(row.id, row.step, row.metrics, row.time, (*row.dropped, *gone.get(row.id, ()))) for row in line]
    return judge(left, [parse(text) for text in texts], always)


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("optimizer.pt", ["optimizer.pt"], ["sub/optimizer.pt", "Optimizer.pt", "optimizer.pt.bak"]),
        ("*.pt", ["a.pt", ".pt"], ["sub/a.pt", "a.PT"]),
        ("*/*.pt", ["sub/a.pt"], ["a.pt", "sub/sub/a.pt"]),
        ("**/*.pt", ["a.pt", "sub/a.pt", "sub/sub/a.pt"], ["a.bin"]),
        ("sub/**", ["sub/a", "sub/b/c"], ["a", "other/a"]),
        ("a[1].pt", ["a[1].pt", "a1.pt"], ["a2.pt"]),
        ("a?", ["ab"], ["a", "abc", "a/b"]),
        ("**/**/**/**/**/**/**/**/x", ["x", "a/x"], ["/".join("a" * 90)]),
    ],
)
def test_a_pattern_is_matched_name_by_name(pattern: str, matches: list[str], others: list[str]) -> None:
    """A star stands for no slash, two stars for any folders, and case counts."""
    parts = Parts([f"files:{pattern}"])
    assert [path for path in matches if parts.gone("files", tuple(path.split("/"))) != f"files:{pattern}"] == []
    assert [path for path in others if parts.gone("files", tuple(path.split("/"))) is not None] == []
    assert parts.gone("other", ("a.pt",)) is None


def test_bytes_that_are_no_text_can_be_named() -> None:
    """A name that is no UTF-8 is matched by its stars and question marks; an entry could not spell it."""
    assert Parts(["files:?.pt"]).gone("files", (b"\xff.pt",)) == "files:?.pt"
    for read, text in ((part_of, "files:\udcff.pt"), (parse, "files:\udcff.pt:2"), (parse, "best:\udcff:min")):
        with pytest.raises(cairn.UsageError, match="UTF-8"):
            read(text)
