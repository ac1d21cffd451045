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
    return lines + text.pairs(
        [
            ("each alone", f"{text.size(measured.raw)}, if every kept commit stood alone"),
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
        rows = [(text.short(pack.id), text.size(pack.bytes), str(pack.blobs)) for pack in plan.dead]
        shown = rows if len(rows) <= render_rules.SHOWN + 1 else rows[: render_rules.SHOWN]
        more = [] if shown is rows else [(f"… and {len(rows) - len(shown)} more", "", "")]
        parts.append(text.table(("dead pack", "bytes", "blobs"), [*shown, *more], (1, 2)) + "\n")
    partly = f", of which {text.size(plan.partly_dead_bytes)} in them are not needed" if plan.partly_dead_bytes else ""
    trash = (
        f", and {text.count(plan.in_trash, 'pack')} from earlier in the trash to judge again" if plan.in_trash else ""
    )
    parts.append(
        text.pairs(
            [
                ("kept", f"{text.count(plan.kept_packs, 'pack')}, {text.size(plan.kept_bytes)}{partly}"),
                (goes, f"{text.count(len(plan.dead), 'pack')}, {text.size(plan.dead_bytes)}{trash}"),
                ("folded" if plan.executed else "to fold", _entries(plan.folded if plan.executed else plan.foldable)),
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


def _entries(number: int) -> str:
    return text.count(number, "old entry", "old entries") if number else ""
