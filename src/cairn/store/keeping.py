"""The rules that are stored: what every gc keeps, until it is told otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from cairn.errors import CairnError, Conflict, NotFound
from cairn.history import names
from cairn.history.journal import Journal
from cairn.history.settings import StoredRule, fields_of, unknown
from cairn.io.explain import explained
from cairn.io.leases import leased
from cairn.store.core import Core
from cairn.store.rules import parse, parse_all

Rules = tuple[StoredRule, ...]

_TRIES = 5


def stored(core: Core) -> Rules:
    """Return the rules that hold. Raises Damaged when they cannot be known."""
    rules = core.settings.rules()
    for each in rules:
        try:
            parse(each.rule)
        except CairnError as error:
            raise unknown(f"{core.settings.log.folder}: {error}; a newer cairn may read it") from error
    return rules


def keep(core: Core, texts: Iterable[str], run: str | None) -> Rules:
    """Add rules; one that says something of the same as another takes its place. Raises UsageError, NotFound."""
    if run is not None:
        core.journal.existing(names.check("run", run))
    new = [StoredRule(str(rule), run) for rule in parse_all(texts)]

    def change(rules: Rules) -> Rules:
        by_subject = {_subject(each): each for each in rules}
        return tuple((by_subject | {_subject(each): each for each in new}).values())

    return _change(core, change)


def remove(core: Core, texts: Iterable[str] | None, run: str | None) -> Rules:
    """Take rules back, or all: those of a run, or without one those for all runs. Raises NotFound."""
    if texts is None:
        return _change(core, lambda rules: tuple(each for each in rules if run is not None and each.run != run))
    old = [StoredRule(str(rule), run) for rule in parse_all(texts)]

    def change(rules: Rules) -> Rules:
        for rule in old:
            if rule not in rules:
                raise NotFound(f"rule {rule}: expected one of {', '.join(map(str, rules)) or 'no rules yet'}")
        return tuple(each for each in rules if each not in old)

    return _change(core, change)


def follow(core: Core, new: str) -> None:
    """Give the rules of a run that was renamed its new name: the old one may become another run's.

    Rules that cannot be changed now still go with the run, until its old name is used again.
    """

    def change(rules: Rules) -> Rules:
        named = (replace(rule, run=new) if run_of(core.journal, rule) == new else rule for rule in rules)
        return tuple(dict.fromkeys(named))

    with contextlib.suppress(CairnError):
        for _ in range(_TRIES):
            with contextlib.suppress(Conflict):
                _change(core, change)
                return


def run_of(journal: Journal, rule: StoredRule) -> str | None:
    """Return the name that the run of a rule has now: a rule goes with its run when that is renamed."""
    name, seen = rule.run, set[str]()
    while name is not None and name not in seen and names.is_name(name):
        seen.add(name)
        run = journal.run(name)
        if run.exists or run.state.renamed_to is None:
            break
        name = run.state.renamed_to
    return name


def _change(core: Core, change: Callable[[Rules], Rules]) -> Rules:
    before = stored(core)
    after = change(before)
    log = core.settings.log
    if after == before:
        if log.newest is not None:
            # Whoever made the entry that was read may not have come to this.
            core.disk.sync_folder(log.folder)
        return after

    def still() -> None:
        if stored(core) != before:
            raise Conflict("the rules were changed by somebody else meanwhile; look at `cairn keep`, then try again")

    with explained("changing the rules", core.layout.root), leased(core.disk, core.layout, "keep") as lease:
        core.journal.append(log, lease, "set", fields_of(after), still)
    return stored(core)


def _subject(stated: StoredRule) -> tuple[str, str | None]:
    return parse(stated.rule).subject, stated.run
