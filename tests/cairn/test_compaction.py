"""gc --compact: what is freed inside packs, what stays together, and who notices."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cairn import folders
from tests.cairn.describe import describe
from tests.cairn.small import changed, flip

import cairn
from cairn.ids import blob_id
from cairn.objects import gather
from cairn.objects.blobs import Blobs
from cairn.objects.catalogue import Catalogue
from cairn.objects.pack import Header, Place
from cairn.store import compaction


def noise(key: int, size: int = 500) -> np.ndarray[Any, Any]:
    """Numbers that follow from a key."""
    return np.random.default_rng(key).normal(size=size)


def state(step: int) -> dict[str, Any]:
    """Two components of a step."""
    return {
        "model": {"w": noise(step), "b": noise(step + 1000, 3).astype("f4"), "n": noise(step + 3000, 5).astype("i1")},
        "optimizer": {"m": noise(step + 2000)},
    }


@pytest.fixture
def tiny(store: cairn.Store) -> cairn.Store:
    """Twenty commits of a few kilobytes, the optimizers of the first ten dropped."""
    for step in range(20):
        store.run().commit(state(step), step=step)
    store.drop([f"step:{step}" for step in range(10)], only={"optimizer"})
    return store


def everything(store: cairn.Store) -> list[str]:
    """What the commits hold that are kept."""
    kept = [commit for commit in store.log() if not commit.is_dropped]
    return [describe(store.load(commit.id, only={"model", "optimizer"} - set(commit.dropped))) for commit in kept]


def data_bytes(root: Path) -> int:
    """The bytes of all blobs in all packs."""
    return sum(size for pack in folders.packs(root) for _, size in folders.head(pack)[1].values())


def test_what_is_not_needed_is_freed_and_the_rest_is_as_it_was(tiny: cairn.Store) -> None:
    """The plan tells what a plain gc leaves; compaction frees it to the byte; there is nothing to do then."""
    before = everything(tiny)
    plain = tiny.gc()
    assert (plain.deleted, plain.freed_bytes) == ((), 0)
    assert plain.partly_dead_bytes == data_bytes(tiny.path) - tiny.du().needed > 10 * 4000
    planned = tiny.gc(compact=True, dry_run=True)
    assert planned.compacted_bytes >= plain.partly_dead_bytes
    assert len(folders.packs(tiny.path)) == 20
    done = tiny.gc(compact=True)
    assert (done.rewrites, done.rewritten_bytes) == (planned.rewrites, tiny.du().needed)
    assert data_bytes(tiny.path) == tiny.du().needed
    assert len(done.deleted) == 20
    assert done.restored == done.damaged == ()
    assert (len(done.written), len(folders.packs(tiny.path))) == (1, 1)
    assert everything(tiny) == before
    assert tiny.verify().findings == ()
    again = tiny.gc(compact=True)
    assert (again.rewrites, again.redundant, again.deleted, again.freed_bytes) == ((), (), (), 0)


def test_a_merged_pack_is_in_the_order_of_the_format(tiny: cairn.Store) -> None:
    """Trees are last, blobs first needed first, and every tensor begins where its elements can be mapped."""
    tiny.gc(compact=True)
    (pack,) = folders.packs(tiny.path)
    metadata, places, _ = folders.head(pack)
    names = list(places)
    trees = names[-int(metadata["trees"]) :]
    assert {commit.manifest for commit in tiny.log()} <= set(trees)
    for step in range(20):
        for item in tiny.ls(f"step:{step}", "model"):
            for blob in item.blobs:
                assert blob.id not in trees
                assert (
                    places[blob.id][0] % np.dtype({"F64": "f8", "F32": "f4", "I8": "i1"}[item.dtype or ""]).itemsize
                    == 0
                )
    ws = [tiny.ls(f"step:{step}", "model/w")[0].blobs[0].id for step in range(20)]
    assert sorted(ws, key=names.index) == ws


def test_a_merged_pack_has_no_more_than_a_reader_can_bear(tiny: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merged packs are of a bounded size, and commits that came after one another lie together."""
    monkeypatch.setattr(compaction, "MERGED_BLOBS", 28)
    before = everything(tiny)
    done = tiny.gc(compact=True)
    found = [set(folders.head(pack)[1]) for pack in folders.packs(tiny.path)]
    assert len(found) == len(done.written) + done.kept_packs == 5
    assert max(map(len, found)) <= 28
    for step in range(20):
        assert sum(not names.isdisjoint({tiny.commit(f"step:{step}").manifest}) for names in found) == 1
    assert everything(tiny) == before


def test_packs_of_big_components_stay_apart(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A component with packs of its own has them after compaction too: dropping it is again one unlink."""
    monkeypatch.setattr(gather, "OWN_PACK_BYTES", 4096)
    monkeypatch.setattr(compaction, "SMALL_BYTES", 2000)
    for step in range(4):
        state = {
            name: {f"{n}": noise(step * 10 + n + 100 * part) for n in range(3)} for part, name in enumerate(("a", "b"))
        }
        if step == 1:
            # Half of what step 0 brought is needed still.
            state["a"]["0"], state["b"]["0"] = noise(0), noise(100)
        store.run().commit(state, step=step)
    store.drop(["step:0"])
    done = store.gc(compact=True)
    assert len([rewrite for rewrite in done.rewrites if len(rewrite.packs) == 1]) == 2
    store.drop(["step:1", "step:2"], only={"b"})
    plan = store.gc()
    assert len(plan.deleted) == 3
    assert plan.partly_dead_bytes < 2000


def test_the_threshold_decides_which_packs_are_rewritten(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack of which less is dead than the threshold stays; what that costs is said."""
    monkeypatch.setattr(compaction, "SMALL_BYTES", 0)
    store.run().commit({"a": {"0": noise(0), "1": noise(1), "2": noise(2)}, "b": noise(3)}, step=1)
    store.run().commit({"c": 1}, step=2)
    store.drop(["step:1"], only={"b"})
    assert not store.gc(compact=True, threshold=0.5).rewrites
    assert store.gc(compact=True, threshold=0.5).partly_dead_bytes > 4000
    assert len(store.gc(compact=True, threshold=0.2).rewrites) == 1
    for wrong in (0, -1, 1.5):
        with pytest.raises(cairn.UsageError, match="threshold"):
            store.gc(compact=True, threshold=wrong)


def test_second_copies_go(store: cairn.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blobs that several packs have are kept once, and du says what that is."""
    find = Blobs.find
    with monkeypatch.context() as patch:
        # As where the index was lost while others wrote.
        patch.setattr(
            Blobs, "find", lambda self, blob, *, everywhere: find(self, blob, everywhere=True) if everywhere else None
        )
        for step in range(3):
            store.run().commit({"model": {"w": noise(1), "step": noise(step + 10)}}, step=step)
    copies = data_bytes(store.path) - store.du().needed
    assert copies >= 2 * 4000
    assert store.gc().partly_dead_bytes == copies
    assert [row.freed_compacted for row in store.du().commits] == [row.own for row in store.du().commits]
    before = [describe(store.load(f"step:{step}")) for step in range(3)]
    store.gc(compact=True)
    assert data_bytes(store.path) == store.du().needed
    assert [describe(store.load(f"step:{step}")) for step in range(3)] == before


def test_a_damaged_blob_keeps_its_pack_and_stops_nothing_else(tiny: cairn.Store) -> None:
    """It is reported; the other packs are rewritten; the damage is neither spread nor dropped."""
    blob = tiny.ls("step:3", "model/w")[0].blobs[0].id
    (pack,) = [pack for pack in folders.packs(tiny.path) if blob in folders.head(pack)[1]]
    _, places, _ = folders.head(pack)
    changed(pack, lambda data: flip(data, places[blob][0]))
    done = tiny.gc(compact=True)
    assert len(done.damaged) == 1
    assert blob in done.damaged[0]
    assert set(folders.packs(tiny.path)) >= {pack}
    assert len(folders.packs(tiny.path)) == 2
    errors = [finding for finding in tiny.verify().findings if finding.level == "error"]
    assert [step for finding in errors for step in finding.steps] == ["main step 3 model/w"]


def test_a_handle_that_was_open_before_commits_on_without_writing_anything_anew(tiny: cairn.Store) -> None:
    """Another process compacts; what the handle knew by packs that are gone it finds in the new ones."""
    with cairn.open(tiny.path) as other:
        run = other.run()
        run.load()
        lazy = run.open(step=15)
        assert len(tiny.gc(compact=True).deleted) == 20
        run.commit(state(19) | {"more": 1}, step=20)
        assert run.last is not None
        assert run.last.new_bytes < 1000
        other.tag("kept", "step:7")
        other.rewind("step:18")
        other.create_run("side", "step:4").commit(state(5), step=5)
        assert describe({name: dict(value) for name, value in lazy.items()}) == describe(state(15))
        assert other.verify().findings == ()


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "read, as on a network file system"])
@pytest.mark.parametrize("own", [True, False], ids=["by the same store", "by another process"])
def test_an_opened_state_outlives_compaction(tiny: cairn.Store, *, own: bool, mapped: bool) -> None:
    """A reader that has found a blob's pack finds the next one when that is gone."""
    with cairn.open(tiny.path) as reader:
        reader._core.blobs.mapped = mapped
        lazy = reader.open("step:12")
        touched = lazy["model"]["w"]
        (reader if own else tiny).gc(compact=True)
        assert not list((tiny.path / "trash").iterdir())
        assert describe({name: dict(value) for name, value in lazy.items()}) == describe(state(12))
        assert np.array_equal(touched, noise(12))
        assert describe(reader.load("step:13")) == describe(state(13))


def test_the_index_knows_the_new_packs_only(tiny: cairn.Store) -> None:
    """Compaction enters what it wrote and removes what it deleted, so no look-up goes astray."""
    tiny.du()
    tiny.gc(compact=True)
    (pack,) = folders.packs(tiny.path)
    rows = tiny._core.index._open().execute("SELECT DISTINCT pack FROM blobs").fetchall()
    assert rows == [(pack.stem,)]
    assert tiny._core.index.count_packs() == 1


def test_undrop_finds_what_compaction_kept_and_says_what_it_took(tiny: cairn.Store) -> None:
    """A dropped component is gone with its bytes; one whose bytes another commit needs comes back."""
    tiny.run().commit({"model": {"w": noise(2)}, "again": {"m": noise(2005)}}, step=20)
    tiny.gc(compact=True)
    with pytest.raises(cairn.Dropped, match="some of its bytes are gone"):
        tiny.undrop(["step:3"])
    assert tiny.verify().findings == ()


def test_a_catalogue_is_small() -> None:
    """A million blobs fit into a hundred megabytes."""
    count, each = 20_000, 10
    headers = [
        Header(
            blob_id(b"%d" % number),
            "0" * 32,
            4096,
            {blob_id(b"%d %d" % (number, n)): Place(n, 1, False) for n in range(each)},
        )
        for number in range(count // each)
    ]
    Catalogue().add(headers[0])
    tracemalloc.start()
    try:
        catalogue = Catalogue()
        empty, _ = tracemalloc.get_traced_memory()
        for header in headers:
            catalogue.add(header)
        used = tracemalloc.get_traced_memory()[0] - empty
    finally:
        tracemalloc.stop()
    # While there are few, each of the runs of bytes has one id or none, and costs most.
    assert used < 200 * count
    for header in headers[::100]:
        for blob in header.places:
            assert [copy.pack_id for copy in catalogue.copies_of(blob)] == [header.pack_id]
            assert not catalogue.is_needed(blob)
            catalogue.need(blob)
            assert catalogue.is_needed(blob)
    assert catalogue.number(blob_id(b"none")) is None
