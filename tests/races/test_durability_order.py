"""The order of the steps: nothing is named before its bytes are safe, nor needed before its name is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.races.harness import Operation, Point, StagedDisk, perform
from tests.races.scenes import (
    DEAD,
    Builder,
    Scene,
    after,
    build,
    build_with_needed_trash,
    build_with_trash,
    commit,
    create,
    drop,
    gc,
    rename,
    tag,
    undrop,
)

from cairn.objects import gather

PUBLISHING: dict[str, tuple[Builder, Operation]] = {
    "commit": (build, commit("new", 10)),
    "commit to a new run": (build, commit("new", 0, "new")),
    "commit of what lies in the trash": (build_with_trash, commit(DEAD, 10)),
    "undrop of what lies in the trash": (build_with_trash, undrop("main@1")),
    "tag": (build, tag("mark", "main@2")),
    "create": (build, create("new", "main@2")),
    "rename": (build, rename("side", "moved")),
    "drop": (build, drop("main@2")),
}


def steps_of(root: Path, operation: Operation) -> list[Point]:
    """The durable steps of an operation, in order."""
    disk = StagedDisk()
    assert perform(root, operation, disk).succeeded
    return disk.points


def at(points: list[Point], name: str, path: Path) -> list[int]:
    """The places of a step."""
    return [number for number, point in enumerate(points) if (point.name, point.path) == (name, path)]


def named(points: list[Point], name: str, folder: Path) -> list[tuple[int, Path]]:
    """The places of the steps of a kind below a folder, with their paths."""
    return [(n, point.path) for n, point in enumerate(points) if point.name == name and folder in point.path.parents]


@pytest.mark.parametrize("own_packs", [False, True], ids=["one pack", "a pack for each component"])
@pytest.mark.parametrize("name", PUBLISHING)
def test_an_entry_comes_after_all_that_it_stands_on(
    scene: Callable[[Builder], Scene], monkeypatch: pytest.MonkeyPatch, name: str, *, own_packs: bool
) -> None:
    """Packs, their names and folders and the entry's own bytes are safe before its name, its name right after."""
    if own_packs:
        monkeypatch.setattr(gather, "OWN_PACK_BYTES", 16)
    builder, operation = PUBLISHING[name]
    root = scene(builder).copy()
    old = {path.name.split(".")[1] for path in (root / "trash").iterdir()}
    points = steps_of(root, operation)
    links = named(points, "link", root)
    assert links
    tmp = [(n, point.name) for n, point in enumerate(points) if point.path.suffix.startswith(".entry")]
    written, forced = ([n for n, step in tmp if step == name] for name in ("write", "fsync"))
    for (link, target), write, sync in zip(links, written, forced, strict=True):
        assert write < sync < link
        assert any(sync > link for sync in at(points, "fsync folder", target.parent)), target
    first, _ = links[0]
    for number, target in named(points, "rename", root / "packs"):
        assert any(number < sync < first for sync in at(points, "fsync folder", target.parent)), target
        is_new = target.stem not in old
        assert not is_new or any(number < sync < first for sync in at(points, "fsync folder", root / "packs")), target
    for number, folder in named(points, "mkdir", root):
        assert any(number < sync < first for sync in at(points, "fsync folder", folder.parent)), folder


@pytest.mark.parametrize("own_packs", [False, True], ids=["one pack", "a pack for each component"])
def test_a_pack_is_safe_before_it_has_its_name(
    scene: Callable[[Builder], Scene], monkeypatch: pytest.MonkeyPatch, *, own_packs: bool
) -> None:
    """Of each pack the last write comes before its fsync, and that before the rename."""
    if own_packs:
        monkeypatch.setattr(gather, "OWN_PACK_BYTES", 16)
    root = scene(build).copy()
    points = steps_of(root, commit("new", 10))
    renames = [number for number, _ in named(points, "rename", root / "packs")]
    syncs = [number for number, point in enumerate(points) if point.name == "fsync" and ".pack-" in point.path.name]
    assert len(renames) == len(syncs) == (3 if own_packs else 1)
    for sync, renamed in zip(syncs, renames, strict=True):
        written = [n for n, point in enumerate(points) if point == Point("write", points[sync].path, True)]
        assert max(written) < sync < renamed


def test_a_drop_is_safe_before_any_pack_moves(scene: Callable[[Builder], Scene]) -> None:
    """gc with a rule records what it drops, and makes that durable, before it touches a pack."""
    root = scene(build).copy()
    points = steps_of(root, gc(keep_last=1))
    ((link, _),) = named(points, "link", root / "runs")
    moves = [number for number, _ in named(points, "rename", root / "trash")]
    assert moves
    assert any(link < sync < min(moves) for sync in at(points, "fsync folder", root / "runs" / "main"))


def test_gc_deletes_after_everything_that_it_judged_by_is_safe(scene: Callable[[Builder], Scene]) -> None:
    """Names in the trash, and the entries of every run and tag, are durable before the first pack is deleted."""
    root = scene(build).copy()
    points = steps_of(root, after(drop("main@2"), gc()))
    deleted = min(number for number, _ in named(points, "unlink", root / "trash"))
    moved = max(number for number, _ in named(points, "rename", root / "trash"))
    assert any(moved < sync < deleted for sync in at(points, "fsync folder", root / "trash"))
    for log in (root / "runs" / "main", root / "runs" / "side", root / "tags" / "kept"):
        assert any(moved < sync < deleted for sync in at(points, "fsync folder", log)), log


def test_a_pack_that_leaves_its_place_is_safe_in_the_trash_first(scene: Callable[[Builder], Scene]) -> None:
    """Between its move to the trash and that folder's fsync, nothing forces the folder that it left."""
    root = scene(build).copy()
    points = steps_of(root, gc(keep_last=1))
    moves = [number for number, _ in named(points, "rename", root / "trash")]
    left = [n for n, path in named(points, "fsync folder", root / "packs") if n > min(moves)]
    assert left
    assert any(max(moves) < sync < min(left) for sync in at(points, "fsync folder", root / "trash"))


def test_a_pack_that_goes_back_is_safe_in_its_place_first(scene: Callable[[Builder], Scene]) -> None:
    """What gc puts back is durable in packs before its name in the trash is durably gone."""
    root = scene(build_with_needed_trash).copy()
    points = steps_of(root, gc())
    ((back, target),) = named(points, "rename", root / "packs")
    forced = [sync for sync in at(points, "fsync folder", target.parent) if sync > back]
    gone = [sync for sync in at(points, "fsync folder", root / "trash") if sync > back]
    assert min(forced) < min(gone)
