"""Generated command sequences: whatever is done to a store, it answers as the oracle does."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from redrive.backends.memory.letters import MemoryLetters
from redrive.model.amendment import Amendment
from redrive.model.lease import Claim, Due, Lease
from redrive.model.letter import Letter
from redrive.model.query import EVERYTHING, TALLIED, And, Field, GroupOrder, Is, Op, Order, Query, looks_behind, tally_key
from redrive.model.settlement import Outcome, Settlement
from redrive.model.status import Status
from redrive.ports.inline import drive
from redrive.ports.letters import LetterStore
from redrive.testing.kit import strategies
from redrive.testing.kit.clerk import Clerk, Kit, Opener, Run, running
from redrive.testing.kit.samples import LANE, START

_MANY = 10_000

_QUESTIONS: tuple[Query, ...] = (
    Is(Field.KIND, "order"),
    Is(Field.KIND, "bill"),
    Is(Field.KEY, b"\0k"),
    Is(Field.TAG, "blue"),
    Is(Field.PRIORITY, 0),
    Is(Field.GENERATION, 1),
    Is(Field.ATTEMPTS, 2),
    Is(Field.NEXT_RETRY_AT, START, Op.LE),
    Is(Field.EXPIRES_AT, START, Op.GT),
    Is(Field.DEAD_LETTERED_AT, START),
    Is(Field.UPDATED_AT, START),
)
"""One for each way in which what is stored and what is asked from could drift apart."""

Pair = tuple[Lease, Lease]
"""The same lease as the store and as the oracle gave it: tokens are a store's own affair."""


_PICKS = st.lists(st.integers(0, 3) | st.integers(0, 50), min_size=1, max_size=3)
_OFF = st.sampled_from([(0, 0)] * 6 + [(2**62, 0), (0, 1)])
"""How far a lease's token and generation are off; a token so far off is no store's."""


def _forged(lease: Lease, token: int, generation: int) -> Lease:
    return replace(lease, token=lease.token + token, generation=lease.generation + generation)


class LetterMachine(RuleBasedStateMachine):
    """Does the same to a store and to the oracle, and compares every answer."""

    def __init__(self, store: LetterStore, run: Run) -> None:
        super().__init__()
        self.store = Clerk(store, run)
        self.oracle = Clerk(MemoryLetters(), drive)
        self.leases: list[Pair] = []
        self.orders = [order for order in Order if order is not Order.NEAREST or store.capabilities.nearest]
        self.pages: list[tuple[Query, Order, int, str | None, str | None]] = []

    def teardown(self) -> None:
        """Let every lease run out and take all there is: what a sequence left behind shows in the order of claims."""
        try:
            self.wait(timedelta(days=100))
            self.claim(Claim(owner="due", lease=timedelta(minutes=1), limit=_MANY, what=Due(LANE)))
            self.wait(timedelta(hours=1))
            self.claim(Claim(owner="all", lease=timedelta(minutes=1), limit=_MANY, what=EVERYTHING))
            self.wait(timedelta(hours=1))
            self.purge(EVERYTHING, _MANY)
        finally:
            self.store.close()

    @initialize(letters=st.lists(strategies.arrivals(), min_size=3, max_size=8))
    def begin(self, letters: list[Letter]) -> None:
        self.put(letters)

    @rule(letters=st.lists(strategies.arrivals(), max_size=4))
    def put(self, letters: list[Letter]) -> None:
        assert self.store.put(*letters) == self.oracle.put(*letters)

    @rule(duration=st.sampled_from([timedelta(microseconds=1), timedelta(hours=1), timedelta(hours=1), timedelta(hours=3)]))
    def wait(self, duration: timedelta) -> None:
        self.store.now += duration
        self.oracle.now += duration

    @rule(limit=st.integers(1, 3), hours=st.sampled_from([1, 1, 3]))
    def claim_due(self, limit: int, hours: int) -> None:
        self.claim(Claim(owner="due", lease=timedelta(hours=hours), limit=limit, what=Due(LANE)))

    @rule(claim=strategies.claims())
    def claim(self, claim: Claim) -> None:
        if not isinstance(claim.what, Due | tuple):
            self._prepare(claim.what)
        how: dict[str, Any] = {name: getattr(claim, name) for name in claim.__struct_fields__}
        ours, theirs = self.store.claim(**how), self.oracle.claim(**how)
        assert [one.letter for one in ours] == [one.letter for one in theirs]
        pairs = [(one.lease, other.lease) for one, other in zip(ours, theirs, strict=True)]
        for one, other in pairs:
            assert replace(one, token=0) == replace(other, token=0)
            earlier = [known.token for known, _ in self.leases if known.id == one.id]
            assert all(token < one.token for token in earlier)
        self.leases += pairs

    @rule(picks=_PICKS, by=st.sampled_from([timedelta(minutes=1), timedelta(hours=1), timedelta(hours=3)]), off=_OFF)
    def extend(self, picks: list[int], by: timedelta, off: tuple[int, int]) -> None:
        pairs = self._picked(picks, off)
        ours = self.store.extend(*(one for one, _ in pairs), by=by)
        theirs = self.oracle.extend(*(other for _, other in pairs), by=by)
        assert [one and replace(one, token=0) for one in ours] == [other and replace(other, token=0) for other in theirs]

    @rule(picks=_PICKS, outcome=strategies.outcomes(), off=_OFF)
    def settle(self, picks: list[int], outcome: Outcome, off: tuple[int, int]) -> None:
        pairs = self._picked(picks, off)
        ours = self.store.settle(*(Settlement.of(one, outcome) for one, _ in pairs))
        theirs = self.oracle.settle(*(Settlement.of(other, outcome) for _, other in pairs))
        assert ours == theirs

    @rule(amendments=st.lists(strategies.amendments(), min_size=1, max_size=3))
    def amend(self, amendments: list[Amendment]) -> None:
        assert self.store.amend(*amendments) == self.oracle.amend(*amendments)

    @rule(query=strategies.queries(), limit=st.integers(0, 3))
    def purge(self, query: Query, limit: int) -> None:
        self._prepare(query)
        assert self.store.purge(query, limit=limit) == self.oracle.purge(query, limit=limit)

    @rule(query=strategies.queries(), among=st.lists(st.sampled_from(strategies.POOL), max_size=4), limit=st.integers(0, 3))
    def purge_among(self, query: Query, among: list[UUID], limit: int) -> None:
        self._prepare(query)
        ours, theirs = (one.purge(query, limit=limit, among=among) for one in (self.store, self.oracle))
        assert ours == theirs

    @rule(most=st.integers(0, 3))
    def tidy(self, most: int) -> None:
        """Some of what was put off is done, or all: nobody can tell from the answers."""
        self.store.tidy(most)

    @rule(query=strategies.queries(), pick=st.integers(0, 3), limit=st.integers(1, 5))
    def find(self, query: Query, pick: int, limit: int) -> None:
        self._turn(query, self.orders[pick % len(self.orders)], limit, None, None)

    @rule(pick=st.integers(0, 50))
    def go_on(self, pick: int) -> None:
        """Turn a page that was left open while other things happened."""
        if self.pages:
            self._turn(*self.pages.pop(pick % len(self.pages)))

    @rule(query=strategies.queries(), by=st.sampled_from(sorted(TALLIED)), limit=st.integers(1, 3))
    def ask(self, query: Query, by: Field, limit: int) -> None:
        self._prepare(query)
        assert self.store.count(query) == self.oracle.count(query)
        assert self.store.tally(by, query) == self.oracle.tally(by, query)
        assert self.store.get(*strategies.POOL) == self.oracle.get(*strategies.POOL)
        since, until = self.oracle.now - timedelta(hours=3), self.oracle.now
        assert self.store.hourly(since, until, query) == self.oracle.hourly(since, until, query)
        if self.store.capabilities.groups:
            for order in GroupOrder:
                ours, theirs = (one.all_groups(query, order=order, limit=limit) for one in (self.store, self.oracle))
                assert ours == theirs, order

    @rule(value=st.sampled_from(Status), by=st.sampled_from(sorted(TALLIED)), pick=st.integers(0, 100))
    def ask_what_counts_answer(self, value: Status, by: Field, pick: int) -> None:
        """A namespace, a value of one field and a status, in any combination."""
        letters = self.oracle.all()
        parts: list[Query] = [Is(Field.STATUS, value.value)] if pick % 2 else []
        if letters:
            one = letters[pick % len(letters)]
            parts += [Is(Field.NAMESPACE, one.namespace)] if pick % 3 else []
            parts += [Is(by, tally_key(by)(one))] if pick % 5 else []
        query = And(tuple(parts))
        assert self.store.count(query) == self.oracle.count(query), query
        for field in TALLIED:
            assert self.store.tally(field, query) == self.oracle.tally(field, query), (field, query)

    @invariant()
    def both_hold_the_same(self) -> None:
        ours, theirs = self.store.find(limit=_MANY), self.oracle.find(limit=_MANY)
        assert ours.letters == theirs.letters

    @invariant()
    def both_answer_the_same_questions(self) -> None:
        for query in _QUESTIONS:
            assert self.store.count(query) == self.oracle.count(query), query
        for by in TALLIED:
            assert self.store.tally(by) == self.oracle.tally(by), by
        if self.store.capabilities.groups:
            for query in (EVERYTHING, Is(Field.SOURCE, "orders"), Is(Field.NAMESPACE, "default")):
                assert self.store.groups(query) == self.oracle.groups(query), query
        if self.store.capabilities.counters:
            assert self.store.recount() == []

    def _picked(self, picks: list[int], off: tuple[int, int]) -> list[Pair]:
        """Some leases: the latest are most often live, older ones are stale on purpose, and those that are off are forged."""
        token, generation = off
        return [
            (_forged(one, token, generation), _forged(other, token, generation))
            for one, other in (self.leases[-1 - pick % len(self.leases)] for pick in picks if self.leases)
        ]

    def _prepare(self, query: Query) -> None:
        """Bodies and tracebacks may be searched a little later; then they are searched like all else."""
        if looks_behind(query):
            self.store.tidy_all()

    def _turn(self, query: Query, order: Order, limit: int, ours: str | None, theirs: str | None) -> None:
        self._prepare(query)
        page = self.store.find(query, order=order, limit=limit, after=ours)
        expected = self.oracle.find(query, order=order, limit=limit, after=theirs)
        assert page.letters == expected.letters
        assert (page.next is None) == (expected.next is None)
        if page.next is not None:
            self.pages.append((query, order, limit, page.next, expected.next))


class Sequences(Kit):
    """Tier 2: generated command sequences against the oracle."""

    def test_any_sequence_of_commands_is_answered_as_the_oracle_does(self, opener: Opener, place: Path, share: float) -> None:
        effort = strategies.effort(max(1, round(40 * share)), chaos=3000, steps=30)
        numbers = count()

        def machine() -> LetterMachine:
            own = place / str(next(numbers))
            own.mkdir()
            return LetterMachine(opener(own), run)

        own = place / "probe"
        own.mkdir()
        probe = opener(own)
        with running(probe) as run:
            run(probe.close())
            run_state_machine_as_test(machine, settings=effort)  # type: ignore[arg-type]  # any maker will do
        assert next(numbers) >= effort.max_examples
