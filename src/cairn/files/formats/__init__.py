"""Files of other tools, cut at their tensors by reading headers only.

`cut_file` says which byte ranges of a file are a tensor's, a storage's or a zip member's bytes; `tensors` names the
tensors inside. Both recognise a file by its content, believe nothing that it says before it is checked, and execute
nothing. A file that is not exactly as its format says has no slices, and the cut says why. Neither the cut nor the
names are needed to bring a file back: a mistake here can cost sharing, never a byte.

Memory stays below 300 MB whatever the file says: the header, of at most 100 000 000 bytes, at most twice, and some 400
bytes for each of at most 200 000 tensors; a pickle's names take no more. For files that tools write it is a few MB.
"""

from __future__ import annotations

from cairn.files.formats.model import Cut, ReadAt, Slice, TensorInfo
from cairn.files.formats.recognise import cut_file, tensors

__all__ = ["Cut", "ReadAt", "Slice", "TensorInfo", "cut_file", "tensors"]
