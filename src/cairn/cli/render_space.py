"""What weighs what, what is kept and what goes, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.cli import render_rules, text
from cairn.cli.render import optional

if TYPE_CHECKING:
    from cairn.store.gc import GcPlan
    from cairn.store.usage import Usage


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
    parts = [(text.safe(part.name), text.size(part.raw), text.size(part.own)) for part in measured.components]
    lines += text.table(("component", "bytes", "own"), parts, (1, 2)) + "\n\n" if parts else ""
    return lines + text.pairs(
        [
            ("each alone", f"{text.size(measured.raw)}, if every one of these commits stood alone"),
            ("needed", f"{text.size(measured.needed)}, each blob once"),
            ("stored", f"{text.size(measured.stored)}, all packs"),
        ]
    )


def gc(plan: GcPlan) -> str:
    """Say what is kept, what goes, what was freed, and what waits and why."""
    goes = "removed" if plan.executed else "to remove"
    rules = render_rules.retention(plan.retention) if plan.retention else ""
    parts = [f"{rules}\n" if rules else ""]
    if plan.dead:
        rows = [
            (text.short(pack.id), text.size(pack.bytes), str(pack.blobs)) for pack in plan.dead[: render_rules.SHOWN]
        ]
        parts.append(text.table(("dead pack", "bytes", "blobs"), rows, (1, 2)) + _more(len(plan.dead)) + "\n")
    if plan.rewrites:
        cells = [
            (str(len(each.packs)), text.size(each.bytes), text.size(each.needed_bytes), text.size(each.freed_bytes))
            for each in plan.rewrites[: render_rules.SHOWN]
        ]
        table = text.table(("packs to one", "bytes", "to write", "frees"), cells, (0, 1, 2, 3))
        parts.append(table + _more(len(plan.rewrites)) + "\n")
    trash = (
        f", and {text.count(plan.in_trash, 'pack')} from earlier in the trash to judge again" if plan.in_trash else ""
    )
    parts.append(
        text.pairs(
            [
                ("kept", f"{text.count(plan.kept_packs, 'pack')}, {text.size(plan.kept_bytes)}"),
                (goes, f"{text.count(len(plan.dead), 'pack')}, {text.size(plan.dead_bytes)}{trash}"),
                ("folded" if plan.executed else "to fold", _entries(plan.folded if plan.executed else plan.foldable)),
                *_compaction(plan),
                ("runs", f"deleted: {', '.join(plan.deleted_runs)}" if plan.dead and plan.deleted_runs else ""),
                ("put back", text.count(len(plan.restored), "pack") if plan.restored else ""),
                ("unreadable", "\n".join([*plan.unreadable, "left in place"]) if plan.unreadable else ""),
                ("damaged", "\n".join(map(text.safe, plan.damaged))),
                ("freed", _freed(plan)),
                ("not freed", _left(plan)),
                ("waits for", "\n".join(map(text.safe, plan.waiting_for))),
            ]
        )
    )
    if plan.short_of_space:
        parts.append("The disk has no room for more new packs; free some, then run gc --compact again.")
    if plan.waiting_for:
        parts.append("The removed packs stay in the trash, because these operations may need them; run gc again later.")
    return "\n".join(part for part in parts if part)


def _entries(number: int) -> str:
    return text.count(number, "old entry", "old entries") if number else ""


def _more(count: int) -> str:
    """What stands for the rest of a long table; --json has all."""
    return f"\n… and {count - render_rules.SHOWN} more" if count > render_rules.SHOWN else ""


def _compaction(plan: GcPlan) -> list[tuple[str, str]]:
    """What compaction does: packs with second copies only, and packs that give way to new ones."""
    copies = f"{text.count(len(plan.redundant), 'pack')}, {text.size(plan.redundant_bytes)}"
    old = text.count(sum(len(each.packs) for each in plan.rewrites), "pack")
    new = text.count(len(plan.written) if plan.executed else len(plan.rewrites), "pack")
    verb = "read and written" if plan.executed else "to read and write"
    return [
        ("copies", copies if plan.redundant else ""),
        ("rewritten", f"{old} to {new}, {text.size(plan.rewritten_bytes)} {verb}" if plan.rewrites else ""),
    ]


def _freed(plan: GcPlan) -> str:
    if plan.executed and plan.freed_bytes < 0:
        return f"nothing yet: {text.size(-plan.freed_bytes)} more are in use until old packs leave the trash"
    if plan.executed:
        return text.size(plan.freed_bytes)
    return f"nothing: this was a dry run; gc would free {text.size(plan.dead_bytes + plan.compacted_bytes)}"


def _left(plan: GcPlan) -> str:
    """What gc does not free, and how it is freed."""
    left = text.size(plan.partly_dead_bytes) if plan.partly_dead_bytes else ""
    if plan.threshold is None:
        return left and f"{left} in packs that stay; `cairn gc --compact` frees it"
    return left and f"{left} in packs of which less than {plan.threshold:.0%} is not needed"
