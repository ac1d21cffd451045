"""What verify and doctor found, as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cairn.cli import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cairn.store.doctor import Check
    from cairn.store.findings import Finding, Report
    from cairn.store.repair import Repair

_SHOWN = 20


def report(found: Report) -> str:
    """Say what was read, what was mended and what is wrong."""
    errors = sum(finding.level == "error" for finding in found.findings)
    warnings = len(found.findings) - errors
    if not found.ok:
        verdict = f"found {text.count(errors, 'error')}"
    elif found.level == "quick":
        verdict = "nothing is missing"
    else:
        verdict = "nothing wrong was found" if found.packs_skipped else "everything is intact"
    if warnings:
        verdict += f", with {text.count(warnings, 'warning')}"
    mended = _repair(found.repair) if found.repair is not None else []
    return "\n".join([*map(_finding, found.findings), *mended, f"{_read(found)}: {verdict}."])


def _read(found: Report) -> str:
    seen = ", ".join(
        (
            text.count(found.entries, "entry", "entries"),
            text.count(found.commits, "commit"),
            text.count(found.packs, "pack"),
            f"{text.count(found.blobs, 'blob')} and {text.size(found.bytes)}",
        )
    )
    if found.level == "quick":
        return f"Looked at {seen}, without reading tensors"
    if found.packs_skipped:
        return f"Looked at {seen}, and read {text.size(found.bytes_read)} of that"
    return f"Read {seen}"


def _finding(finding: Finding) -> str:
    hit = list(map(text.safe, finding.steps[:5]))
    if len(finding.steps) > 5:
        hit.append(f"and {len(finding.steps) - 5} more")
    details = [
        ("  file", text.safe(finding.file)),
        ("  expected", text.safe(finding.expected)),
        ("  found", text.safe(finding.found)),
        ("  hits", "\n".join(hit)),
        ("  to do", text.safe(finding.hint)),
    ]
    return f"{finding.level}: {text.safe(finding.object)}\n{text.pairs(details)}\n"


def _repair(done: Repair) -> Iterator[str]:
    would = "" if done.executed else "would be "
    for mend in done.mended[:_SHOWN]:
        what = f"blob {text.short(mend.blob)}, {text.size(mend.bytes)}"
        hit = f", for {text.safe(mend.steps[0])}" if mend.steps else ""
        yield f"{would}mended: {what}, from {text.safe(mend.source)}{hit}"
    if len(done.mended) > _SHOWN:
        yield f"{would}mended: {text.count(len(done.mended) - _SHOWN, 'more blob')}"
    for entry in done.entries:
        yield f"{would}mended: {text.safe(entry.file)}, from {text.safe(entry.source)}"
    if done.saved_blobs:
        saved = f"{text.count(done.saved_blobs, 'good blob')} of damaged packs, {text.size(done.saved_bytes)}"
        yield f"{would}saved: {saved}"
    for pack_id in done.set_aside:
        yield f"{would}set aside: pack {pack_id}"
    for pack_id in done.left:
        yield f"left in place: pack {pack_id}, since something in it that is or may be needed was found nowhere"
    if not (done.mended or done.entries or done.set_aside or done.left):
        yield "nothing to mend"


def checks(found: Sequence[Check]) -> str:
    """Line up what doctor found; what is to be done stands below."""
    rows = [(check.status, text.safe(check.name), text.safe(check.found)) for check in found]
    hints = [f"{check.name}: {check.hint}" for check in found if check.hint]
    problems = sum(check.status == "problem" for check in found)
    warnings = sum(check.status == "warning" for check in found)
    verdict = f"{text.count(problems, 'problem')}, {text.count(warnings, 'warning')}."
    lines = [text.table(("", "check", "found"), rows)]
    return "\n".join([*lines, *([""] if hints else []), *map(text.safe, hints), "", verdict])
