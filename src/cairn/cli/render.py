"""The library's objects as text for people."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from cairn.cli import text
from cairn.cli.jsonout import plain

if TYPE_CHECKING:
    from cairn.history.commit import Commit
    from cairn.history.journal import Tag
    from cairn.history.replay import Move
    from cairn.history.run import Summary
    from cairn.store.listing import Item


def optional(value: object) -> str:
    """Spell what may be absent."""
    return "" if value is None else str(value)


def commit(made: Commit) -> str:
    """Name a commit in a sentence."""
    return text.safe(str(made))


def dropped(made: Commit) -> str:
    """Say what of a commit is no longer kept."""
    if made.is_dropped:
        return "dropped"
    return text.safe(f"dropped: {', '.join(made.dropped)}") if made.dropped else ""


def metrics(values: Mapping[str, float | int]) -> str:
    """Spell metrics on one line."""
    return " ".join(f"{text.safe(name)}={text.number(value)}" for name, value in values.items())


def log(commits: Iterable[Commit], tags: Mapping[str, Tag]) -> str:
    """One line for each commit."""
    names: dict[str, list[str]] = {}
    for name, tag in tags.items():
        names.setdefault(tag.commit.id, []).append(f"tag {name}")
    rows = [
        (
            text.short(made.id),
            optional(made.step),
            optional(made.epoch),
            text.seconds(made.time),
            metrics(made.metrics),
            ", ".join([*names.get(made.id, []), *filter(None, [dropped(made)])]),
            text.first_line(made.message),
        )
        for made in commits
    ]
    return text.table(("commit", "step", "epoch", "time", "metrics", "marks", "message"), rows, (1, 2)) if rows else ""


def show(made: Commit, tags: Iterable[str], inside: str) -> str:
    """Everything that is known of a commit, with the words for what is inside."""
    values = [f"{text.safe(name)} = {value!r}" for name, value in made.metrics.items()]
    message = "\n".join(map(text.safe, (made.message or "").splitlines()))
    return text.pairs(
        [
            ("commit", made.id),
            ("run", made.run),
            ("step", optional(made.step)),
            ("epoch", optional(made.epoch)),
            ("time", text.seconds(made.time)),
            ("tags", ", ".join(tags)),
            ("metrics", "\n".join(values)),
            ("message", message),
            ("parents", "\n".join(made.parents)),
            ("manifest", made.manifest),
            ("content", inside),
            ("dropped", "everything" if made.is_dropped else text.safe(", ".join(made.dropped))),
            *((text.safe(name), _words(value)) for name, value in made.provenance.items()),
        ]
    )


def reflog(moves: Iterable[Move]) -> str:
    """One line for each thing that happened to a run."""
    rows = [
        (
            str(move.seq),
            text.seconds(move.time),
            move.op,
            text.short(move.commit or ""),
            move.attempt or "",
            text.first_line(move.text),
        )
        for move in moves
    ]
    return text.table(("entry", "time", "what", "commit", "leaves", "text"), rows, (0,)) if rows else ""


def tags(found: Mapping[str, Tag]) -> str:
    """One line for each tag."""
    rows = [
        (name, text.short(tag.commit.id), tag.commit.run, optional(tag.commit.step), text.seconds(tag.time))
        for name, tag in found.items()
    ]
    return text.table(("tag", "commit", "run", "step", "set"), rows, (3,)) if rows else ""


def runs(found: Iterable[Summary]) -> str:
    """One line for each run and each attempt: its name, the length of its line, its tip."""
    rows = [
        (
            text.safe(line.name),
            str(line.commits),
            text.short(line.tip.id) if line.tip else "",
            optional(line.tip.step) if line.tip else "",
            text.seconds(line.tip.time) if line.tip else "",
            dropped(line.tip) if line.tip else "",
        )
        for run in found
        for line in (run, *run.attempts)
    ]
    return text.table(("run", "commits", "newest", "step", "time", "marks"), rows, (1, 3)) if rows else ""


def components(items: Iterable[Item]) -> str:
    """One line for each component."""
    rows = [(text.safe(item.path), _some(item.tensors), _some(item.files), text.size(item.bytes)) for item in items]
    return text.table(("component", "tensors", "files", "bytes"), rows, (1, 2, 3)) if rows else ""


def content(items: Iterable[Item]) -> str:
    """One line for each component, in words."""
    return "\n".join(f"{text.safe(item.path)}: {', '.join(_held(item))}" for item in items)


def _held(item: Item) -> Iterator[str]:
    if item.tensors or not item.files:
        yield text.count(item.tensors, "tensor")
    if item.files:
        yield text.count(item.files, "file")
    yield text.size(item.bytes)


def items(found: Iterable[Item]) -> str:
    """One line for each value."""
    rows = [(text.safe(item.path), _type(item), _shape(item.shape), _weight(item), _content(item)) for item in found]
    return text.table(("path", "type", "shape", "bytes", "value"), rows, (3,))


def checked_out(paths: Collection[object], target: object) -> str:
    """Say what was written."""
    names = "\n".join(text.safe(str(path)) for path in paths)
    return f"{names}\nWrote {text.count(len(paths), 'file')} to {text.safe(str(target))}".lstrip("\n")


def _words(value: object) -> str:
    """Spell a member of the provenance, whatever it is."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{text.safe(str(key))} {_words(item) or 'unknown'}" for key, item in value.items())
    return text.safe(value if isinstance(value, str) else json.dumps(plain(value)))


def _shape(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else "×".join(map(str, shape)) or "0-d"


def _some(number: int) -> str:
    return str(number) if number else ""


def _type(item: Item) -> str:
    return item.kind if item.kind in ("file", "link", "dropped") else optional(item.dtype)


def _weight(item: Item) -> str:
    return text.size(item.bytes) if item.kind in ("tensor", "file", "dropped") or item.blobs else ""


def _content(item: Item) -> str:
    if item.tie is not None:
        return f"same memory as {text.safe(item.tie)}"
    if item.kind in ("tensor", "file") or item.blobs:
        return ""
    if item.kind == "dropped":
        return text.safe(f"no longer kept: {item.value}")
    if item.kind == "link":
        return f"to {_link(item.value)}"
    shown = json.dumps(plain(item.value), ensure_ascii=False)
    return text.safe(shown if len(shown) <= 60 else shown[:59] + "…")


def _link(target: object) -> str:
    return text.safe(target.decode("utf-8", "surrogateescape") if isinstance(target, bytes) else str(target))
