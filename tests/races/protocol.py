"""The races that the rules of publishing and of gc are made for, each led to the moment where it is decided.

Each takes a folder's scene, runs one race and raises AssertionError or CairnError when something is lost. The tests
run them as they are; the mutations run them with one rule broken.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.races.checks import goes_on, sound
from tests.races.cuts import beside, during
from tests.races.harness import Operation, StagedDisk, Turn, before, interleaved, killed, perform, spread
from tests.races.scenes import (
    DEAD,
    FIRST,
    TWIN,
    Builder,
    Scene,
    View,
    after,
    build,
    build_with_copies,
    build_with_needed_trash,
    build_with_trash,
    commit,
    compact,
    drop,
    gc,
    load,
    look,
    tag,
    taking,
    twins,
    undrop,
)

import cairn
from cairn.io.layout import Layout

Scenes = Callable[[Builder], Scene]
Race = Callable[[Scenes], object]

PATIENT: Operation = gc(patience=5)

PUBLISHING = before("link", "runs")


def race(scene: Scene, turns: list[Turn], **operations: Operation) -> View:
    """Run operations in turns; all must succeed, and nothing may be lost then or with the next gc."""
    root = scene.copy()
    outcomes = interleaved(root, operations, turns)
    for name, outcome in outcomes.items():
        assert outcome.succeeded, (name, outcome)
    sound(root)
    return goes_on(root)


def looked_before_the_move(scenes: Scenes) -> None:
    """A commit has checked a dead pack that it needs; gc moves the pack, waits for the commit, and judges again."""
    turns = [
        Turn("commit", PUBLISHING),
        Turn("gc", before("sleep")),
        Turn("commit", None),
    ]
    view = race(scenes(build), turns, commit=commit(DEAD, 10), gc=PATIENT)
    assert view.keeps("10 dead")


def looked_before_the_move_and_gc_cannot_wait(scenes: Scenes) -> None:
    """As before, but gc gives up waiting: what it moved stays in the trash, where it is found, for the next gc."""
    turns = [Turn("commit", PUBLISHING), Turn("gc", None)]
    view = race(scenes(build), turns, commit=commit(DEAD, 10), gc=gc())
    assert view.keeps("10 dead")


def stopped_at_any_moment(scenes: Scenes) -> None:
    """A commit needs a dead pack, and a whole gc comes between any two of its looks and steps."""
    scene = scenes(build)
    for at in range(len(perform(scene.copy(), commit(DEAD, 10), StagedDisk(looks=True)).points)):
        root = scene.copy()
        operations = {"commit": commit(DEAD, 10), "gc": gc()}
        outcomes = interleaved(root, operations, [Turn("commit", at), Turn("gc", None)])
        assert all(outcome.succeeded for outcome in outcomes.values()), outcomes
        assert sound(root).keeps("10 dead")


def stopped_at_any_moment_by_compaction(scenes: Scenes) -> None:
    """A commit needs what lies in packs that a whole gc rewrites between any two of its looks and steps."""
    scene = scenes(build)
    for at in spread(len(perform(scene.copy(), commit("first+tip", 10), StagedDisk(looks=True)).points), 60):
        root = scene.copy()
        operations = {"commit": commit("first+tip", 10), "gc": compact()}
        outcomes = interleaved(root, operations, [Turn("commit", at), Turn("gc", None)])
        assert all(outcome.succeeded for outcome in outcomes.values()), outcomes
        assert sound(root).keeps("10 first+tip")


def each_of_two_gcs_takes_another_copy(scenes: Scenes) -> None:
    """Two packs have the same blobs; one gc found the one to be superfluous, one the other, and both carry it out."""
    scene = scenes(build_with_copies)
    one, other = sorted(twins(scene.copy()))
    operations = {"one": taking(lambda root: one), "other": taking(lambda root: other)}
    for at in spread(len(perform(scene.copy(), operations["one"], StagedDisk(looks=True)).points), 60):
        root = scene.copy()
        interleaved(root, operations, [Turn("one", at), Turn("other", None)])
        sound(root)
    goes_on(root)


def the_other_copy_is_damaged(scenes: Scenes) -> None:
    """Two packs have the same blobs, one of them damaged: compaction keeps the good one, whichever that is."""
    scene = scenes(build_with_copies)
    for bad in range(2):
        root = scene.copy()
        path = Layout(root).pack(sorted(twins(root))[bad])
        path.chmod(0o644)
        data = path.read_bytes()
        start = 8 + int.from_bytes(data[:8], "little")
        path.write_bytes(data[:start] + bytes(byte ^ 1 for byte in data[start:]))
        outcome = perform(root, compact())
        assert outcome.succeeded, outcome
        with cairn.open(root, disk=StagedDisk()) as store:
            assert look(store).keeps(f"10 {TWIN}")


def wrote_a_pack_that_nothing_needs_yet(scenes: Scenes) -> None:
    """A commit has written its pack and not yet published; gc leaves a live writer's packs alone."""
    turns = [Turn("commit", PUBLISHING), Turn("gc", None)]
    view = race(scenes(build), turns, commit=commit("new", 10), gc=gc())
    assert view.keeps("10 new")


def knew_the_pack_before_it_was_dropped(scenes: Scenes) -> None:
    """A store that is open for long knows a pack; it is dropped, and gc is about to delete it when a commit needs it.

    The commit begins after gc looked at the leases, so only its own check can save the pack.
    """
    turns = [
        Turn("long", before("create", "tmp")),  # The lease of the load.
        Turn("long", 1),
        Turn("long", before("create", "tmp")),  # The lease of the commit.
        Turn("gc", before("unlink", "trash")),
        Turn("long", None),
    ]
    long = after(load("step:2"), commit(FIRST, 20, "side"))
    view = race(scenes(build), turns, long=long, gc=after(drop("main@2"), gc()))
    assert view.keeps("20 first", "side")


def needed_while_gc_is_about_to_delete(scenes: Scenes) -> None:
    """gc has judged for the last time when an undrop finds the pack in the trash: it must take it back at once."""
    turns = [Turn("gc", before("unlink", "trash")), Turn("undrop", None)]
    view = race(scenes(build), turns, gc=gc(), undrop=undrop("main@1"))
    assert view.keeps("1 dead")


def judged_by_another_gc(scenes: Scenes) -> None:
    """One gc has judged a pack when a writer takes it back; another moves it again; the first may not delete it."""
    turns = [
        Turn("late", before("rename", "trash")),
        Turn("early", before("unlink", "trash")),
        Turn("undrop", None),
        Turn("late", before("fsync folder", "trash")),
        Turn("early", None),
    ]
    view = race(scenes(build), turns, late=gc(), early=gc(), undrop=undrop("main@1"))
    assert view.keeps("1 dead")


def went_back_between_two_looks(scenes: Scenes) -> None:
    """A reader has listed the packs and not yet the trash when a writer takes the pack back."""
    turns = [Turn("load", before("names", "trash")), Turn("tag", None)]
    race(scenes(build_with_needed_trash), turns, load=load("step:10"), tag=tag("mark", "main@10"))


def found_in_the_trash(scenes: Scenes) -> None:
    """What an earlier gc left in the trash is taken back by whatever needs it again."""
    for operation in (undrop("main@1"), commit(DEAD, 10), after(undrop("main@1"), tag("mark", "main@1"))):
        root = scenes(build_with_trash).copy()
        outcome = perform(root, operation)
        assert outcome.succeeded, outcome
        sound(root)
        goes_on(root)


def died_while_committing(scenes: Scenes) -> None:
    """A commit that dies before any of its steps is there whole or not at all."""
    scene = scenes(build)
    before_it = sound(scene.copy())
    root = scene.copy()
    steps = len(perform(root, commit("new", 10), StagedDisk()).points)
    after_it = sound(root)
    for at in range(steps):
        root = scene.copy()
        # Where the pack's folder is there already, the last step does not come.
        assert killed(root, commit("new", 10), at).died or at == steps - 1
        assert goes_on(root) in (before_it, after_it)


def power_failed_during_a_commit(scenes: Scenes) -> None:
    """Whatever of the last writes and names is lost, the commit is there whole or not at all."""
    during(scenes(build), "commit")


def power_failed_during_a_compaction(scenes: Scenes) -> None:
    """Whatever of the last writes and names is lost, nothing is lost that was rewritten."""
    during(scenes(build), "gc --compact")


def power_failed_after_another_used_the_same_pack(scenes: Scenes) -> None:
    """A commit is told that it is done, and needs a pack whose name another writer has not made durable."""
    beside(scenes(build), "commit, its content", dies=False)


def power_failed_after_gc_read_a_drop(scenes: Scenes) -> None:
    """gc has freed what a drop gave up whose entry the dropper, which died, had not made durable."""
    beside(scenes(build), "drop, gc", dies=True)


RACES: dict[str, Race] = {
    function.__name__: function
    for function in (
        looked_before_the_move,
        looked_before_the_move_and_gc_cannot_wait,
        stopped_at_any_moment,
        stopped_at_any_moment_by_compaction,
        each_of_two_gcs_takes_another_copy,
        the_other_copy_is_damaged,
        wrote_a_pack_that_nothing_needs_yet,
        knew_the_pack_before_it_was_dropped,
        needed_while_gc_is_about_to_delete,
        judged_by_another_gc,
        went_back_between_two_looks,
        found_in_the_trash,
        died_while_committing,
        power_failed_during_a_commit,
        power_failed_during_a_compaction,
        power_failed_after_another_used_the_same_pack,
        power_failed_after_gc_read_a_drop,
    )
}
