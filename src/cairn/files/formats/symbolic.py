"""Pickles read as text is read: a stack machine over plain data that imports nothing, calls nothing and makes nothing.

What a pickle would import is a `Global`, what it would call a `Call` with its arguments, what it would ask its reader
for a `Persistent`: inert nodes. Opcodes are those of protocols 0 to 5 as `pickletools` documents them, without the
extension registry, out-of-band buffers and `INST`, which nothing written by torch has. Dictionaries keep their pairs,
because keys may be nodes. Memory is bounded by the opcodes read, at most two million.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cairn.files.formats.model import Refused

MAX_OPCODES = 2_000_000
_STOP = ord(".")
_MAX_LINE = 1000
_MAX_INT_BYTES = 255


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """Something that a pickle would import."""

    module: str
    name: str


@dataclass(slots=True, eq=False)
class Mapping:
    """A dictionary as the pairs that were put into it, in order."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Call:
    """Something that a pickle would make: by calling what, on which arguments, and what it would then put into it."""

    function: Any
    arguments: Any
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    state: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Persistent:
    """Something that a pickle would ask its reader for."""

    key: Any


def read(data: bytes) -> Any:
    """Read one pickle up to its STOP. Raises Refused for whatever is no sound pickle of known opcodes."""
    try:
        return _Machine(data).run()
    except (IndexError, ValueError, struct.error, KeyError) as error:
        if isinstance(error, Refused):
            raise
        raise Refused(f"expected a sound pickle, found {type(error).__name__}: {error!s:.80}") from None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        data = self._data
        for _ in range(MAX_OPCODES):
            code = data[self._at]
            self._at += 1
            if code == _STOP:
                return self._stack.pop()
            action = _ACTIONS.get(code)
            if action is None:
                raise Refused(f"expected a known opcode at byte {self._at - 1} of a pickle, found {code:#04x}")
            action(self)
        raise Refused(f"expected at most {MAX_OPCODES} opcodes, found more")

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise Refused(f"expected {size} bytes at byte {self._at} of a pickle, found its end")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def uint(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self, encoding: str = "utf-8") -> str:
        end = self._data.find(b"\n", self._at, self._at + _MAX_LINE)
        if end < 0:
            raise Refused(f"expected a line at byte {self._at} of a pickle, found none")
        text = self._data[self._at : end]
        self._at = end + 1
        return text.decode(encoding)

    def text(self, width: int) -> str:
        return self.take(self.uint(width)).decode("utf-8", "surrogatepass")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        return self._stack.pop()

    def mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def to_mark(self) -> list[Any]:
        items = self._stack
        self._stack = self._marks.pop()
        return items

    def drop(self) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self.to_mark()

    def duplicate(self) -> None:
        self._stack.append(self._stack[-1])

    def get(self, key: int) -> None:
        self._stack.append(self._memo[key])

    def put(self, key: int) -> None:
        self._memo[key] = self._stack[-1]

    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def tuple_of(self, count: int) -> None:
        if count > len(self._stack):
            raise Refused(f"expected {count} values for a tuple, found {len(self._stack)}")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is Call:
            target = target.items
        if type(target) is not list:
            raise Refused(f"expected a list to append to, found {type(target).__name__}")
        target.extend(items)

    def update(self, flat: list[Any]) -> None:
        target = self._stack[-1]
        if (type(target) is not Mapping and type(target) is not Call) or len(flat) % 2:
            raise Refused(f"expected a dictionary and pairs, found {type(target).__name__} and {len(flat)} values")
        target.pairs.extend(zip(flat[::2], flat[1::2], strict=True))

    def build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if type(target) is not Call:
            raise Refused(f"expected an object to give a state to, found {type(target).__name__}")
        target.state = state

    def import_named(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            raise Refused("expected two texts as the name of an import, found something else")
        self._stack.append(Global(module, name))

    def call(self, keywords: bool = False) -> None:
        extra = self._stack.pop() if keywords else None
        arguments = self._stack.pop()
        self._stack.append(Call(self._stack.pop(), arguments, [("keywords", extra)] if keywords else []))

    def construct(self) -> None:
        function, *arguments = self.to_mark()
        self._stack.append(Call(function, tuple(arguments)))


def _signed(machine: _Machine, size: int) -> int:
    if size > _MAX_INT_BYTES:
        raise Refused(f"expected an integer of at most {_MAX_INT_BYTES} bytes, found {size}")
    return int.from_bytes(machine.take(size), "little", signed=True)


def _integer_line(text: str) -> int | bool:
    return {"00": False, "01": True}[text] if text in ("00", "01") else int(text.removesuffix("L"))


def _quoted_line(text: str) -> str:
    if len(text) < 2 or text[0] != text[-1] or "\\" in text:
        raise Refused(f"expected text in quotes without escapes, found {text:.40}")
    return text[1:-1]


def _list(machine: _Machine) -> None:
    machine.push(machine.to_mark())


def _dict(machine: _Machine) -> None:
    flat = machine.to_mark()
    machine.push(Mapping())
    machine.update(flat)


def _import_line(machine: _Machine) -> None:
    module = machine.line()
    machine.push(Global(module, machine.line()))


def _skip_frame(machine: _Machine) -> None:
    machine.take(8)


_PUSHES: dict[bytes, Callable[[_Machine], Any]] = {
    b"N": lambda m: None,
    b"\x88": lambda m: True,
    b"\x89": lambda m: False,
    b"I": lambda m: _integer_line(m.line()),
    b"L": lambda m: _integer_line(m.line()),
    b"J": lambda m: _signed(m, 4),
    b"K": lambda m: m.uint(1),
    b"M": lambda m: m.uint(2),
    b"\x8a": lambda m: _signed(m, m.uint(1)),
    b"\x8b": lambda m: _signed(m, m.uint(4)),
    b"F": lambda m: float(m.line()),
    b"G": lambda m: struct.unpack(">d", m.take(8))[0],
    b"S": lambda m: _quoted_line(m.line()),
    b"T": lambda m: m.take(m.uint(4)).decode("latin-1"),
    b"U": lambda m: m.take(m.uint(1)).decode("latin-1"),
    b"V": lambda m: m.line("raw-unicode-escape"),
    b"X": lambda m: m.text(4),
    b"\x8c": lambda m: m.text(1),
    b"\x8d": lambda m: m.text(8),
    b"B": lambda m: m.take(m.uint(4)),
    b"C": lambda m: m.take(m.uint(1)),
    b"\x8e": lambda m: m.take(m.uint(8)),
    b"\x96": lambda m: m.take(m.uint(8)),
    b"]": lambda m: [],
    b"\x8f": lambda m: [],
    b")": lambda m: (),
    b"}": lambda m: Mapping(),
    b"t": lambda m: tuple(m.to_mark()),
    b"\x91": lambda m: tuple(m.to_mark()),
    b"P": lambda m: Persistent(m.line()),
    b"Q": lambda m: Persistent(m.pop()),
}
"""What pushes one value: NONE, NEWTRUE, NEWFALSE, INT, LONG, BININT, BININT1, BININT2, LONG1, LONG4, FLOAT, BINFLOAT,
STRING, BINSTRING, SHORT_BINSTRING, UNICODE, BINUNICODE, SHORT_BINUNICODE, BINUNICODE8, BINBYTES, SHORT_BINBYTES,
BINBYTES8, BYTEARRAY8, EMPTY_LIST, EMPTY_SET, EMPTY_TUPLE, EMPTY_DICT, TUPLE, FROZENSET, PERSID, BINPERSID."""

_EFFECTS: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": lambda m: m.take(1),
    b"\x95": _skip_frame,
    b"(": _Machine.mark,
    b"0": _Machine.drop,
    b"1": _Machine.to_mark,
    b"2": _Machine.duplicate,
    b"g": lambda m: m.get(int(m.line())),
    b"h": lambda m: m.get(m.uint(1)),
    b"j": lambda m: m.get(m.uint(4)),
    b"p": lambda m: m.put(int(m.line())),
    b"q": lambda m: m.put(m.uint(1)),
    b"r": lambda m: m.put(m.uint(4)),
    b"\x94": _Machine.memoize,
    b"l": _list,
    b"d": _dict,
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"a": lambda m: m.extend([m.pop()]),
    b"e": lambda m: m.extend(m.to_mark()),
    b"\x90": lambda m: m.extend(m.to_mark()),
    b"s": lambda m: m.update([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.update(m.to_mark()),
    b"c": _import_line,
    b"\x93": _Machine.import_named,
    b"R": _Machine.call,
    b"\x81": _Machine.call,
    b"\x92": lambda m: m.call(keywords=True),
    b"o": _Machine.construct,
    b"b": _Machine.build,
}
"""What changes what is there: PROTO, FRAME, MARK, POP, POP_MARK, DUP, GET, BINGET, LONG_BINGET, PUT, BINPUT,
LONG_BINPUT, MEMOIZE, LIST, DICT, TUPLE1, TUPLE2, TUPLE3, APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS, GLOBAL,
STACK_GLOBAL, REDUCE, NEWOBJ, NEWOBJ_EX, OBJ, BUILD."""


def _pushing(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda machine: machine.push(value(machine))


_ACTIONS: dict[int, Callable[[_Machine], Any]] = {code[0]: _pushing(value) for code, value in _PUSHES.items()} | {
    code[0]: action for code, action in _EFFECTS.items()
}
