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
    from cairn.history.run import Move
    from cairn.store.gc import GcPlan
    from cairn.store.listing import Item
    from cairn.store.retention import Retention
    from cairn.store.usage import Usage
    from cairn.store.verify import Finding, Report


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
        (str(move.seq), text.seconds(move.time), move.op, text.short(move.commit or ""), text.first_line(move.text))
        for move in moves
    ]
    return text.table(("entry", "time", "what", "commit", "text"), rows, (0,)) if rows else ""


def tags(found: Mapping[str, Tag]) -> str:
    """One line for each tag."""
    rows = [
        (name, text.short(tag.commit.id), tag.commit.run, optional(tag.commit.step), text.seconds(tag.time))
        for name, tag in found.items()
    ]
    return text.table(("tag", "commit", "run", "step", "set"), rows, (3,)) if rows else ""


def runs(found: Iterable[tuple[str, int, Commit | None]]) -> str:
    """One line for each run: its name, the length of its line, its tip."""
    rows = [
        (
            name,
            str(length),
            text.short(tip.id) if tip else "",
            optional(tip.step) if tip else "",
            text.seconds(tip.time) if tip else "",
        )
        for name, length, tip in found
    ]
    return text.table(("run", "commits", "newest", "step", "time"), rows, (1, 3)) if rows else ""


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


def usage(measured: Usage) -> str:
    """One line for each commit, and the whole."""
    rows = [
        (
            text.short(row.commit.id),
            row.commit.run,
            optional(row.commit.step),
            text.size(row.raw),
            text.size(row.own),
            text.size(row.shared),
            text.size(row.freed_now),
            text.size(row.freed_compacted),
        )
        for row in measured.commits
    ]
    head = ("commit", "run", "step", "bytes", "own", "shared", "a drop frees", "compacted")
    lines = text.table(head, rows, (2, 3, 4, 5, 6, 7)) + "\n\n" if rows else ""
    return lines + text.pairs(
        [
            ("each alone", f"{text.size(measured.raw)}, if every kept commit stood alone"),
            ("needed", f"{text.size(measured.needed)}, each blob once"),
            ("stored", f"{text.size(measured.stored)}, all packs"),
        ]
    )


def checked_out(paths: Collection[object], target: object) -> str:
    """Say what was written."""
    names = "\n".join(text.safe(str(path)) for path in paths)
    return f"{names}\nWrote {text.count(len(paths), 'file')} to {text.safe(str(target))}".lstrip("\n")


def retention(rules: Retention) -> str:
    """Say what the rules keep, each with its reasons, and what they drop."""
    rows = [("keep", kept.commit, ", ".join(kept.reasons)) for kept in rules.kept]
    rows += [("drop", made, "no rule keeps it") for made in rules.dropped]
    cells = [
        (verb, text.short(made.id), made.run, optional(made.step), text.safe(reason)) for verb, made, reason in rows
    ]
    return text.table(("rules", "commit", "run", "step", "because"), cells, (3,)) if cells else ""


def gc(plan: GcPlan) -> str:
    """Say what is kept, what goes, what was freed, and what waits and why."""
    goes = "removed" if plan.executed else "to remove"
    parts = [
        retention(plan.retention) + "\n" if plan.retention and (plan.retention.kept or plan.retention.dropped) else ""
    ]
    if plan.dead:
        rows = [(text.short(pack.id), text.size(pack.bytes), str(pack.blobs)) for pack in plan.dead]
        parts.append(text.table(("dead pack", "bytes", "blobs"), rows, (1, 2)) + "\n")
    partly = f", of which {text.size(plan.partly_dead_bytes)} in them are not needed" if plan.partly_dead_bytes else ""
    trash = (
        f", and {text.count(plan.in_trash, 'pack')} from earlier in the trash to judge again" if plan.in_trash else ""
    )
    parts.append(
        text.pairs(
            [
                ("kept", f"{text.count(plan.kept_packs, 'pack')}, {text.size(plan.kept_bytes)}{partly}"),
                (goes, f"{text.count(len(plan.dead), 'pack')}, {text.size(plan.dead_bytes)}{trash}"),
                ("put back", text.count(len(plan.restored), "pack") if plan.restored else ""),
                ("unreadable", "\n".join([*plan.unreadable, "left in place"]) if plan.unreadable else ""),
                ("freed", text.size(plan.freed_bytes) if plan.executed else "nothing: this was a dry run"),
                ("waits for", "\n".join(map(text.safe, plan.waiting_for))),
            ]
        )
    )
    if plan.waiting_for:
        parts.append("The removed packs stay in the trash, because these operations may need them; run gc again later.")
    return "\n".join(part for part in parts if part)


def report(found: Report) -> str:
    """Say what was read and what is wrong."""
    read = ", ".join(
        (
            text.count(found.entries, "entry", "entries"),
            text.count(found.commits, "commit"),
            text.count(found.packs, "pack"),
            f"{text.count(found.blobs, 'blob')} and {text.size(found.bytes)}",
        )
    )
    errors = sum(finding.level == "error" for finding in found.findings)
    warnings = len(found.findings) - errors
    verdict = "everything is intact" if found.ok else f"found {text.count(errors, 'error')}"
    if warnings:
        verdict += f", with {text.count(warnings, 'warning')}"
    return "\n".join([*map(_finding, found.findings), f"Read {read}: {verdict}."])


def _finding(finding: Finding) -> str:
    hit = list(map(text.safe, finding.steps[:5]))
    if len(finding.steps) > 5:
        hit.append(f"and {len(finding.steps) - 5} more")
    details = [
        ("  file", text.safe(finding.file)),
        ("  expected", text.safe(finding.expected)),
        ("  found", text.safe(finding.found)),
        ("  hits", "\n".join(hit)),
        ("  to do", text.safe(finding.hint)),
    ]
    return f"{finding.level}: {text.safe(finding.object)}\n{text.pairs(details)}\n"


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
    return item.kind if item.kind in ("file", "link") else optional(item.dtype)


def _weight(item: Item) -> str:
    return text.size(item.bytes) if item.kind in ("tensor", "file") or item.blobs else ""


def _content(item: Item) -> str:
    if item.tie is not None:
        return f"same memory as {text.safe(item.tie)}"
    if item.kind in ("tensor", "file") or item.blobs:
        return ""
    if item.kind == "link":
        return f"to {_link(item.value)}"
    shown = json.dumps(plain(item.value), ensure_ascii=False)
    return text.safe(shown if len(shown) <= 60 else shown[:59] + "…")


def _link(target: object) -> str:
    return text.safe(target.decode("utf-8", "surrogateescape") if isinstance(target, bytes) else str(target))
