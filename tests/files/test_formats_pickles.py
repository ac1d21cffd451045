"""Pickles are read symbolically: every opcode has its meaning, none has an effect, and hostile ones end soon."""

from __future__ import annotations

import collections
import pickle
import sys
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.samples import names, torch_file

from cairn.files.formats import symbolic
from cairn.files.formats.model import Refused
from cairn.files.formats.symbolic import Call, Global, Mapping, Persistent


def plain(node: Any) -> Any:
    """What a symbolic value stands for, as far as it is plain data."""
    if type(node) is Mapping:
        return {key if type(key) is not tuple else plain(key): plain(value) for key, value in node.pairs}
    if type(node) in (list, tuple):
        return type(node)(map(plain, node))
    if type(node) is Call:
        return {"call": plain(node.function), "on": plain(node.arguments), "pairs": plain(Mapping(node.pairs))}
    return f"{node.module}.{node.name}" if type(node) is Global else node


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(VALUES, st.integers(2, 5))
@settings(max_examples=150, deadline=None)
def test_plain_values_are_what_pickle_wrote(value: Any, protocol: int) -> None:
    """Whatever plain data pickle writes in a protocol that torch may use is read back equal."""
    written = pickle.dumps(value, protocol)
    if protocol > 2 or not (b"_codecs" in written or b"__builtin__" in written):
        assert plain(symbolic.read(written)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(protocol: int) -> None:
    """Numbers, texts, sets and repeated values of all protocols are read."""
    shared = ["é", 1, -(1 << 40), 2.5, None, True, False]
    value = {"a": shared, "b": (shared, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), "c": [[], {}, ""]}
    assert plain(symbolic.read(pickle.dumps(value, protocol))) == value
    symbolic.read(pickle.dumps([{1, 2}, frozenset({3}), bytearray(b"x"), 1 << 900], protocol))


def test_objects_are_calls_that_nobody_makes() -> None:
    """What a pickle would import and call is described, and its module is not even imported."""
    value = pickle.dumps([collections.OrderedDict(a=1), Fraction(1, 3)], 2).replace(b"fractions", b"not_there")
    ordered, fraction = symbolic.read(value)
    assert plain(ordered) == {"call": "collections.OrderedDict", "on": (), "pairs": {"a": 1}}
    assert plain(fraction.function) == "not_there.Fraction"
    assert "not_there" not in sys.modules


def test_states_and_ids_are_kept() -> None:
    """A state that would be given to an object and an id that a reader would be asked for are nodes."""
    call = symbolic.read(b"\x80\x02cm\nc\n)\x81}X\x01\0\0\0aK\x01sb.")
    assert plain(call.state) == {"a": 1}
    key = symbolic.read(b"X\x01\0\0\0aQ.")
    assert type(key) is Persistent
    assert key.key == "a"
    assert symbolic.read(b"Pan id\n.").key == "an id"
    assert plain(symbolic.read(b"(cm\nc\nK\x01o."))["on"] == (1,)
    assert plain(symbolic.read(b"\x8c\x01m\x8c\x01c\x93)}\x92."))["call"] == "m.c"


def test_code_in_a_file_never_runs() -> None:
    """A pickle that would run a program names no tensors and runs nothing."""
    evil = b"cos\nsystem\n(X\x12\0\0\0touch /tmp/pwned-xtR."
    assert names(torch_file(evil, {"0": bytes(4)})) == []
    assert plain(symbolic.read(evil)) == {"call": "os.system", "on": ("touch /tmp/pwned-x",), "pairs": {}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"N",
        b".",
        b"0.",
        b"1.",
        b"2.",
        b"t.",
        b"K",
        b"\x82\x01.",
        b"\x97.",
        b"im\nc\n.",
        b"\xff.",
        b"h\x00.",
        b"g-1\n.",
        b"gx\n.",
        b"q\x00.",
        b"Iabc\n.",
        b"I" + b"9" * 5000 + b"\n.",
        b"\x8b\xff\xff\xff\x7f.",
        b"\x8a\xff.",
        b"X\xff\xff\xff\xffabc.",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.",
        b"X\x01\0\0\0\xff.",
        b"N(K\x01e.",
        b"}(K\x01u.",
        b"NN\x86\x85Nb.",
        b"\x85.",
        b"N\x87.",
        b"NN\x93.",
        b"R.",
        b"(o.",
        b"cno newline",
        b"S'a\\x41'\n.",
        b"V\\u12\n.",
        b"]a.",
    ],
    ids=repr,
)
def test_unsound_pickles_are_refused(data: bytes) -> None:
    """A pickle that ends early, misuses its stack or has an opcode that is not read is refused."""
    with pytest.raises(Refused, match="expected"):
        symbolic.read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"N" * 300_000,
        b"(" * 300_000,
        b"]\x94" * 200_000,
        b"]" * 100_000 + b"a" * 99_999 + b".",
        b"N" + b"\x85" * 200_000 + b".",
        b"]" + b"2\x86" * 100_000 + b".",
        b"}" + b"X\x01\0\0\0a2s" * 100 + b".",
        b"]\x94" + b"h\x00a" + b".",
        b"}\x94X\x01\0\0\0kh\x00s.",
        b"X" + (20_000_000).to_bytes(4, "little") + b"k" * 20_000_000 + b"\x94}h\x00}s.",
        b"ctorch._tensor\n_rebuild_from_type_v2\n\x94(NNNNt" + b"\x94h\x00(h\x00N" + b"h\x01h\x00h\x01Rt" * 2000 + b".",
        b"ctorch._utils\n_rebuild_parameter\n\x94N" + b"\x85h\x00\x87" * 80_000 + b".",
        b"N" + b"\x85\x94ctorch._utils\n_rebuild_parameter\nh\x00R" * 10_000 + b".",
        b"ctorch._utils\n_rebuild_parameter\nNR.",
        b"ctorch._utils\n_rebuild_parameter\n)R.",
        b"ctorch._utils\n_rebuild_parameter\nX\x01\0\0\0aR.",
        b"ctorch._utils\n_rebuild_tensor_v2\nNR.",
        b"ctorch._utils\n_rebuild_tensor_v2\n(NNNNNtR.",
        b"}NQs.",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_hostile_pickles_end_soon(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Floods, depths, cycles and repeats of repeats name no tensors, soon and without a deep stack."""
    monkeypatch.setattr(symbolic, "MAX_OPCODES", 250_000)
    started = time.process_time()
    assert names(torch_file(data, {"0": bytes(4)})) == []
    assert time.process_time() - started < 1 * 3, "expected at most 1 s"


def test_repeats_of_repeats_are_entered_once() -> None:
    """A list that holds a list twice, forty times over, is walked in forty steps."""
    data = b"]" + b"\x94" + b"".join(b"](h%ch%ce\x94" % (i, i) for i in range(40)) + b"."
    assert names(torch_file(data, {"0": bytes(4)})) == []
