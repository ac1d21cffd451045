"""The check before publishing: is every pack that an entry needs really there, and there to stay?

An index, an open mapping or an earlier look-up proves nothing, because gc may have moved a pack since. A pack in the
trash is taken back. Together with the lease that the caller has held since before its first look-up, this is what
makes gc safe: see `cairn.store.collecting` for the other half.

Nor does a name that is seen prove that it survives a power cut: the writer who gave it may have died before that, or
may be about to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cairn.io.disk import Disk
from cairn.io.layout import Layout
from cairn.objects.blobs import Blobs, list_trash


def secure(disk: Disk, layout: Layout, blobs: Blobs, needed: Mapping[str, int]) -> set[str]:
    """Make sure that packs, by id with their size in bytes, are in place for good; return those that are lost."""
    lost = {pack_id for pack_id, size in needed.items() if not _is_there(disk, layout, pack_id, size)}
    if not lost:
        settle(disk, layout, blobs, needed)
    return lost


def _is_there(disk: Disk, layout: Layout, pack_id: str, size: int) -> bool:
    target = layout.pack(pack_id)
    if disk.size(target) == size:
        return True
    for item in list_trash(disk, layout):
        if item.pack_id == pack_id and disk.size(layout.trashed(item)) == size:
            disk.make_folder(target.parent)
            try:
                disk.rename(layout.trashed(item), target)
            except FileNotFoundError:
                continue
            disk.sync_folder(target.parent)
            disk.sync_folder(layout.trash)
    # Somebody else may have taken it back between the two looks.
    return disk.size(target) == size


def settle(disk: Disk, layout: Layout, blobs: Blobs, needed: Iterable[str]) -> None:
    """Make the names of packs durable that nobody is known to have made so."""
    names = set(needed) - blobs.durable
    for folder in sorted({layout.pack(pack_id).parent for pack_id in names}):
        disk.sync_folder(folder)
    if names:
        disk.sync_folder(layout.packs)
        blobs.durable |= names
