"""The content of a state into the store, or only counted: what publishing and planning have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cairn.ids import BlobRef
from cairn.objects.intake import Intake

if TYPE_CHECKING:
    from cairn.files.take import Opaque
    from cairn.state.sketch import Sketch


@dataclass(frozen=True, slots=True)
class Content:
    """What was taken in: the manifest, and what is worth saying about the files."""

    manifest: BlobRef
    files: Mapping[str, int]
    opaque: tuple[Opaque, ...]
    left_out: tuple[str, ...]


def take_in(
    intake: Intake, sketch: Sketch, advance: Callable[[int], None], renew: Callable[[], None] = lambda: None
) -> Content:
    """Store the leaves, files and trees of a state; `renew` is called now and then."""
    refs: dict[Any, Any] = {}
    formats: Counter[str] = Counter()
    opaque: tuple[Opaque, ...] = ()
    for name, leaves in sketch.components.items():
        refs.update(intake.component(leaves))
        renew()
        if sketch.files[name]:
            # Imported here: most commits are of live state only.
            from cairn.files.take import take_in as take_in_files

            taken = take_in_files(intake, sketch.files[name], advance)
            refs.update(taken.refs)
            formats.update(taken.formats)
            opaque += taken.opaque
            renew()
    manifest = sketch.manifest(refs, intake.tree)
    return Content(manifest, dict(sorted(formats.items())), opaque, sketch.left_out)
