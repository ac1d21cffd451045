"""The tables of the README, from what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import machine
from rounds import COLD, FIRST, IN_BACKGROUND, LATER_STALL, LOAD, LOADS, SAVES, STALL

DURABLE = "safetensors + fsync"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
Key = tuple[str, str, str]
"""State, tool and operation."""


def tables(results: dict[str, Any]) -> str:
    """Spell all tables."""
    found = _by_key(results["timings"])
    parts = [_introduction(results), _ratios(found, list(results["states"]))]
    for state, about in results["states"].items():
        parts += [f"### ({state}) {about['what']}: {about['tensors']:,} tensors, {about['bytes'] / 1e9:.3g} GB"]
        parts += [_tools(found, state, tuple(SAVES)), _tools(found, state, (STALL, LATER_STALL, IN_BACKGROUND))]
        parts += [_tools(found, state, LOADS), _bounds(found, state)]
    parts += [_memory(results), _training(found), _tiny(found), _durability(results)]
    return "\n\n".join(part for part in parts if part)


def put(readme: str, text: str) -> str:
    """Return a page with its tables replaced."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _by_key(timings: list[dict[str, Any]]) -> dict[Key, list[float]]:
    found: dict[Key, list[float]] = {}
    for each in timings:
        found.setdefault((each["state"], each["tool"], each["what"]), []).append(each["seconds"])
    return found


def _introduction(results: dict[str, Any]) -> str:
    about, versions = results["machine"], ", ".join(f"{name} {said}" for name, said in results["versions"].items())
    missing = "".join(f" Left out: {name} ({why})." for name, why in results["missing"].items())
    return (
        f"{results['date']}, revision {results['revision'][:12]}, {about['processor']}, {about['cores']} cores, "
        f"{about['memory']}, {about['file system']}, Linux {about['kernel']}, Python {about['python']}. "
        f"{versions}.{missing} Medians of the rounds; least and most in brackets."
    )


def _ratios(found: dict[Key, list[float]], states: list[str]) -> str:
    """What to compare with what, as the ratio of two medians: more is better, but for the stall."""

    def row(
        words: str, over: tuple[str, ...], under: str, tool: str = machine.TOOL, *, upside_down: bool = False
    ) -> list[str]:
        cells = [words]
        for state in states:
            others = [median(took) for what in over if (took := found.get((state, tool, what)))]
            own = found.get((state, "cairn", under))
            ratio = min(others) / median(own) if others and own else None
            cells.append("" if ratio is None else f"{1 / ratio if upside_down else ratio:.2f}")
        return cells

    rows = [
        row("first save: speed against safetensors + fsync", (FIRST,), FIRST, DURABLE),
        row("first save: share of the fastest raw durable write", tuple(machine.WRITES), FIRST),
        row("nothing changed: share of BLAKE3 on all cores", (machine.HASH_ALL,), "nothing changed"),
        row("stall, later: times a memcpy of the same bytes", (machine.MEMCPY,), LATER_STALL, upside_down=True),
        row("load, checked: speed against safetensors", (LOAD,), LOAD, DURABLE),
        row("load, cold: speed against safetensors", (COLD,), COLD, DURABLE),
    ]
    return _table(["", *(f"({state})" for state in states)], [cells for cells in rows if any(cells[1:])])


def _tools(found: dict[Key, list[float]], state: str, operations: Sequence[str]) -> str:
    """A row for each tool that does any of the operations, a column for each that any tool does."""
    names = dict.fromkeys(tool for at, tool, what in found if at == state and what in operations)
    columns = [what for what in operations if any((state, tool, what) in found for tool in names)]
    rows = [[name, *(_cell(found.get((state, name, what), [])) for what in columns)] for name in names]
    return _table(["", *columns], rows) if rows else ""


def _bounds(found: dict[Key, list[float]], state: str) -> str:
    """What the machine takes at least for these bytes, and cairn's first save and load in multiples of it."""
    save, load = (found.get((state, "cairn", what), []) for what in (FIRST, LOAD))
    rows = []
    for what in (machine.MEMCPY, machine.HASH_ONE, machine.HASH_ALL, *machine.WRITES):
        if bound := found.get((state, machine.TOOL, what)):
            rows.append(
                [what, _cell(bound), _times(save, bound), "" if what in machine.WRITES else _times(load, bound)]
            )
    return _table(["as many bytes", "takes", "cairn's first save", "cairn's load"], rows) if rows else ""


def _memory(results: dict[str, Any]) -> str:
    if not results["memory"]:
        return ""
    sizes = {name: about["bytes"] for name, about in results["states"].items()}
    modes = dict.fromkeys(each["mode"] for each in results["memory"])
    extra = {(each["state"], each["mode"]): each["bytes"] for each in results["memory"]}
    rows = [
        [f"({name})", *(f"{extra[name, mode] / 2**20:,.0f} MiB ({extra[name, mode] / size:.2f})" for mode in modes)]
        for name, size in sizes.items()
        if all((name, mode) in extra for mode in modes)
    ]
    head = "### Most memory beside the state during a save, and as a share of the state\n\n"
    return head + _table(["", *modes], rows)


def _training(found: dict[Key, list[float]]) -> str:
    names = dict.fromkeys(what for _, tool, what in found if tool == "training")
    at = list(dict.fromkeys(state for state, tool, _ in found if tool == "training"))
    rows = [[what, *(_cell(found.get((state, "training", what), [])) for state in at)] for what in names]
    return "### Training beside a commit\n\n" + _table(["", *(f"({state})" for state in at)], rows) if rows else ""


def _tiny(found: dict[Key, list[float]]) -> str:
    rows = [[tool, _cell(took)] for (state, tool, _), took in found.items() if state == "tiny"]
    return "### A tiny state: minitrain's\n\n" + _table(["", "commit"], rows) if rows else ""


def _durability(results: dict[str, Any]) -> str:
    rows = [
        [tool, ", ".join(f"{count} {kind}" for kind, count in forced.items()) or "nothing"]
        for tool, forced in results["durability"].items()
    ]
    head = "### What a save of a small state of 40 tensors forces to the medium, counted by strace\n\n"
    return head + _table(["", "forced"], rows) if rows else ""


def _cell(took: Sequence[float]) -> str:
    if not took:
        return ""
    middle = _seconds(median(took))
    return middle if len(took) == 1 else f"{middle} ({_seconds(min(took))} to {_seconds(max(took))})"


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:.3g} s"


def _times(took: Sequence[float], bound: Sequence[float]) -> str:
    return f"{median(took) / median(bound):.2f} times that" if took else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
