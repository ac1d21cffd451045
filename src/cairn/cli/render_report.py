"""What verify found, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.cli import text

if TYPE_CHECKING:
    from cairn.store.findings import Finding, Report


def report(found: Report) -> str:
    """Say what was read and what is wrong."""
    read = ", ".join(
        (
            text.count(found.entries, "entry", "entries"),
            text.count(found.commits, "commit"),
            text.count(found.packs, "pack"),
            f"{text.count(found.blobs, 'blob')} and {text.size(found.bytes)}",
        )
    )
    errors = sum(finding.level == "error" for finding in found.findings)
    warnings = len(found.findings) - errors
    verdict = "everything is intact" if found.ok else f"found {text.count(errors, 'error')}"
    if warnings:
        verdict += f", with {text.count(warnings, 'warning')}"
    return "\n".join([*map(_finding, found.findings), f"Read {read}: {verdict}."])


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
