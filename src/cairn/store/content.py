"""What is in a commit: load it, look into it, write it out as files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import Damaged, Dropped, NotFound, UsageError
from cairn.history.commit import Commit
from cairn.ids import BlobRef
from cairn.io.leases import reading
from cairn.store.core import Core, check_threads
from cairn.store.reach import kept

if TYPE_CHECKING:
    from cairn.state.make import Make
    from cairn.store.listing import Item

FILES = "files"
"""The component that a committed folder is."""


def load(
    core: Core,
    commit: Commit,
    only: Collection[str] | None,
    *,
    copy: bool = False,
    as_numpy: bool = False,
    make: Make | None = None,
    gaps: bool = False,
    into: Mapping[str, object] | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Return a commit's state. Raises Dropped for content that is no longer kept, unless `only` leaves it out.

    With `gaps`, folders of which some files were dropped are loaded, with Gone in place of these.
    """
    from cairn.state import decode

    check_threads(threads)
    if into is not None and (copy or as_numpy):
        raise UsageError("into: expected neither copy= nor as_numpy= beside it: its tensors are what they are")
    with reading(core.disk, core.layout, "load"), kept(core, commit), _undefined(core, into):
        source = prepare(core, commit)
        manifest = decode.read_manifest(commit.root, source)
        wanted = _check_only(commit, manifest.components, only)
        _check_kept(commit, wanted, gaps=gaps)
        return decode.load(
            commit.root,
            source,
            wanted if only is not None else None,
            copy,
            as_numpy=as_numpy,
            make=make,
            without=commit.dropped,
            into=into,
            threads=threads,
        )


@contextmanager
def _undefined(core: Core, into: Mapping[str, object] | None) -> Iterator[None]:
    """Say what became of `into` where packs cannot be mapped, and so are not checked before they are copied."""
    try:
        yield
    except Damaged as error:
        if into is None or core.blobs.mapped:
            raise
        raise Damaged(f"{error}; what `into` holds is now undefined: load another commit into them") from error


def open_lazily(core: Core, commit: Commit, *, as_numpy: bool = False) -> Mapping[str, Any]:
    """Return a commit's state as a mapping that reads what is touched."""
    from cairn.state.lazy import LazyState

    _check_kept(commit, ())
    with reading(core.disk, core.layout, "open"), kept(core, commit):
        return LazyState(commit.root, _Held(core, commit), commit.dropped, as_numpy=as_numpy)


class _Held:
    """Reads a commit whose packs stay readable for as long as this lives, whatever becomes of their names."""

    def __init__(self, core: Core, commit: Commit) -> None:
        self.tree, self.data, self.fetched = core.tree, core.data, core.fetched
        self._packs = core.blobs.hold(commit.packs)


def prepare(core: Core, commit: Commit) -> Core:
    """Open the packs that a commit's entry names; what they do not hold is looked for when it is read."""
    core.blobs.prefer(commit.packs)
    return core


def checkout(
    core: Core,
    commit: Commit,
    target: Path,
    only: Collection[str],
    *,
    force: bool,
    expect: Callable[[int], None] = lambda nbytes: None,
    advance: Callable[[int], None] = lambda nbytes: None,
) -> list[Path]:
    """Write a commit, or the components and paths in `only`, as files; return what stands at the top.

    `expect` is told how many bytes there are to write, `advance` those that were written.
    """
    from concurrent.futures import ThreadPoolExecutor

    from cairn.files.checkout import weigh, write
    from cairn.files.pour import Tap
    from cairn.files.select import select
    from cairn.state.make import stored
    from cairn.state.parts import missing

    with reading(core.disk, core.layout, "checkout"), kept(core, commit):
        names = component_names(core, commit)
        wanted = {path.partition("/")[0]: None for path in qualified(only, names)} if only else None
        state = load(core, commit, wanted, make=stored, gaps=True)
        chosen = select(state, qualified(only, names))
        gone = next(filter(None, map(missing, chosen.values())), None)
        if gone is not None:
            raise Dropped(
                f"{commit}: {gone.path} was dropped ({gone.part}); name what you want of the rest (only=, --only)"
            )
        expect(weigh(chosen))
        # Asking takes as long as copying, so another thread asks.
        with ThreadPoolExecutor(1, thread_name_prefix="cairn-ask") as asking:

            def ask_for(ref: BlobRef) -> None:
                with suppress(RuntimeError):  # No thread can be started, so nothing is asked for.
                    asking.submit(core.blobs.ask_for, ref)

            tap = Tap(core.blobs.peek, core.blobs.read, ask_for, advance)
            return write(core.disk, chosen, target, force=force, store=core.layout.root, tap=tap)


def component_names(core: Core, commit: Commit) -> list[str]:
    """Return the names of a commit's components."""
    from cairn.state import decode

    return list(decode.read_manifest(commit.root, prepare(core, commit)).components)


def qualified(paths: Collection[str], names: Collection[str]) -> list[str]:
    """Complete paths that begin inside the folder `files`, where no component has the name they begin with."""
    return [path if path.partition("/")[0] in names or FILES not in names else f"{FILES}/{path}" for path in paths]


def ls(core: Core, commit: Commit, path: str | None) -> list[Item]:
    """List what is in a commit."""
    from cairn.store.listing import listing

    _check_kept(commit, ())
    with kept(core, commit):
        prepare(core, commit)
        if path is not None:
            path = qualified([path], component_names(core, commit))[0]
        return listing(core, commit, path)


def cat(core: Core, commit: Commit, path: str, *, as_numpy: bool = False) -> Any:
    """Return one value of a commit, or one tensor of a file in it."""
    from cairn.state.find import locate

    with kept(core, commit):
        path = qualified([path], component_names(core, commit))[0]
        _check_kept(commit, (path.partition("/")[0],), gaps=True)
        value, inside = locate(commit.root, prepare(core, commit), path, as_numpy=as_numpy, without=commit.dropped)
        if inside is None:
            return value
        from cairn.files.inside import array

        return array(value, inside)  # type: ignore[arg-type] # only in files is there anything inside


def _check_only(commit: Commit, components: Mapping[str, BlobRef], only: Collection[str] | None) -> list[str]:
    if only is None:
        return list(components)
    if isinstance(only, str):
        raise UsageError(f"only: expected a set of component names, found the str {only!r}; write {{{only!r}}}")
    for name in only:
        if name not in components:
            raise NotFound(f"{commit} has no component {name!r}: expected one of {', '.join(components)}")
    return [name for name in components if name in only]


def _check_kept(commit: Commit, wanted: Collection[str], *, gaps: bool = False) -> None:
    if commit.is_dropped:
        raise Dropped(f"{commit} was dropped: its content is no longer kept; `cairn undrop` takes that back until gc")
    gone = [part for part in commit.dropped if (part if gaps else part.partition(":")[0]) in wanted]
    if gone:
        raise Dropped(f"{commit}: {', '.join(gone)} was dropped; name what you want of the rest (only=, --only)")
