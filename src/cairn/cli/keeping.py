"""The command on stored rules: keep."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from cairn.cli import render_rules
from cairn.cli.context import json_option, pass_store, run_option
from cairn.cli.jsonout import print_json
from cairn.cli.progress import working
from cairn.cli.text import note, safe, say
from cairn.errors import CairnError

if TYPE_CHECKING:
    from cairn.history.settings import StoredRule
    from cairn.store.store import Store


@click.command()
@click.argument("rules", metavar="[RULE...]", nargs=-1)
@click.option("--remove", metavar="RULE", multiple=True, help="Take a rule back; may be repeated.")
@click.option("--clear", is_flag=True, help="Take all rules back, or all for the run that --run names.")
@run_option
@json_option
@pass_store
def keep(
    store: Store, rules: tuple[str, ...], remove: tuple[str, ...], clear: bool, run: str | None, as_json: bool
) -> None:
    """Store rules that say what is kept, or list them.

    Every `cairn gc` applies them, and so does `run.apply_rules()` in a training loop; by themselves they drop
    nothing. They hold for all runs, each by itself, or for one with --run. Shows what the rules would do now; to see
    that before a rule is stored, use `cairn gc --keep-last 3 --dry-run`.

    \b
    RULE is one of
      last:N                     the last N commits
      every:N                    commits whose step is a multiple of N
      best:METRIC[:min|max][:N]  the best N by a metric, of equals the newest
      within:DURATION            90m, 12h, 30d or 1w before the newest commit
      PART:N                     a component, or files, only in the newest N
                                 commits: optimizer:2, files:*.pt:2
                                 (part:NAME:N for one that is called last, …)

    Whole commits stay that any rule keeps; without a rule for whole commits all do. The newest commit, tagged commits
    and those that a run started from stay whole in any case. A rule takes the place of the one about the same thing;
    several every:N add up.

    \b
    Example:
      $ cairn keep last:5 every:1000 best:val_loss:min
      $ cairn keep optimizer:2 --run main
      $ cairn keep
      $ cairn keep --remove every:1000
    """
    if sum((bool(rules), bool(remove), clear)) > 1:
        raise click.UsageError("expected rules, --remove or --clear, found several of them")
    before = store.rules()
    if rules:
        after = store.keep(rules, run=run)
    elif remove or clear:
        after = store.remove_rules(remove or None, run=run)
    else:
        after = before
    with working("Looking at commits"):
        retention = store.plan_retention()
    if as_json:
        print_json({"rules": after, "retention": retention})
        return
    if after:
        table = render_rules.retention(retention, rules=False)
        say("\n\n".join(filter(None, (render_rules.rules(after), table, render_rules.effect(retention)))))
    else:
        note("No rules: everything is kept until it is dropped.")
    _tell_way_back(before, after)
    for rule in after if rules else ():
        _tell_unknown(store, rule)


def _tell_way_back(before: Collection[StoredRule], after: Collection[StoredRule]) -> None:
    """Say which commands undo a change."""
    for rule in before:
        if rule not in after:
            note(f"Took back {safe(str(rule))}; `{_command(rule, '')}` stores it again.")
    for rule in after:
        if rule not in before:
            note(f"Stored {safe(str(rule))}; `{_command(rule, '--remove ')}` takes it back.")


def _tell_unknown(store: Store, stated: StoredRule) -> None:
    """Say when a rule names a metric or a component that nobody has; it may be misspelt, or yet to come."""
    from cairn.store.rules import Best, OnlyLast, parse

    rule = parse(stated.rule)
    if isinstance(rule, Best):
        wanted, known, what = rule.metric, store.metrics(), "a number for"
    elif isinstance(rule, OnlyLast):
        wanted, known, what = rule.part.component, _components(store), "a component called"
    else:
        return
    if known and wanted not in known:
        note(safe(f"No commit has {what} {wanted}; there are {', '.join(known)}. Until one has, {rule} says nothing."))


def _components(store: Store) -> list[str]:
    """The components of the newest commits."""
    found: dict[str, None] = {}
    for name in store.runs():
        with suppress(CairnError):
            found.update(dict.fromkeys(item.path for item in store.ls(name)))
    return list(found)


def _command(rule: StoredRule, option: str) -> str:
    spelled = f"'{rule.rule}'" if set(rule.rule) & set("*?[ ") else rule.rule
    return safe(f"cairn keep {option}{spelled}" + (f" --run {rule.run}" if rule.run else ""))


COMMANDS: tuple[click.Command, ...] = (keep,)
