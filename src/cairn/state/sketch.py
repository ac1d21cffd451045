"""A state of which everything is decided and nothing is written: its leaves to store, then its trees."""

from __future__ import annotations

from cairn.errors import UnsupportedValue
from cairn.ids import BlobRef
from cairn.state.assemble import Draft, PutTree, References, finish, list_text, ref_text
from cairn.state.atoms import plain_text
from cairn.state.leaf import Leaf
from cairn.state.nodes import NewFile
from cairn.state.stored import StoredFile
from cairn.state.trees import MAX_EXPANDED_BYTES

TOO_MANY_BYTES = (
    f"expected at most {MAX_EXPANDED_BYTES} bytes of trees, found more; store long lists of numbers as arrays"
)


class Sketch:
    """A validated state of which nothing is written yet."""

    def __init__(
        self,
        drafts: dict[str, Draft],
        components: dict[str, list[Leaf]],
        files: dict[str, list[NewFile | StoredFile]],
        ties: list[bytes],
        left_out: tuple[str, ...],
    ) -> None:
        """Hold what `sketch` found."""
        self.components = components
        """The leaves by component, in the order of the state; memory that occurs again has no second leaf."""
        self.files = files
        """The files by component, in the order of the state."""
        self.left_out = left_out
        """What the folders in the state leave out."""
        self._drafts = drafts
        self._ties = ties

    def manifest(self, refs: References, put_tree: PutTree) -> BlobRef:
        """Write all trees, the manifest last, and return its reference; `refs` has the pieces of every leaf."""
        written = 0

        def put(tree: bytes) -> BlobRef:
            nonlocal written
            written += len(tree)
            if written > MAX_EXPANDED_BYTES:
                raise UnsupportedValue(f"state: {TOO_MANY_BYTES}; nothing was committed")
            return put_tree(tree)

        entries = [
            plain_text(name) + b":" + ref_text(put(finish(draft, refs, put))) for name, draft in self._drafts.items()
        ]
        ties = list_text(self._ties, put)
        return put(b'{"components":{' + b",".join(entries) + b'},"ties":' + ties + b"}")
