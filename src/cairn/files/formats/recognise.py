"""Which format a file has, by its first bytes; names do not count."""

from __future__ import annotations

from cairn.files.formats import archives, gguf, npy, safetensors, torch_names, zips
from cairn.files.formats.model import Cut, ReadAt, Refused, Slice, Source, TensorInfo

_HEAD = 16
_LEGACY = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
"""How `torch.save` began files before it wrote archives: a pickle of one large magic number."""


def cut_file(read_at: ReadAt, size: int) -> Cut:
    """Find the slices of a file. Raises only what `read_at` raises: any content has a cut, if only the opaque one."""
    source = Source(read_at, size)
    head = read_at(0, min(size, _HEAD))
    try:
        found = _cut(source, head)
    except Refused as error:
        return Cut("opaque", (), str(error))
    return Cut("opaque", (), None) if found is None else Cut(*found, None)


def tensors(read_at: ReadAt, size: int, *, ahead: bool = True) -> list[TensorInfo]:
    """Name the tensors inside a file, or nothing when it has none or is not as its format says. Executes nothing.

    Without `ahead` no byte of an archive's tensors is read.
    """
    source = Source(read_at, size, ahead)
    head = read_at(0, min(size, _HEAD))
    try:
        return _tensors(source, head)
    except Refused:
        return []


def _cut(source: Source, head: bytes) -> tuple[str, tuple[Slice, ...]] | None:
    if zips.looks_like(head):
        return archives.cut(source)
    if head.startswith(npy.MAGIC):
        return "npy", npy.cut(source)
    if head.startswith(gguf.MAGIC):
        return "gguf", gguf.cut(source)
    if head.startswith(_LEGACY):
        raise Refused("expected an archive as torch writes since 1.6, found its older format of pickles and storages")
    if safetensors.looks_like(head, source.size):
        return "safetensors", safetensors.cut(source)
    return None


def _tensors(source: Source, head: bytes) -> list[TensorInfo]:
    if zips.looks_like(head):
        archive = archives.read(source)
        if archive.format == "torch":
            return torch_names.tensors(source, archive)
        return archives.arrays(source, archive) if archive.format == "npz" else []
    if head.startswith(npy.MAGIC):
        return npy.tensors(source)
    if head.startswith(gguf.MAGIC):
        return gguf.tensors(source)
    if safetensors.looks_like(head, source.size):
        return safetensors.tensors(source)
    return []
