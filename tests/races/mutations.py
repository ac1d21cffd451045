"""The protocol with one rule broken, each time another, and the race that is lost then.

Each mutation changes the library or the disk under it through a monkeypatch. What breaks is said in one sentence, which
`tests/README.md` repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.races import protocol
from tests.races.harness import StagedDisk
from tests.races.power import PoweredDisk, PoweredFile
from tests.races.protocol import Race

from cairn.history.journal import Journal
from cairn.io import leases
from cairn.io.disk import Disk
from cairn.io.layout import Layout, Trashed
from cairn.io.leases import Lease
from cairn.objects import blobs, intake, presence, writer
from cairn.objects.intake import Intake
from cairn.objects.pack import Header
from cairn.store import publish, securing
from cairn.store.collecting import Collection
from cairn.store.compaction import Copies

Break = Callable[[pytest.MonkeyPatch], None]


class Mutation(NamedTuple):
    """One broken rule."""

    rule: str
    apply: Break
    race: Race


def _no_second_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Collection, "restore", lambda self: ())


def _mark_before_the_wait(patch: pytest.MonkeyPatch) -> None:
    wait, restore = Collection.wait, Collection.restore

    def early(self: Collection, patience: float) -> tuple[str, ...]:
        restore(self)
        return wait(self, patience)

    patch.setattr(Collection, "wait", early)
    patch.setattr(Collection, "restore", lambda self: ())


def _shared_trash_names(patch: pytest.MonkeyPatch) -> None:
    def one_for_all(self: Layout, item: Trashed) -> Path:
        return self.trash / f"{'0' * 32}.{item.pack_id}.safetensors"

    patch.setattr(Layout, "trashed", one_for_all)


def _no_check_of_a_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(intake, "secure", lambda disk, layout, blobs, needed: set())


def _no_check_of_an_undrop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(securing, "secure", lambda disk, layout, blobs, needed: set())


def _no_look_into_the_trash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(presence, "list_trash", lambda disk, layout: [])


def _gc_ignores_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "alive", lambda disk, layout, *, but=None: {})


def _no_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Collection, "wait", lambda self, patience: ())


def _lease_after_the_look_ups(patch: pytest.MonkeyPatch) -> None:
    append = Journal.append

    class Late(Lease):
        def __init__(self, write_id: str) -> None:
            self.write_id = write_id

        def renew(self) -> None: ...

    @contextmanager
    def leased(disk: Disk, layout: Layout, purpose: str) -> Iterator[Lease]:
        yield Late(disk.new_id())

    def late(self: Journal, log: Any, lease: Lease, *rest: Any) -> Any:
        with leases.leased(self._disk, self._layout, "late") as taken:
            return append(self, log, taken if isinstance(lease, Late) else lease, *rest)

    patch.setattr(publish, "leased", leased)
    patch.setattr(Journal, "append", late)


def _entry_before_its_packs(patch: pytest.MonkeyPatch) -> None:
    finish, append = Intake.finish, Journal.append
    later: list[Intake] = []

    def put_off(self: Intake) -> list[str]:
        later.append(self)
        return []

    def then(self: Journal, *arguments: Any) -> Any:
        document = append(self, *arguments)
        while later and later[-1]._disk is self._disk:
            finish(later.pop())
        return document

    patch.setattr(Intake, "finish", put_off)
    patch.setattr(Journal, "append", then)


def _entry_before_its_packs_are_durable(patch: pytest.MonkeyPatch) -> None:
    settle, append = presence.settle, Journal.append
    later: list[tuple[Any, ...]] = []

    def then(self: Journal, *arguments: Any) -> Any:
        document = append(self, *arguments)
        while later:
            settle(*later.pop())
        return document

    patch.setattr(presence, "settle", lambda *arguments: later.append(arguments))
    patch.setattr(Journal, "append", then)


def _no_fsync(part: str) -> Break:
    def apply(patch: pytest.MonkeyPatch) -> None:
        sync = PoweredFile.sync

        def skip(self: PoweredFile) -> None:
            if part not in self.path.name:
                sync(self)

        patch.setattr(PoweredFile, "sync", skip)

    return apply


def _no_fsync_of_a_folder(name: str) -> Break:
    def apply(patch: pytest.MonkeyPatch) -> None:
        sync = PoweredDisk.sync_folder

        def skip(self: PoweredDisk, path: Path) -> None:
            if name not in path.relative_to(self.platter.root).parts:
                sync(self, path)

        patch.setattr(PoweredDisk, "sync_folder", skip)

    return apply


def _names_of_others_are_trusted(patch: pytest.MonkeyPatch) -> None:
    def own(disk: StagedDisk, layout: Layout, *rest: Any) -> Header:
        header = writer.write_pack(disk, layout, *rest)
        disk.sync_folder(layout.pack(header.pack_id).parent)
        disk.sync_folder(layout.packs)
        return header

    patch.setattr(intake, "write_pack", own)
    patch.setattr(presence, "settle", lambda *arguments: None)


def _drops_of_others_are_trusted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Collection, "_settle_entries", lambda self: None)


def _copies_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copies, "cover", lambda self, header: True)


def _copies_in_the_trash_count(patch: pytest.MonkeyPatch) -> None:
    def anywhere(self: Copies, blob: str) -> Iterator[str]:
        reader = self.core.blobs.find(blob, everywhere=True)
        if reader is not None:
            yield reader.header.pack_id

    patch.setattr(Copies, "_good", anywhere)


def _headers_of_copies_suffice(patch: pytest.MonkeyPatch) -> None:
    def named(self: Copies, blob: str) -> Iterator[str]:
        for copy in self.catalogue.copies_of(blob):
            yield copy.pack_id

    patch.setattr(Copies, "_good", named)


def _names_of_copies_are_trusted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Collection, "settle", lambda self: None)


def _one_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(blobs, "_LOOKS", 1)


MUTATIONS = {
    "no second mark": Mutation(
        "gc deletes what it moved without marking again", _no_second_mark, protocol.looked_before_the_move
    ),
    "mark before the wait": Mutation(
        "the second mark comes before the wait for the listed leases",
        _mark_before_the_wait,
        protocol.looked_before_the_move,
    ),
    "shared trash names": Mutation(
        "a gc deletes what another gc judged", _shared_trash_names, protocol.judged_by_another_gc
    ),
    "no check of a commit's packs": Mutation(
        "a commit does not check the packs it needs before it is published",
        _no_check_of_a_commit,
        protocol.knew_the_pack_before_it_was_dropped,
    ),
    "no check of an undrop's packs": Mutation(
        "an undrop, tag, rewind or create does not check the packs it needs",
        _no_check_of_an_undrop,
        protocol.needed_while_gc_is_about_to_delete,
    ),
    "trash not looked into": Mutation(
        "the check before publishing does not look into the trash", _no_look_into_the_trash, protocol.found_in_the_trash
    ),
    "gc ignores leases": Mutation(
        "gc does not ask who is alive", _gc_ignores_leases, protocol.wrote_a_pack_that_nothing_needs_yet
    ),
    "no wait": Mutation(
        "gc deletes without waiting for the leases that it listed",
        _no_wait,
        protocol.looked_before_the_move_and_gc_cannot_wait,
    ),
    "lease after the look-ups": Mutation(
        "a writer takes its lease after it has looked",
        _lease_after_the_look_ups,
        protocol.stopped_at_any_moment,
    ),
    "entry before its packs": Mutation(
        "an entry is created before its packs are named", _entry_before_its_packs, protocol.died_while_committing
    ),
    "entry before its packs are durable": Mutation(
        "an entry is created before the names of its packs are durable",
        _entry_before_its_packs_are_durable,
        protocol.power_failed_during_a_commit,
    ),
    "no fsync of a pack": Mutation(
        "a pack is named before its bytes are durable", _no_fsync(".pack-"), protocol.power_failed_during_a_commit
    ),
    "no fsync of an entry": Mutation(
        "an entry is linked before its bytes are durable", _no_fsync(".entry"), protocol.power_failed_during_a_commit
    ),
    "no fsync of the packs' folders": Mutation(
        "the folders of new packs are not forced", _no_fsync_of_a_folder("packs"), protocol.power_failed_during_a_commit
    ),
    "no fsync of the run's folder": Mutation(
        "the folder of a new entry is not forced", _no_fsync_of_a_folder("runs"), protocol.power_failed_during_a_commit
    ),
    "names of others trusted": Mutation(
        "a writer makes only its own packs' names durable",
        _names_of_others_are_trusted,
        protocol.power_failed_after_another_used_the_same_pack,
    ),
    "drops of others trusted": Mutation(
        "gc deletes before the entries it read are durable",
        _drops_of_others_are_trusted,
        protocol.power_failed_after_gc_read_a_drop,
    ),
    "copies not asked for": Mutation(
        "the second mark takes it that what compaction moved has other copies",
        _copies_not_asked_for,
        protocol.each_of_two_gcs_takes_another_copy,
    ),
    "copies in the trash count": Mutation(
        "a copy that another gc has moved stands in for one that is deleted",
        _copies_in_the_trash_count,
        protocol.each_of_two_gcs_takes_another_copy,
    ),
    "headers of copies suffice": Mutation(
        "a copy stands in for another without being read",
        _headers_of_copies_suffice,
        protocol.the_other_copy_is_damaged,
    ),
    "names of copies trusted": Mutation(
        "gc deletes before the names of the packs that stand in are durable",
        _names_of_copies_are_trusted,
        protocol.power_failed_during_a_compaction,
    ),
    "no fsync of a rewritten pack": Mutation(
        "a rewritten pack is named before its bytes are durable",
        _no_fsync(".pack-"),
        protocol.power_failed_during_a_compaction,
    ),
    "one look": Mutation(
        "a reader looks only once for a pack that moves", _one_look, protocol.went_back_between_two_looks
    ),
}
