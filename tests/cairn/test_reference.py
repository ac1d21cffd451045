"""Long sequences of everything that people do, in one process and in two, against a store of plain dictionaries."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.cairn.reference import ALL, PARTS, ACommit, ARun, ATag, Reference, equal, state
from tests.cairn.second_process import UnsyncedDisk, collect, commit

import cairn
from cairn.errors import CairnError, Conflict, Dropped
from cairn.store.handle import RunHandle
from cairn.store.store import open_store

RUNS = st.sampled_from(["main", "side", "third"])
KEYS = st.integers(0, 7)
STEPS = st.integers(0, 9) | st.none()
LOSSES = st.sampled_from([0.5, 1.0, 2.0, math.nan])
RULES = st.sampled_from([("last", 1), ("last", 2), ("every", 3), ("best:loss:min", 1), ("model", 2), ("optimizer", 1)])
SEQUENCES = 200
PHASES = [Phase.generate]
"""Ids are other ones each time, so a failure is not made smaller."""


class Other:
    """A second process."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        command = [sys.executable, "-m", "tests.cairn.second_process"]
        self._process = subprocess.Popen(command, cwd=root, stdin=PIPE, stdout=PIPE, text=True, env=_environment())

    def ask(self, root: Path, what: str, *args: object) -> Any:
        """Let it do something; return what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(root), what, *args]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """End it."""
        self._process.communicate()


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(cairn.__file__).parents[1])}


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
    """A second process."""
    process = Other()
    yield process
    process.end()


class Comparison(RuleBasedStateMachine):
    """Does the same to a store and to its reference."""

    other: Other

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp()) / "store"
        cairn.init(self.root, disk=UnsyncedDisk()).close()
        self.store = open_store(self.root, disk=UnsyncedDisk())
        self.model = Reference()
        self.held: dict[str, tuple[RunHandle, str | None]] = {}

    def teardown(self) -> None:
        self.reads_as_it_should()
        report = self.store.verify()
        self.store.close()
        shutil.rmtree(self.root.parent)
        assert report.findings == ()

    # Choosing.

    def _commit(self, draw: st.DataObject) -> tuple[str, ACommit]:
        name = draw.draw(st.sampled_from(sorted(self.model.runs)))
        commits = list(self.model.runs[name].commits.values())
        # By number: ids are other ones each time.
        return name, commits[draw.draw(st.integers(0, len(commits) - 1))]

    def _expect(self, error: type[CairnError] | str | None, call: Callable[[], Any]) -> Any:
        """Call; the error must come, or may, if its name is spelled, or must not."""
        if error is None:
            return call()
        if isinstance(error, str):
            try:
                return call()
            except CairnError as caught:
                if type(caught).__name__ != error:
                    raise
                return caught
        with pytest.raises(error):
            call()
        return None

    def has_runs(self) -> bool:
        """Whether there is something to choose."""
        return bool(self.model.runs)

    # Committing.

    @rule(name=RUNS, key=KEYS, step=STEPS, loss=LOSSES, elsewhere=st.booleans())
    def commit(self, name: str, key: int, step: int | None, loss: float, elsewhere: bool) -> None:
        if name in self.model.tags:
            return
        run = self.model.runs.get(name, ARun())
        there = next((each for each in run.line() if each.step == step and step is not None), None)
        if there is not None and (there.key != key or there.dropped):
            self._expect(Conflict, lambda: commit(self.store, name, key, step, loss))
            return
        if elsewhere:
            made = self.other.ask(self.root, "commit", name, key, step, loss)
        else:
            made = commit(self.store, name, key, step, loss)
        if there is not None:
            assert made == there.id
            return
        self._made(name, run, made, key, step, loss, run.tip)

    @precondition(has_runs)
    @rule(data=st.data(), key=KEYS, step=STEPS)
    def go_back_and_commit(self, data: st.DataObject, key: int, step: int | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.runs)))
        run = self.model.runs[name]
        line = [each for each in run.line() if each.step is not None] or run.line()[:1]
        target = line[data.draw(st.integers(0, len(line) - 1))]
        handle = self.store.run(name)
        first = next(each for each in run.line() if each.step == target.step) if target.step is not None else target
        if self._expect(Dropped if first.dropped else None, lambda: handle.resume(step=target.step)) is None:
            return
        assert handle.base is not None
        assert handle.base.id == (first.id if target.step is not None else run.tip)
        parent = handle.base.id
        before = next((each for each in run.line(parent) if each.step == step and step is not None), None)
        there = next((each for each in run.line() if each.step == step and step is not None), None)
        taken = there if parent == run.tip or (before is not None and there is before) else None
        if taken is not None and (taken.key != key or taken.dropped):
            self._expect(Conflict, lambda: handle.commit(state(key), step=step))
            return
        made = handle.commit(state(key), step=step).id
        if taken is not None:
            assert made == taken.id
            return
        self._made(name, run, made, key, step, math.nan, parent)

    def _made(
        self, name: str, run: ARun, made: str, key: int, step: int | None, loss: float, parent: str | None
    ) -> None:
        self.model.runs[name] = run
        self.model.deleted.pop(name, None)
        run.commits[made] = ACommit(made, key, step, loss, parent)
        run.move(made)

    @precondition(has_runs)
    @rule(data=st.data())
    def hold_a_handle(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.runs)))
        self.held[name] = (self.store.run(name), self.model.runs[name].tip)

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data(), key=KEYS)
    def commit_with_a_handle_that_was_held(self, data: st.DataObject, key: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        handle, tip = self.held.pop(name)
        run = self.model.runs.get(name, ARun())
        if run.tip != tip or name in self.model.tags:
            self._expect(Conflict, lambda: handle.commit(state(key)))
            return
        self._made(name, run, handle.commit(state(key)).id, key, None, math.nan, tip)

    # Names and decisions.

    @precondition(has_runs)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        name, target = self._commit(data)
        dropped = ALL in target.dropped
        self._expect(Dropped if dropped else None, lambda: self.store.rewind(target.id, run=name))
        if not dropped:
            self.model.runs[name].move(target.id)

    @precondition(has_runs)
    @rule(data=st.data(), tag=st.sampled_from(["good", "best-one"]))
    def tag(self, data: st.DataObject, tag: str) -> None:
        name, target = self._commit(data)
        revision = f"{name}~{self._back(name, target)}" if self._back(name, target) is not None else target.id
        found = self.store.commit(revision)
        if found.run != name:
            return
        self._expect(Dropped if ALL in target.dropped else None, lambda: self.store.tag(tag, revision))
        if ALL not in target.dropped:
            self.model.tags[tag] = ATag(name, target.id, target.key)

    def _back(self, name: str, target: ACommit) -> int | None:
        line = [each.id for each in self.model.runs[name].line()]
        return line.index(target.id) if target.id in line else None

    @precondition(lambda self: bool(self.model.tags))
    @rule(data=st.data())
    def delete_a_tag(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(sorted(self.model.tags)))
        self.store.delete_tag(tag)
        del self.model.tags[tag]

    @precondition(has_runs)
    @rule(data=st.data(), parts=st.none() | st.sets(st.sampled_from(PARTS), min_size=1))
    def drop(self, data: st.DataObject, parts: set[str] | None) -> None:
        name, target = self._commit(data)
        revision = self._named(name, target)
        if revision is None or (parts and ALL in target.dropped):
            return
        empties = parts is None or (not parts <= target.dropped and parts | target.dropped >= set(PARTS))
        kept = empties and target.id in self.model.protected()
        self._expect(Conflict if kept else None, lambda: self.store.drop([revision], only=parts))
        if not kept:
            target.dropped = target.dropped | (parts or {ALL})

    @precondition(has_runs)
    @rule(data=st.data())
    def undrop(self, data: st.DataObject) -> None:
        name, target = self._commit(data)
        revision = self._named(name, target)
        if revision is None or not target.dropped:
            return
        said = self._expect("Dropped" if target.may_be_gone else None, lambda: self.store.undrop([revision]))
        if not isinstance(said, CairnError):
            target.dropped, target.may_be_gone = set(), False

    def _named(self, name: str, target: ACommit) -> str | None:
        """A revision that names the commit in this run, not in another that has it, too."""
        back = self._back(name, target)
        return f"{name}~{back}" if back is not None and len(self.model.runs[name].line()) > back else None

    @precondition(has_runs)
    @rule(data=st.data(), new=RUNS)
    def create_a_run(self, data: st.DataObject, new: str) -> None:
        name, target = self._commit(data)
        revision = self._named(name, target)
        if revision is None:
            return
        error = Conflict if new in self.model.runs else Dropped if ALL in target.dropped else None
        self._expect(error, lambda: self.store.create_run(new, revision))
        if error is None:
            copy = ACommit(target.id, target.key, target.step, target.loss, None, set(target.dropped))
            copy.may_be_gone = target.may_be_gone
            self.model.runs[new] = ARun({target.id: copy}, target.id, started_from=target.id)
            self.model.deleted.pop(new, None)

    @precondition(has_runs)
    @rule(data=st.data())
    def delete_a_run(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.runs)))
        self.store.delete_run(name)
        self.model.deleted[name] = self.model.runs.pop(name)
        self.model.deleted[name].may_be_gone = False

    @precondition(lambda self: bool(self.model.deleted))
    @rule(data=st.data())
    def undelete_a_run(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.deleted)))
        run = self.model.deleted[name]
        said = self._expect("Dropped" if run.may_be_gone else None, lambda: self.store.undelete_run(name))
        if not isinstance(said, CairnError):
            self.model.runs[name] = self.model.deleted.pop(name)

    @precondition(has_runs)
    @rule(data=st.data(), new=RUNS)
    def rename_a_run(self, data: st.DataObject, new: str) -> None:
        old = data.draw(st.sampled_from(sorted(self.model.runs)))
        taken = new in self.model.runs
        self._expect(Conflict if taken else None, lambda: self.store.rename_run(old, new))
        if not taken:
            self.model.runs[new] = self.model.runs.pop(old)
            self.model.deleted.pop(new, None)
            self.held.pop(old, None)
            for tag in self.model.tags.values():
                tag.run = new if tag.run == old else tag.run

    # Space.

    @rule(kept=RULES)
    def keep(self, kept: tuple[str, int]) -> None:
        self.store.keep([f"{kept[0]}:{kept[1]}"])
        self.model.rules[kept[0]] = kept[1]

    @rule()
    def forget_the_rules(self) -> None:
        self.store.remove_rules()
        self.model.rules.clear()

    @rule(extra=st.none() | RULES, compact=st.booleans(), elsewhere=st.booleans())
    def collect(self, extra: tuple[str, int] | None, compact: bool, elsewhere: bool) -> None:
        given = (f"{extra[0]}:{extra[1]}",) if extra else ()
        if elsewhere:
            assert self.other.ask(self.root, "collect", given, compact) is None
        else:
            collect(self.store, list(given), compact)
        self.model.collect([extra] if extra else [])

    # The index, and another look.

    @rule()
    def open_anew(self) -> None:
        self.store.close()
        self.store = open_store(self.root, disk=UnsyncedDisk())
        self.held.clear()

    @rule()
    def delete_the_index(self) -> None:
        self.open_anew()
        for path in self.root.glob("index.sqlite*"):
            path.unlink()

    @rule()
    def verify(self) -> None:
        assert self.store.verify().findings == ()

    @precondition(has_runs)
    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        name, target = self._commit(data)
        revision = self._named(name, target)
        if revision is not None:
            self._loads(revision, target.key, target.dropped)

    def _loads(self, revision: str, key: int, dropped: set[str]) -> None:
        if not dropped:
            assert equal(self.store.load(revision), key)
            return
        with pytest.raises(Dropped):
            self.store.load(revision)
        rest = set(PARTS) - dropped
        if rest and ALL not in dropped:
            assert equal(self.store.load(revision, only=rest), key, rest)

    def reads_as_it_should(self) -> None:
        """Everything that is kept loads as what was committed."""
        for name, run in self.model.runs.items():
            for back, each in enumerate(run.line()):
                self._loads(f"{name}~{back}", each.key, each.dropped)
            for number, tip in enumerate(run.attempts, 1):
                self._loads(f"{name}/attempt-{number}", run.commits[tip].key, run.commits[tip].dropped)

    @invariant()
    def tells_the_same_history(self) -> None:
        """Runs, lines, attempts, what was dropped, and tags."""
        runs = self.model.runs
        assert self.store.runs() == sorted(runs)
        for name, run in runs.items():
            found = [(each.id, each.step, set(each.dropped)) for each in self.store.log(name)]
            assert found == [(each.id, each.step, each.dropped) for each in run.line()]
            attempts = [self.store.commit(f"{name}/attempt-{n + 1}").id for n in range(len(run.attempts))]
            assert attempts == run.attempts
        assert {name: tag.commit.id for name, tag in self.store.tags().items()} == {
            name: tag.id for name, tag in self.model.tags.items()
        }


def test_a_store_does_what_its_reference_does(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred sequences of up to forty things that people do."""
    monkeypatch.setattr("cairn.io.folds.SIZES", (2, 8))
    monkeypatch.setattr("cairn.history.journal.SNAPSHOT_ENTRIES", 1)
    Comparison.other = other
    run_state_machine_as_test(
        Comparison,
        settings=settings(
            max_examples=SEQUENCES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
            report_multiple_bugs=False,
        ),
    )
