"""What was committed, or would be, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from cairn.cli import render, text

if TYPE_CHECKING:
    from cairn.files.take import Opaque
    from cairn.store.importing import Import, Imported
    from cairn.store.planning import CommitPlan
    from cairn.store.publish import Published

_PLAIN = ("opaque", "stored")
"""Formats of files that are not cut at their tensors."""


def published(made: Published) -> str:
    """Say what a commit added."""
    head = "Committed"
    if not made.is_new:
        head = (
            "Wrote anew what was damaged or missing of"
            if made.new_bytes
            else "Nothing to do: the run has this very content as"
        )
    return f"{head} {render.commit(made.commit)}\n{_content(made)}"


def not_recorded(made: Published, metrics: Mapping[str, float | int], message: str | None) -> str:
    """Say what was given with a commit that was there before, and is not kept."""
    if made.is_new:
        return ""
    kept = {name: repr(value) for name, value in made.commit.metrics.items()}
    parts = ["metrics"] if any(kept.get(name) != repr(value) for name, value in metrics.items()) else []
    parts += ["message"] if message is not None and message != made.commit.message else []
    return f"The {' and '.join(parts)} given now were not recorded: the commit keeps what it has." if parts else ""


def plan(run: str, planned: CommitPlan) -> str:
    """Say what a commit would add."""
    head = f"A commit to run {run} would have the manifest {text.short(planned.manifest)}"
    if planned.exists is not None:
        head = f"Nothing to do: the run has this very content as {render.commit(planned.exists)}"
    if planned.conflict is not None:
        head = f"It would be refused: {text.safe(planned.conflict)}"
    return f"{head}\n{_content(planned)}\nThis was a dry run: nothing was written."


def imported(made: Import, dry_run: bool) -> str:
    """One line for each checkpoint, and what all of them add."""
    rows = [
        (
            text.safe(each.name),
            str(each.step),
            render.optional(each.epoch),
            text.size(each.bytes),
            text.size(each.new_bytes) if each.is_new else "",
            text.size(each.shared_bytes) if each.is_new else "",
            text.short(each.commit.id) if each.commit is not None else "",
            _became(each),
            render.metrics(each.metrics),
        )
        for each in made.checkpoints
    ]
    head = ("checkpoint", "step", "epoch", "bytes", "new", "shared", "commit", "", "metrics")
    return text.table(head, rows, (1, 2, 3, 4, 5)) + "\n" + _sum(made, "Would import" if dry_run else "Imported")


def _sum(made: Import, done: str) -> str:
    fresh = [each for each in made.checkpoints if each.is_new]
    if not fresh:
        return f"No checkpoint is new to run {made.run}."
    new, shared = sum(each.new_bytes for each in fresh), sum(each.shared_bytes for each in fresh)
    # Cut off, not rounded: 99.96 % is not everything.
    share = 1000 * shared // (new + shared) / 10
    return (
        f"{done} {text.count(len(fresh), 'checkpoint')} into run {made.run}: {text.size(new)} new, {text.size(shared)} "
        f"shared ({share:g} %)."
    )


def remarks(made: Import) -> Iterator[str]:
    """Say what a person should know beside the result."""
    for left in made.left_out:
        yield f"{text.safe(left.name)} was left out: {text.safe(left.reason)}"
    for each in made.checkpoints:
        if each.conflict is not None:
            yield f"{text.safe(each.name)} was not committed: {text.safe(each.conflict)}"
        if each.note is not None:
            yield f"{text.safe(each.name)}: {text.safe(each.note)}"
        for file in each.opaque:
            yield f"{text.safe(each.name)}/{text.safe(file.path)} was kept as plain bytes: {text.safe(file.reason)}"


def _became(each: Imported) -> str:
    if each.conflict is not None:
        return "conflict"
    if each.commit is not None and each.commit.dropped:
        return "dropped"
    return "" if each.is_new else "was there"


def _content(made: Published | CommitPlan) -> str:
    return text.pairs(
        [
            ("new", text.size(made.new_bytes)),
            ("shared", f"{text.size(made.shared_bytes)} that need no space" if made.shared_bytes else ""),
            ("files", _files(made.files)),
            ("plain bytes", "\n".join(_opaque(made.opaque))),
            ("left out", "\n".join(f"{text.safe(path)}, which is a store" for path in made.left_out)),
        ]
    )


def _files(formats: Mapping[str, int]) -> str:
    cut = [f"{count} {name}" for name, count in formats.items() if name not in _PLAIN]
    others = sum(formats.get(name, 0) for name in _PLAIN)
    parts = ", ".join([*cut, *([f"{others} other"] if others else [])])
    return f"{sum(formats.values())}: {parts}" if parts else "none"


def _opaque(files: Iterable[Opaque]) -> Iterator[str]:
    for file in files:
        yield f"{text.safe(file.path)}: {text.safe(file.reason)}"
