"""gc: what goes, found and carried out, in as many rounds as it takes.

What is dead is judged in `cairn.store.judging`, what is rewritten in `cairn.store.compaction`; the steps by which packs
go, and the reason for their order, stand in `cairn.store.collecting`.
"""

from __future__ import annotations

from dataclasses import replace

from cairn.io import leases
from cairn.io.explain import explained
from cairn.objects.blobs import list_packs
from cairn.store.collecting import Collection, planned
from cairn.store.compaction import Wish
from cairn.store.core import Core
from cairn.store.defaults import PATIENCE_SECONDS
from cairn.store.judging import GcPlan, Judgement
from cairn.store.reach import NOTHING
from cairn.store.retention import Retention

__all__ = ["GcPlan", "execute", "pack_bytes", "plan"]


def plan(core: Core, rules: Retention | None = None, threshold: float | None = None) -> GcPlan:
    """Find what is dead once the rules are applied; with a threshold, also what compaction would do.

    Raises Damaged when something needed cannot be read.
    """
    judgement = Judgement(core, rules.without if rules else NOTHING)
    return replace(planned(core, judgement, threshold), retention=rules, deleted_runs=_deleted(core))


def execute(
    core: Core, rules: Retention | None = None, patience: float = PATIENCE_SECONDS, wish: Wish | None = None
) -> GcPlan:
    """Plan and carry it out; what the rules drop has been recorded before. One gc at a time, else raises Busy.

    Compaction needs room before it frees any. On a full disk what one round frees is the room of the next.
    """
    with explained("gc", core.layout.root), leases.sole_gc(core.disk, core.layout):
        rounds = [_round(core, patience, wish)]
        while rounds[-1].short_of_space and rounds[-1].freed_bytes > 0:
            rounds.append(_round(core, patience, wish))
        return replace(_joined(rounds), retention=rules, deleted_runs=_deleted(core))


def _deleted(core: Core) -> tuple[str, ...]:
    return tuple(name for name, run in sorted(core.journal.runs().items()) if run.deleted_at and not run.is_renamed)


def _round(core: Core, patience: float, wish: Wish | None) -> GcPlan:
    if wish is None:
        return Collection(core).run(patience)
    with leases.leased(core.disk, core.layout, "gc --compact") as lease:
        return Collection(core, lease, wish).run(patience)


def _joined(rounds: list[GcPlan]) -> GcPlan:
    """What came of several rounds; what is kept and what had to wait is as the last one left it."""
    return replace(
        rounds[-1],
        in_trash=rounds[0].in_trash,
        foldable=rounds[0].foldable,
        folded=sum(each.folded for each in rounds),
        freed_bytes=sum(each.freed_bytes for each in rounds),
        dead=tuple(pack for each in rounds for pack in each.dead),
        redundant=tuple(pack for each in rounds for pack in each.redundant),
        rewrites=tuple(rewrite for each in rounds for rewrite in each.rewrites),
        deleted=tuple(pack for each in rounds for pack in each.deleted),
        restored=tuple(pack for each in rounds for pack in each.restored),
        written=tuple(pack for each in rounds for pack in each.written),
        damaged=tuple(dict.fromkeys(reason for each in rounds for reason in each.damaged)),
    )


def pack_bytes(core: Core) -> int:
    """Return the bytes of all packs in the store."""
    return sum(core.disk.size(core.layout.pack(pack_id)) or 0 for pack_id in list_packs(core.disk, core.layout))
