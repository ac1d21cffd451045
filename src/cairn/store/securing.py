"""Before an entry needs a commit that is there already: is all of it in place?"""

from __future__ import annotations

from cairn.errors import Damaged, Dropped
from cairn.history.commit import Commit
from cairn.ids import BlobRef
from cairn.objects.pack import Header
from cairn.objects.presence import secure
from cairn.store.core import Core
from cairn.store.reach import blobs_of, kept

_ATTEMPTS = 8


def secure_commit(core: Core, target: Commit, skip: tuple[str, ...] | None = None) -> list[str]:
    """Make sure that every pack a commit needs is in place; return their ids. Raises Damaged or Dropped."""
    if skip is not None:
        return _secure(core, target, skip)
    if target.is_dropped:
        raise Dropped(f"{target} was dropped: its content is no longer kept; `cairn undrop` takes that back")
    with kept(core, target):
        return _secure(core, target, target.dropped)


def _secure(core: Core, target: Commit, skip: tuple[str, ...]) -> list[str]:
    lost: set[str] = set()
    core.blobs.durable.update(target.packs)
    core.blobs.prefer(target.packs)
    for _ in range(_ATTEMPTS):
        sizes = {}
        for ref in blobs_of(core, target.root, skip):
            header = _pack_of(core, ref, target)
            sizes[header.pack_id] = header.size
        lost = secure(core.disk, core.layout, core.blobs, sizes)
        if not lost:
            return sorted(sizes)
        for pack_id in lost:
            core.blobs.forget(pack_id)
    raise Damaged(f"{target} needs packs that are gone: {', '.join(sorted(lost))}; run `cairn verify`")


def _pack_of(core: Core, ref: BlobRef, target: Commit) -> Header:
    reader = core.blobs.find(ref.id, everywhere=True)
    if reader is None:
        raise Damaged(f"{target} needs blob {ref.id}, which is in no pack; run `cairn verify`")
    return reader.header
