"""A run: what its entries add up to.

Entries are replayed in order. A commit's entry holds the whole commit document, so steps, metrics and parents need no
pack. The tip is the last commit or rewind target; a tip that the run moved away from, and that the new tip does not
descend from, is an attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cairn.errors import Conflict, Damaged
from cairn.history.commit import Commit, read
from cairn.history.state import State
from cairn.ids import is_id
from cairn.io.log import Entry, Log

ALL = "*"
"""In `dropped`: the whole content."""

MAX_RENAMES = 50


@dataclass(frozen=True, slots=True)
class Move:
    """One line of the reflog: what an entry did."""

    seq: int
    time: str
    op: str
    commit: str | None
    text: str


class Run:
    """One run's log, replayed as far as it has been read."""

    def __init__(self, name: str, log: Log, others: Callable[[str], Run], depth: int = 0) -> None:
        self.name = name
        self.log = log
        self.state = State()
        self.moves: list[Move] = []
        self.bad: list[tuple[Entry, Damaged]] = []
        self._tip_seq = 0
        self._deleted_at = 0
        self._others = others
        self._depth = depth
        self._former: dict[str, Commit] = {}
        self._replayed: list[Entry] = []
        self._is_replaying = False
        self._steps: dict[int, str] | None = None
        self._line_damage: Damaged | None = None

    def refresh(self) -> Run:
        """Take in the entries that are new on disk."""
        # A run that was renamed and renamed back continues one that continues it: the inner look must not go ahead.
        if not self._is_replaying:
            self._is_replaying = True
            try:
                self._replay()
            finally:
                self._is_replaying = False
        return self

    def _replay(self) -> None:
        self.log.refresh()
        entries = self.log.entries
        if self._replayed and (len(entries) < len(self._replayed) or entries[0].seal != self._replayed[0].seal):
            self.state, self.moves, self.bad, self._replayed, self._steps = State(), [], [], [], None
            self._tip_seq = self._deleted_at = 0
            self._former = {}
        for entry in entries[len(self._replayed) :]:
            self._replayed.append(entry)
            self._take(entry)

    @property
    def exists(self) -> bool:
        """Whether the run has entries and was not deleted."""
        return self.state.exists

    @property
    def tip(self) -> Commit | None:
        """The last commit or rewind target."""
        return self.state.commits.get(self.state.tip or "")

    @property
    def is_damaged(self) -> bool:
        """Whether some entry cannot be read or makes no sense."""
        return bool(self.log.wounds or self.bad)

    def damage(self, after: int = 0) -> Damaged | None:
        """Return what is wrong with the first damaged entry after a number, as an error to raise."""
        for wound in self.log.wounds:
            if wound.seq > after:
                reason = f"{wound.file}: expected {wound.expected}, found {wound.found}"
                return self._damaged(reason)
        for entry, error in self.bad:
            if entry.seq > after:
                return self._damaged(str(error))
        return None

    @property
    def deleted_at(self) -> int:
        """The number of the entry that deleted the run for now; 0 when it exists."""
        return self._deleted_at if not self.state.exists else 0

    def check_tip(self) -> None:
        """Raise Damaged when an entry that cannot be read may have moved the tip."""
        error = self.damage(after=self._tip_seq)
        if error is not None:
            raise error

    def last_known(self, commit_id: str) -> Commit | None:
        """Return a commit as the run has it, or as it last had it before it was deleted and begun anew."""
        return self.state.commits.get(commit_id) or self._former.get(commit_id)

    def check_has(self, commits: Iterable[Commit]) -> None:
        """Raise Conflict when the run does not exist any more, or was begun anew without some of these commits."""
        if not self.exists:
            raise Conflict(f"run {self.name!r} was deleted or renamed meanwhile; nothing was recorded")
        for commit in commits:
            if commit.id not in self.state.commits:
                raise Conflict(f"{commit} is no commit of run {self.name!r} any more: it was deleted and begun anew")

    def line(self, start: str | None = None) -> Iterator[Commit]:
        """Walk from a commit (the tip) to the oldest one of this run by first parents.

        Raises Damaged, after what could be read, where an entry that cannot be read breaks the line.
        """
        oldest = None
        for oldest in self._walk(start or self.state.tip):
            yield oldest
        if oldest is not None and self._is_broken_at(oldest):
            raise self.damage() or AssertionError("a line breaks only where there is damage")

    def on_line(self, step: int) -> Commit | None:
        """Return the newest commit of the current line with this step. Raises Damaged when that cannot be known."""
        if self._steps is None:
            steps: dict[int, str] = {}
            self._line_damage = None
            try:
                for commit in self.line():
                    if commit.step is not None:
                        steps.setdefault(commit.step, commit.id)
            except Damaged as error:
                self._line_damage = error
            # Assigned when it is whole: other threads may be looking.
            self._steps = steps
        found = self._steps.get(step)
        if found is None and self._line_damage is not None:
            raise self._line_damage
        return self.state.commits[found] if found else None

    def state_at(self, seq: int, depth: int = 0) -> State:
        """Return what the entries up to a number add up to. Raises Damaged when runs continue each other in a ring."""
        if depth > MAX_RENAMES:
            raise Damaged(f"run {self.name!r}: expected at most {MAX_RENAMES} renames in a row, found more")
        past = Run(self.name, self.log, self._others, depth)
        for entry in self.log.entries:
            if entry.seq <= seq:
                past._take(entry)
        return past.state

    def _take(self, entry: Entry) -> None:
        document = entry.document
        action = getattr(self, f"_{document.get('op')}_entry", None)
        try:
            if action is None:
                raise Damaged(f"{entry.file}: expected an operation that this version knows, found {document!r:.100}")
            commit, text = action(entry, document)
        except Damaged as error:
            self.bad.append((entry, error))
            return
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            self.bad.append((entry, Damaged(f"{entry.file}: expected an entry that makes sense, found {error!r:.120}")))
            return
        if commit is not None:
            self._tip_seq = entry.seq
        self.moves.append(Move(entry.seq, str(document.get("time")), document["op"], commit, text))

    def _commit_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str, str]:
        commit = self._read_commit(entry, document)
        if not self.state.exists:
            self._begin(State(exists=True))
        old = self.state.tip
        self.state.commits.setdefault(commit.id, commit)
        self._move_tip(commit.id)
        if self._steps is not None and commit.step is not None and commit.parents[:1] == ((old,) if old else ()):
            self._steps[commit.step] = commit.id
        else:
            self._steps = None
        return commit.id, commit.message or ""

    def _create_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str | None, str]:
        origin = document.get("continues")
        if origin is None:
            commit = self._read_commit(entry, document, document.get("dropped", ()))
            self._begin(State(exists=True, tip=commit.id, commits={commit.id: commit}, started_from=commit.id))
            return commit.id, f"starts from {commit.id[:12]}"
        name, seq = (origin.get("run"), origin.get("seq")) if isinstance(origin, dict) else (None, None)
        if not isinstance(name, str) or type(seq) is not int:
            raise Damaged(f"{entry.file}: expected a run and an entry to continue, found {origin!r:.100}")
        if name == self.name and seq >= entry.seq:
            raise Damaged(f"{entry.file}: expected to continue an earlier entry, found entry {seq}")
        source = self if name == self.name else self._others(name)
        error = source.damage()
        seal = next((found.seal for found in source.log.entries if found.seq == seq), None)
        if error is None and seal != origin.get("entry"):
            raise Damaged(f"{entry.file}: expected to continue entry {seq} of run {name!r}, found another or none")
        state = source.state_at(seq, self._depth + 1).copy()
        if error is not None and source is not self:
            self.bad.append((entry, error))
        state.commits = {key: replace(commit, run=self.name) for key, commit in state.commits.items()}
        state.exists, state.renamed_to = True, None
        self._begin(state)
        return state.tip, f"continues {name}"

    def _begin(self, state: State) -> None:
        self._former |= self.state.commits
        self.state, self._steps = state, None

    def _rewind_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str, str]:
        target = document.get("to")
        if target not in self.state.commits:
            raise Damaged(f"{entry.file}: expected to rewind to a commit of this run, found {target!r:.80}")
        self._move_tip(target)
        self._steps = None
        return target, f"back to {self.state.commits[target]}"

    def _drop_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str | None, str]:
        parts = self._parts(entry, document)
        for commit in self._named(entry, document):
            dropped = tuple(dict.fromkeys((*commit.dropped, *parts)))
            self.state.commits[commit.id] = replace(commit, dropped=dropped)
        return None, f"{_count(document['commits'])}: {document.get('reason') or 'on request'}"

    def _undrop_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str | None, str]:
        parts = self._parts(entry, document)
        for commit in self._named(entry, document):
            left = () if ALL in parts else tuple(part for part in commit.dropped if part not in parts)
            self.state.commits[commit.id] = replace(commit, dropped=left)
        return None, _count(document["commits"])

    def _delete_entry(self, entry: Entry, document: dict[str, Any]) -> tuple[str | None, str]:
        target = document.get("renamed_to")
        self.state.exists = False
        self._deleted_at = entry.seq
        self.state.renamed_to = target if isinstance(target, str) else None
        return self.state.tip, f"renamed to {target}" if target else "deleted"

    def _move_tip(self, new: str) -> None:
        old = self.state.tip
        self.state.tip = new
        if old is None or old in self.state.attempts:
            return
        oldest = None
        for oldest in self._walk(new):
            if oldest.id == old:
                return
        # Where damage broke the line, the old tip may be an ancestor after all.
        if oldest is not None and not self._is_broken_at(oldest):
            self.state.attempts.append(old)

    def _walk(self, start: str | None) -> Iterator[Commit]:
        commit = self.state.commits.get(start or "")
        seen: set[str] = set()
        while commit is not None and commit.id not in seen:
            seen.add(commit.id)
            yield commit
            commit = self.state.commits.get(commit.parents[0]) if commit.parents else None

    def _is_broken_at(self, oldest: Commit) -> bool:
        """Whether the line ends here only because an entry cannot be read."""
        return bool(oldest.parents) and oldest.id != self.state.started_from and self.is_damaged

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(
            f"run {self.name!r} is damaged: {reason}; restore that file from a copy of the store; without one, move it "
            f"away if it is the newest, else `cairn run create NEW ID` from a commit that `cairn reflog` shows, and "
            f"`cairn run delete {self.name}`"
        )

    def _read_commit(self, entry: Entry, document: dict[str, Any], dropped: object = ()) -> Commit:
        packs = document.get("packs", ())
        return read(document.get("commit"), run=self.name, what=str(entry.file), packs=packs, dropped=dropped)

    def _named(self, entry: Entry, document: dict[str, Any]) -> list[Commit]:
        ids = document.get("commits")
        if not isinstance(ids, list) or not all(is_id(item) and item in self.state.commits for item in ids):
            raise Damaged(f"{entry.file}: expected commits of this run, found {ids!r:.100}")
        return [self.state.commits[item] for item in ids]

    def _parts(self, entry: Entry, document: dict[str, Any]) -> tuple[str, ...]:
        parts = document.get("only")
        if parts is None:
            return (ALL,)
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise Damaged(f"{entry.file}: expected the parts to drop, found {parts!r:.100}")
        return tuple(parts)


def _count(commits: list[str]) -> str:
    return f"{len(commits)} commit{'' if len(commits) == 1 else 's'}"
