"""Operations in any order of events: whatever people, targets, other workers and deaths do, each letter is accounted for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from redrive import IllegalTransition, Message, RedriveError, Status, Tempo
from redrive.engine.dead_letters import DeadLetters
from redrive.model.amendment import Amendment
from redrive.model.lease import Claim
from redrive.model.operation import OVER, TO_BE_SENT, Entry, LedgerRow, OperationStatus
from redrive.model.query import EVERYTHING
from redrive.model.settlement import Completed, Released, Settlement
from redrive.model.status import Act
from redrive.ports.inline import drive
from redrive.testing.kit.strategies import effort
from redrive.wiring import store
from tests.unit.mortal import LEASE, Door, Endpoint, Key, Life, Watched, living
from tests.unit.virtual_time import VirtualLoop, VirtualTime, told

T = TypeVar("T")

MANY = 1000
PICK = st.integers(0, 7)
DEATHS = st.none() | st.integers(1, 60)
"""After how many of its verbs a process dies."""
TEMPOS = st.builds(
    Tempo,
    batch=st.sampled_from([1, 2, 40]),
    canary=st.sampled_from([0, 0, 1]),
    window=st.just(timedelta(seconds=2)),
    keeps_order=st.booleans(),
    rate=st.sampled_from([None, None, 2.0]),
    max_rounds=st.sampled_from([1, 3, 5]),
)


class OperationMachine(RuleBasedStateMachine):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.around = ExitStack()
        self.time = VirtualTime()
        self.around.enter_context(told(self.time))
        self.opened = store(url)
        self.loop = VirtualLoop(self.time)
        self.watched = Watched(self.opened.letters, self.opened.desk, self.time.now)
        self.endpoint = Endpoint(self.watched)
        self.numbers = count()
        self.person = self.life()[1]
        self.letters: list[UUID] = []
        self.chosen: dict[UUID, list[tuple[int, UUID, int]]] = {}
        """What each plan showed: number, letter, generation."""
        self.runs: list[tuple[UUID, Life, asyncio.Task[Any]]] = []
        self.died_over: set[UUID] = set()
        self.shared: set[UUID] = set()
        """Operations that two ran at a time: what one died over before it was settled may be left open, to be sent again."""
        self.taken: list[Any] = []
        """What other workers hold, or held."""
        self.done_elsewhere: set[Key] = set()
        self.touched: set[UUID] = set()
        """Letters that others have had in their hands, and may have left anywhere."""

    def life(self, dies_after: int | None = None) -> tuple[Life, DeadLetters]:
        life = Life(next(self.numbers), dies_after)
        return life, living(self.watched.letters, self.watched.desk, life)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on the loop, on which those that are running go on meanwhile."""
        return self.loop.run_until_complete(work)

    @initialize(keys=st.lists(st.sampled_from([None, b"k"]), min_size=2, max_size=6), tempo=TEMPOS, dies_after=DEATHS)
    def begin(self, keys: list[bytes | None], tempo: Tempo, dies_after: int | None) -> None:
        for key in keys:
            self.arrive(key)
        self.plan(None, tempo, "ann")
        self.run(0, dies_after, 0)

    @rule(key=st.sampled_from([None, b"k"]))
    def arrive(self, key: bytes | None) -> None:
        message = Message(body=b"x", id=str(len(self.letters)), key=key)
        self.letters.append(self.do(self.person.capture(message, ValueError("bad"), source="orders")).letter.id)

    @rule(pick=PICK)
    def fail_again(self, pick: int) -> None:
        """The consumer of a message that was sent, or of the one that came first, fails on it."""
        sent = list(self.endpoint.messages.values())
        message = sent[pick % len(sent)] if sent else Message(body=b"x", id=str(pick % len(self.letters)))
        self.do(self.person.capture(message, ValueError("bad again"), source="orders"))

    @rule(pick=PICK)
    def confirm(self, pick: int) -> None:
        """The consumer of a message that was sent works on it."""
        if sent := list(self.endpoint.messages):
            id, generation = sent[pick % len(sent)]
            self.endpoint.worked.add((id, generation))
            self.do(self.person.letters.amend([Amendment(id=id, generation=generation, act=Act.CONFIRM)]))

    @rule(pick=PICK, act=st.sampled_from([Act.ARCHIVE, Act.RESTORE, Act.QUARANTINE, Act.REQUEUE]))
    def decide(self, pick: int, act: Act) -> None:
        """A person does something to a letter, where that is possible."""
        self.touched.add(self.one(pick))
        self.do(self.person.letters.amend([Amendment(id=self.one(pick), act=act)]))

    @rule(pick=PICK, lease=st.sampled_from([timedelta(seconds=10), timedelta(minutes=10)]))
    def take(self, pick: int, lease: timedelta) -> None:
        """Another worker claims a letter."""
        self.touched.add(self.one(pick))
        self.taken += self.do(self.person.letters.claim(Claim(owner="other", lease=lease, what=(self.one(pick),))))

    @rule(pick=PICK, is_done=st.booleans())
    def give_back(self, pick: int, is_done: bool) -> None:
        """It ends its claim, if that is still its own."""
        if self.taken:
            one = self.taken.pop(pick % len(self.taken))
            if is_done:
                self.done_elsewhere.add((one.letter.id, one.letter.generation))
            outcome = Completed() if is_done else Released()
            self.do(self.person.letters.settle([Settlement.of(one.lease, outcome)]))

    @rule(picks=st.none() | st.lists(PICK, min_size=1, max_size=4), tempo=TEMPOS, by=st.sampled_from(["ann", "rule:r"]))
    def plan(self, picks: list[int] | None, tempo: Tempo, by: str) -> None:
        which: dict[str, Any] = {"query": EVERYTHING} if picks is None else {"ids": [self.one(pick) for pick in picks]}
        door = Door(self.endpoint, Life(0), UUID(int=0))
        plan = self.do(self.person.operations.plan(door, tempo=tempo, by=by, **which))
        rows = drive(self.opened.desk.ledger(plan.operation.id, limit=MANY))
        self.chosen[plan.operation.id] = [(row.number, row.letter, row.generation) for row in rows]
        assert len(rows) == plan.total
        assert {row.entry for row in rows} <= {Entry.CHOSEN}

    def one(self, pick: int) -> UUID:
        return self.letters[pick % len(self.letters)]

    def operation(self, pick: int) -> UUID | None:
        known = list(self.chosen)
        return known[pick % len(known)] if known else None

    @rule(pick=PICK, dies_after=DEATHS, turns=st.integers(0, 60))
    def run(self, pick: int, dies_after: int | None, turns: int) -> None:
        """Somebody runs an operation, maybe one that somebody runs already; maybe they die over it."""
        id = self.operation(pick)
        if id is not None:
            life, dlq = self.life(dies_after)
            if dies_after is not None:
                self.died_over.add(id)
            if any(other == id for other, _, _ in self.runs):
                self.shared.add(id)
            door = Door(self.endpoint, life, id)
            self.runs.append((id, life, self.loop.create_task(dlq.operations.run(id, to=door, by=life.name))))
            self.go(turns)

    @rule(pick=PICK, how=st.sampled_from(["die", "cancel"]))
    def interrupt(self, pick: int, how: str) -> None:
        if self.runs:
            id, life, task = self.runs[pick % len(self.runs)]
            if how == "die":
                self.died_over.add(id)
                life.is_dead = True
            else:
                task.cancel()

    @rule(pick=PICK, word=st.sampled_from(["pause", "cancel"]))
    def stop(self, pick: int, word: str) -> None:
        id = self.operation(pick)
        if id is not None:
            with suppress(IllegalTransition):
                self.do(getattr(self.person.operations, word)(id))

    @rule(word=st.sampled_from(Endpoint.WORDS), seconds=st.sampled_from([0.0, 0.0, 1.0, 100.0]))
    def answer(self, word: str, seconds: float) -> None:
        self.endpoint.word, self.endpoint.seconds = word, seconds

    @rule(turns=st.integers(1, 60))
    def go(self, turns: int) -> None:
        """Those that run take some steps."""
        for _ in range(turns):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    @rule(seconds=st.sampled_from([1, 30, 70, 700]))
    def wait(self, seconds: int) -> None:
        self.do(asyncio.sleep(seconds))

    @invariant()
    def what_was_chosen_stays_chosen(self) -> None:
        for id, chosen in self.chosen.items():
            rows = drive(self.opened.desk.ledger(id, limit=MANY))
            assert [(row.number, row.letter, row.generation) for row in rows] == chosen
            assert self.endpoint.by_operation[id] <= {(row.letter, row.generation) for row in rows}
            for row in rows:
                self.ensure_true(row)

    def ensure_true(self, row: LedgerRow) -> None:
        """A row says nothing that did not happen."""
        key = row.letter, row.generation
        if row.entry is Entry.CONFIRMED:
            assert key in self.endpoint.worked | self.done_elsewhere, f"{row} and it never worked"
        if row.entry is Entry.SENT:
            assert key in self.endpoint.arrived, f"{row} and it never arrived"
        if row.entry is Entry.SKIPPED:
            assert row.detail
            assert key not in self.endpoint.by_operation[row.operation], f"{row} and it was sent"

    @invariant()
    def no_letter_is_lost(self) -> None:
        for letter in drive(self.opened.letters.get(self.letters)):
            assert letter is not None
            if letter.status is Status.COMPLETED:
                assert (letter.id, letter.generation) in self.endpoint.worked | self.done_elsewhere

    @invariant()
    def nobody_who_runs_meets_what_is_unforeseen(self) -> None:
        over = [task for _, _, task in self.runs if task.done()]
        self.runs = [one for one in self.runs if not one[2].done()]
        for task in over:
            if not task.cancelled() and (error := task.exception()) is not None:
                assert isinstance(error, RedriveError), repr(error)

    def teardown(self) -> None:
        try:
            self.bring_to_their_end()
        finally:
            for _, _, task in self.runs:
                task.cancel()
            self.do(asyncio.sleep(0))
            self.around.close()
            drive(self.opened.letters.close())
            self.loop.close()

    def bring_to_their_end(self) -> None:
        """All that runs comes to its end, leases run out, and what is left is run once more, to a target that works."""
        self.answer("works", 0.0)
        if self.runs:
            self.do(asyncio.wait([task for _, _, task in self.runs]))
        self.nobody_who_runs_meets_what_is_unforeseen()
        self.wait(3600)
        for id in self.chosen:
            for _ in range(2):
                # A canary that failed before keeps the others back once more, until somebody has decided.
                if self.do(self.person.operations.get(id)).status not in OVER:
                    life, dlq = self.life()
                    self.do(dlq.operations.run(id, to=Door(self.endpoint, life, id), by=life.name))
        self.wait(2 * int(LEASE.total_seconds()))
        self.what_was_chosen_stays_chosen()
        self.no_letter_is_lost()
        for id in self.chosen:
            self.ensure_accounted_for(id)
        for letter in drive(self.opened.letters.get(self.letters)):
            assert letter is not None
            assert letter.status is not Status.RETRYING

    def ensure_accounted_for(self, id: UUID) -> None:
        # The dead cannot count; whoever looks at the operation does it for them.
        look = self.person.operations.observe if id in self.died_over else self.person.operations.get
        operation = self.do(look(id))
        rows = drive(self.opened.desk.ledger(id, limit=MANY))
        assert operation.status in OVER
        assert operation.entries == Counter(row.entry for row in rows) == drive(self.opened.desk.tally(id))
        if operation.status is OperationStatus.FINISHED:
            assert [row for row in rows if row.entry in TO_BE_SENT] == []
            for row, letter in zip(rows, drive(self.opened.letters.get([row.letter for row in rows])), strict=True):
                assert letter is not None
                is_as_sent = letter.generation == row.generation and letter.id not in self.touched and id not in self.shared
                if row.entry in (Entry.CONFIRMED, Entry.SENT) and is_as_sent:
                    assert letter.status in (Status.COMPLETED, Status.REDRIVEN), f"{row} and its letter is {letter.status}"


@pytest.mark.parametrize(("kind", "examples", "chaos"), [("memory", 150, 5000), ("sqlite", 20, 1000)])
def test_whatever_happens_each_letter_is_accounted_for(tmp_path: Path, kind: str, examples: int, chaos: int) -> None:
    numbers = count()

    def machine() -> OperationMachine:
        return OperationMachine("memory:" if kind == "memory" else f"sqlite:{tmp_path}/{next(numbers)}.db")

    run_state_machine_as_test(machine, settings=effort(examples, chaos=chaos, steps=30))  # type: ignore[arg-type]
