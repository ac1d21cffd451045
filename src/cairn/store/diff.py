"""What changed between two commits: the words of the answer, and the answer that needs no reading.

Equal manifests are equal states, so that is told from two ids. Otherwise trees are compared first: components of one
tree are equal without being read, and bytes are read only of tensors whose blobs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import UsageError
from cairn.history.commit import Commit
from cairn.io.leases import reading

if TYPE_CHECKING:
    from cairn.store.core import Core
from cairn.store.reach import kept


@dataclass(frozen=True, slots=True)
class Numbers:
    """How far two tensors of one shape are apart; floats are computed in float64, whole numbers exactly."""

    elements: int
    changed: int
    """Elements whose bits differ, so -0.0 and 0.0 do; in tensors of two types, those whose values differ."""
    max_abs: int | float
    """Largest distance of two elements, without those that are NaN on either side."""
    relative_l2: float
    """Norm of the difference by the norm of what was before, over the elements that are finite on both sides."""
    nan: int
    """Changed elements that are NaN, or no date, on either side."""


@dataclass(frozen=True, slots=True)
class Side:
    """What stands at a path in one of the commits.

    `kind` is tensor, value, container, file, folder or link. `dtype` is the type of a tensor's elements, of a value or
    of a container. `tie` names the first place of the memory of a tensor that is another place's. A link's `value` is
    its text; that of a long str or bytes is None.
    """

    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    byte_order: str | None = None
    bytes: int = 0
    value: object = None
    tie: str | None = None
    mode: int | None = None
    hash: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One place where the commits differ.

    `kinds` says how: added, removed, replaced (by something of another kind), retied (tied to other places than
    before), reshaped, retyped, byteswapped (only the order of bytes in memory), changed, reordered (keys), mode, recut
    (a file of the same bytes in other blobs). `file` is the path of the file that a tensor lies in.
    """

    path: str
    component: str
    kinds: tuple[str, ...]
    before: Side | None
    after: Side | None
    numbers: Numbers | None = None
    file: str | None = None

    @property
    def kind(self) -> str:
        """The kind of what stands there now, or stood there."""
        side = self.after or self.before
        return side.kind if side is not None else "container"


@dataclass(frozen=True, slots=True)
class ComponentDiff:
    """A component in sum. `status` is same, changed, added or removed.

    `equal_tensors` is None where the trees are the same and were not read. `counts` has the changes by kind of thing,
    then by kind of change; one of two kinds is counted twice.
    """

    name: str
    status: str
    equal_tensors: int | None
    counts: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Diff:
    """What changed from one commit to another; `changes` are sorted by component and path, numbers by their value.

    `components` is empty where equal manifests answered.
    """

    before: Commit
    after: Commit
    path: str | None
    same: bool
    components: tuple[ComponentDiff, ...]
    changes: tuple[Change, ...]


def diff(
    core: Core,
    before: Commit,
    after: Commit,
    path: str | None,
    only: Collection[str] | None,
    *,
    values: bool,
    advance: Callable[[int], None],
) -> Diff:
    """Compare two commits. Raises NotFound, Dropped, Damaged."""
    if path is not None and only is not None:
        raise UsageError("path, only: expected one of them, found both; a path begins with its component")
    if before.manifest == after.manifest and path is None and only is None:
        return Diff(before, after, None, True, (), ())
    # Imported here: equal states are told without numpy.
    from cairn.store.comparison import Comparison

    with reading(core.disk, core.layout, "diff"), kept(core, before), kept(core, after):
        return Comparison(core, before, after, path, only).run(values=values, advance=advance)
