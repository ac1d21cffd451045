"""Folding: old entries of a log are copied into one file, byte for byte, and then lose their own.

A folded file is whole and durable before anything is removed. An operation that looked before that may still believe
the number after its newest entry to be free, and it would be, once the entry there has lost its file; so between the
copy and the removal gc waits for all operations that were running, as it does before it deletes packs. Numbers are
removed in ascending order: who finds no next entry, and the last one in its file, has seen the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cairn.errors import Damaged
from cairn.io import entry, folds
from cairn.io.disk import Disk
from cairn.io.entries import Entries
from cairn.io.folds import FoldedFile
from cairn.io.layout import Layout

Block = tuple[int, int]

_GATHER_BYTES = 1 << 20


def folders(disk: Disk, layout: Layout) -> list[Path]:
    """Return the folders of all logs."""
    named = [parent / name for parent in (layout.runs, layout.tags) for name in disk.names(parent, strict=True)]
    return [*named, layout.settings]


def foldable(disk: Disk, folder: Path) -> list[Block]:
    """Return the blocks of a log that can be folded, the largest that are complete; the newest entry never is."""
    singles, blocks = _listed(disk, folder)
    newest = max(singles, default=0)
    found: list[Block] = []
    for size in reversed(folds.SIZES):
        for first in sorted({(seq - 1) // size * size + 1 for seq in (*singles, *(first for first, _ in blocks))}):
            block = (first, first + size - 1)
            if block[1] < newest and not any(_covers(other, block) for other in (*blocks, *found)):
                found.append(block)
    return sorted(found)


def fold(disk: Disk, layout: Layout, write_id: str, folder: Path, block: Block) -> bool:
    """Write a folded file; False when an entry in it cannot be read, or is not what follows the one before."""
    name = folds.name_of(*block)
    tmp = layout.temporary(write_id, f"fold-{block[0]}-{block[1]}")
    try:
        disk.write_new(folder / name, _lines(Entries(disk, folder), block), tmp=tmp)
    except Damaged:
        return False
    return True


def is_doubled(disk: Disk, folder: Path) -> bool:
    """Whether something stands in two files, so that `clear` has work."""
    singles, blocks = _listed(disk, folder)
    return any(_doubles(block, singles, blocks) for block in blocks)


def clear(disk: Disk, folder: Path) -> int:
    """Remove what stands in a longer folded file, too, after a comparison; return how many entries lost their file.

    Only to be called when every operation has ended that was running when the last folded file was made.
    """
    singles, blocks = _listed(disk, folder)
    removed = 0
    if is_doubled(disk, folder):
        # Whoever made a folded file may not have come to this.
        disk.sync_folder(folder)
    # The longest first: what it holds is gone before its turn comes.
    for block in sorted(blocks, key=lambda block: block[0] - block[1]):
        inside, inner = _doubles(block, singles, blocks) or ([], [])
        if block not in blocks or not (inside or inner):
            continue
        whole = FoldedFile(disk, folder / folds.name_of(*block), *block)
        for seq in inside:
            if disk.read(folder / entry.name_of(seq)) == whole.line(seq):
                disk.unlink(folder / entry.name_of(seq))
                singles.discard(seq)
                removed += 1
        for other in inner:
            path = folder / folds.name_of(*other)
            lines = enumerate(FoldedFile(disk, path, *other).lines(), other[0])
            if all(whole.line(seq) == line for seq, line in lines):
                disk.unlink(path)
                blocks.remove(other)
    return removed


def _lines(entries: Entries, block: Block) -> Iterator[bytes]:
    """Yield the lines of a block, many at a time."""
    previous: str | None = entries.entry(block[0] - 1).seal if block[0] > 1 else None
    gathered: list[bytes] = []
    size = 0
    for line, found in entries.lines(range(block[0], block[1] + 1)):
        if found.document.get("previous") != previous:
            raise Damaged(f"{found.file}: expected the seal of the entry before it")
        previous = found.seal
        gathered.append(line)
        size += len(line)
        if size >= _GATHER_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)


def _doubles(block: Block, singles: set[int], blocks: list[Block]) -> tuple[list[int], list[Block]] | None:
    """The entries and blocks that stand in a folded file and elsewhere, the newest entry aside."""
    newest = max(singles, default=0)
    inside = [seq for seq in sorted(singles) if block[0] <= seq <= block[1] and seq != newest]
    inner = [other for other in blocks if other != block and _covers(block, other)]
    return (inside, inner) if inside or inner else None


def _listed(disk: Disk, folder: Path) -> tuple[set[int], list[Block]]:
    singles, blocks = set(), []
    for name in disk.names(folder):
        if (number := entry.number_of(name)) is not None:
            singles.add(number)
        elif (block := folds.block_of(name)) is not None:
            blocks.append(block)
    return singles, blocks


def _covers(outer: Block, inner: Block) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
