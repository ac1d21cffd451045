"""The trees of a commit: what stands in them, and in which one spelling.

A tree is a blob that holds one canonical JSON value (`cairn.canonical`), at most `MAX_TREE_BYTES` long. A blob is
referred to as `["<id>", n]`: its id and its length. A *blob list* is a JSON list of such references.

**Manifest.** The root tree of a commit:

    {"components": {"<name>": ["<tree id>", n], …}, "ties": TIES}

Names match `[A-Za-z0-9][A-Za-z0-9._-]{0,99}`; their order is the order of the state. The tree of a component holds
one *value*. TIES is a list (split like any other, see below) of

    {"at": ["optimizer", STEPS], "of": ["model", STEPS]}

meaning: the tensor at `at` and the tensor at `of` are one memory. Both components hold the whole `$tensor`, so each
stands alone. `of` is the first place of that memory in the state, always in an earlier component; `at` is its first
place in its own component; ties stand in the order of `at`.

**Values.** These stand for themselves: a str of at most `INLINE_TEXT` bytes in UTF-8 without lone surrogates, true,
false, null, an int within ±2^53, a list of values, and an object (a dict) whose keys are all *plain*: a key is plain
when, as a value, it would stand for itself as a str, and it does not begin with `$`. Everything else is an object with
exactly one member, whose name begins with `$`:

    {"$tensor": {"dtype": D, "shape": [i, …], "blobs": BLOBS}}     a numpy array: its elements in C order, each
                 little-endian. A member "order": "big" follows when the array was big-endian, which is restored at
                 load; so both byte orders share their blobs. BLOBS are the pieces of `cut`; an empty array has [].
                 A member "as": "torch" follows when it was no numpy array but a tensor of torch, with
                 "torch.nn.Parameter" instead of "torch" a Parameter, and with
                 "torch.nn.Parameter(requires_grad=False)" a frozen one. "jax" is an array of jax's,
                 "jax(weak_type=True)" one of a weak type, and "jax.random.key(impl='threefry2x32')" are random keys
                 (also 'rbg' and 'unsafe_rbg'): U32, as jax.random.key_data() gives them. Never together with "order".
    {"$tie": STEPS}                the same memory as an earlier `$tensor` of this component, never an empty one
    {"$scalar": {"dtype": D, "data": "<hex>"}}     a numpy scalar: its bytes, little-endian
    {"$float": "<text>"}           the shortest text that comes back, as Python's repr; a NaN is the 16 hex digits of
                                   its bits, most significant first
    {"$int": "-0x1f…"}             an int beyond ±2^53 in lower-case hex
    {"$complex": ["<text>", "<text>"]}             real and imaginary part, each as in `$float`
    {"$tuple": LIST}
    {"$map": {"type": "dict" | "OrderedDict" | "Counter", "pairs": LIST}}      pairs [key, value] in order; "dict" only
                                   when some key is not plain, the others always. A member "_metadata": VALUE follows
                                   when an OrderedDict has an attribute of this name, as torch's state_dict() gives it
    {"$str": DATA}                 a str that cannot stand for itself: UTF-8, lone surrogates encoded as if they were
                                   characters (Python's `surrogatepass`)
    {"$bytes": DATA}

D is safetensors' name where the bytes agree with safetensors (BF16, F32, …), else numpy's or ml_dtypes' (complex128,
datetime64[ns], int4, …); `cairn.state.dtypes` lists them. Types of less than a byte take a byte an element, except F4,
a type of torch's alone: two values a byte, shapes count values, so there is a last dimension and it is even.
DATA is base64 text up to `INLINE_BYTES` bytes, else the blob list of the pieces of `cut`.
Keys of a `$map` are str, int, bool, null, float, complex, bytes and numpy scalars, and tuples of these, spelled as
values; a key that would need a blob or a part is refused.
STEPS lead from a component's value to a value inside: a str for the key of a dict that stands for itself, an int for
the place in a list, a tuple, or the pairs of a `$map` (then on to the pair's value). In a `$map` the str "_metadata"
leads to the attribute.

**Parts.** A container (dict, list, the LIST of a tuple or of pairs, TIES) whose JSON, with its children in their
final spelling, is longer than `SPLIT_BYTES` is split:

    {"$dict": PARTS}       {"$list": PARTS}

Each part is a tree of its own that holds a run of the entries, an object or a list. A part ends before an entry whose
*name* (the key in UTF-8, or the place in the whole list in decimal) has a BLAKE3 that begins with a zero byte, and
before an entry that would make the part longer than `PART_BYTES`. PARTS is the blob list of the parts; being a list,
it is split by the same rule ({"$dict": {"$list": …}}). A pair, a blob list of a `$tensor`, `$str` or `$bytes`, and
STEPS are never split. One changed value thus costs one part and the lists above it, and the same state always has the
same trees.

**Bounds.** Containers nest at most `MAX_DEPTH` deep, tuples in a key at most `MAX_KEY_DEPTH`. The key of a pair has at
most `SPLIT_BYTES` as JSON, a `$int` at most `MAX_INT_TEXT` characters, an array or string at most `MAX_DATA_BYTES`.
All trees of a commit, each counted as often as it is referred to, have at most `MAX_EXPANDED_BYTES`.
"""

from __future__ import annotations

import re

from blake3 import blake3

MAX_DEPTH = 100
MAX_KEY_DEPTH = 16
MAX_TREE_BYTES = 1 << 24
MAX_EXPANDED_BYTES = 1 << 28
MAX_DATA_BYTES = 1 << 40
MAX_DIMENSIONS = 64
MAX_INT_TEXT = 1 << 20
"""Longest text of a `$int`."""

SPLIT_BYTES = 1 << 16
PART_BYTES = 1 << 20

INLINE_TEXT = 1 << 16
INLINE_BYTES = 1 << 12

MAP_TYPES = ("dict", "OrderedDict", "Counter")
METADATA = "_metadata"
"""The one attribute that an OrderedDict may have; also its step."""

TORCH = "torch"
PARAMETER = "torch.nn.Parameter"
FROZEN_PARAMETER = "torch.nn.Parameter(requires_grad=False)"
TORCH_KINDS = (TORCH, PARAMETER, FROZEN_PARAMETER)
"""What a tensor of torch comes back as."""

JAX = "jax"
WEAK_JAX = "jax(weak_type=True)"
KEY_WORDS = {"threefry2x32": 2, "rbg": 4, "unsafe_rbg": 4}
"""jax's implementations of random keys, and how many numbers a key has."""
JAX_KEYS = {f"jax.random.key(impl='{impl}')": impl for impl in KEY_WORDS}
JAX_KINDS = (JAX, WEAK_JAX, *JAX_KEYS)
"""What an array of jax comes back as."""

COMPONENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def starts_part(name: bytes) -> bool:
    """Whether a new part begins before the entry of this name: true for one name in 256."""
    return blake3(name).digest(1) == b"\0"


def is_plain_key(key: object) -> bool:
    """Whether a dict with this key may stand for itself."""
    return type(key) is str and key[:1] != "$" and stands_for_itself(key)


def stands_for_itself(text: str) -> bool:
    """Whether a str is spelled as a JSON string: short, and without lone surrogates."""
    if len(text) > INLINE_TEXT:
        return False
    try:
        return text.isascii() or len(text.encode()) <= INLINE_TEXT
    except UnicodeEncodeError:
        return False
