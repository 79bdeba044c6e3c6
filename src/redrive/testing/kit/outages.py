"""An engine that is killed and started again, or frozen, while many put, claim, extend and settle: the law holds all the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from redrive.engine.observed import ObservedLetters
from redrive.model.arrival import Held
from redrive.model.lease import Claim, Claimed, Due, Lease
from redrive.model.query import Field
from redrive.model.settlement import Completed, Failed, Outcome, Released, Settled, Settlement
from redrive.model.status import Status
from redrive.ports.letters import LetterStore
from redrive.testing.kit.clerk import Clerk, Run
from redrive.testing.kit.crowd import Register
from redrive.testing.kit.lines import (
    BLINK_SECONDS,
    PATIENCE,
    SHORT,
    Batch,
    Lines,
    Remote,
    ended,
    recovered,
    within,
)
from redrive.testing.kit.samples import LANE, START, attempt
from redrive.testing.kit.town import Town

_PUTTERS = 3
_WORKERS = 4
_BATCH = 5
_LEASE = timedelta(hours=1)


class Outages(Lines[Clerk]):
    """An engine that ends at any instant, and comes back."""

    def test_an_engine_that_is_killed_amid_everything_loses_nothing_and_serves_no_two(
        self, remote: Remote, near: Clerk, run: Run
    ) -> None:
        town = _Town(near.store)
        run(town.lives_through_kills(remote.mortal, remote.engine))
        town.is_in_order(near)

    def test_an_engine_that_is_frozen_amid_everything_loses_nothing_and_serves_no_two(
        self, remote: Remote, name: str, near: Clerk, run: Run
    ) -> None:
        town = _Town(store := remote.open(remote.near(name, SHORT)))
        run(town.lives_through_frosts(remote.mortal))
        run(store.close())
        town.is_in_order(near)

    def test_while_the_engine_is_down_each_call_says_so_and_changes_nothing(self, remote: Remote, near: Clerk) -> None:
        batch = Batch("before")
        near.put(*batch.letters)
        leases = [one.lease for one in near.claim()]
        remote.mortal.kill()
        try:
            # The connection may have been in use as it broke; after that there is none.
            ended(near.check)
            for verb in (near.check, near.count, near.claim, lambda: near.get(*batch.ids)):
                # Where only a part is down, the rest may still answer.
                assert within(PATIENCE, verb).is_undone or remote.victim
        finally:
            remote.engine.start()
        near.check()
        assert batch.found_by(near) == len(batch.ids)
        assert near.claim(what=tuple(batch.ids)) == []
        ends = [Settlement.of(lease, Completed()) for lease in leases]
        assert set(near.settle(*ends)) == {Settled.DONE}


class _Town(Town):
    """Tasks that put, claim and settle letters, what they were told, and what they never heard. All of it happens at `START`."""

    def __init__(self, store: LetterStore) -> None:
        super().__init__()
        self._store = ObservedLetters(store)
        self._register = Register()
        self._confirmed: list[str] = []
        self._unknown: list[str] = []
        self._tokens: dict[UUID, int] = {}
        """The highest that anybody was given."""
        self._completing: dict[UUID, Lease] = {}
        """Letters whose completion was asked for and not confirmed."""

    def lives(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield from (self._put(number) for number in range(_PUTTERS))
        yield from (self._work(f"worker {number}") for number in range(_WORKERS))

    async def _put(self, number: int) -> None:
        item = 0
        while not self.is_over:
            item += 1
            name = f"{number}/{item}"
            held = await self.heard(self._store.put(Batch(name, _BATCH).letters, now=START))
            # A put is repeated when its answer was lost, so that what is new may be told of as a duplicate.
            assert held is None or set(held) <= {Held.NEW, Held.DUPLICATE}
            (self._unknown if held is None else self._confirmed).append(name)

    async def _work(self, owner: str) -> None:
        dice = random.Random(owner)
        while not self.is_over:
            claimed = await self.heard(self._store.claim(Claim(owner=owner, lease=_LEASE, limit=7, what=Due(LANE)), now=START))
            if not claimed:
                await asyncio.sleep(BLINK_SECONDS)
                continue
            self._register.take([one.letter.id for one in claimed])
            for one in claimed:
                assert one.lease.token > self._tokens.get(one.letter.id, 0)
                self._tokens[one.letter.id] = one.lease.token
            extended = await self.heard(self._store.extend([one.lease for one in claimed], _LEASE, now=START))
            assert extended is None or None not in extended, "a live lease was lost"
            await self._settle([(one, _outcome(dice, one)) for one in claimed])

    async def _settle(self, ends: list[tuple[Claimed, Outcome]]) -> None:
        completing = {one.letter.id: one.lease for one, outcome in ends if isinstance(outcome, Completed)}
        # Completed ones are never anybody's again: only the rest may be claimed from now on.
        self._register.give_back([one.letter.id for one, _ in ends if one.letter.id not in completing])
        self._completing |= completing
        settlements = [Settlement.of(one.lease, outcome) for one, outcome in ends]
        answers = await self.told(lambda: self._store.settle(settlements, now=START))
        if answers is None:
            return
        assert set(answers) == {Settled.DONE}, "settled before, or the lease was lost"
        self._register.complete(list(completing))
        for id in completing:
            del self._completing[id]

    def is_in_order(self, witness: Clerk) -> None:
        """Everything that was confirmed is there, and everything unknown can be found out and brought to its end."""
        recovered(witness)
        self._nothing_is_lost(witness)
        self._nothing_is_settled_twice(witness)
        names = self._confirmed + self._unknown
        for name in names:
            held = set(witness.put(*Batch(name, _BATCH).letters))
            assert held == {Held.DUPLICATE} or (name in self._unknown and held <= {Held.NEW, Held.DUPLICATE})
        assert witness.count() == _BATCH * len(names)
        witness.now = START + 2 * _LEASE
        for lease in self._completing.values():
            assert witness.end(lease, Completed()) is Settled.LEASE_LOST
        while claimed := witness.claim(limit=500):
            assert all(one.lease.token > self._tokens.get(one.letter.id, 0) for one in claimed)
            assert not self._register.completed.keys() & {one.letter.id for one in claimed}
            witness.settle(*(Settlement.of(one.lease, Completed()) for one in claimed))
        assert witness.tally(Field.STATUS) == {"completed": _BATCH * len(names)}
        assert {one.redrive.count for one in witness.all(limit=500)} == {1}

    def _nothing_is_lost(self, witness: Clerk) -> None:
        found: Counter[str] = Counter(one.source_id.rpartition("/")[0] for one in witness.all(limit=500))
        assert {name: found[name] for name in self._confirmed} == dict.fromkeys(self._confirmed, _BATCH)
        assert found.keys() <= {*self._confirmed, *self._unknown}
        assert all(count <= _BATCH for count in found.values())
        if witness.capabilities.atomic:
            assert set(found.values()) == {_BATCH}, "half a batch was written"
        assert witness.count() == found.total() == sum(witness.tally(Field.STATUS).values())

    def _nothing_is_settled_twice(self, witness: Clerk) -> None:
        assert self._register.completed, "nothing was settled"
        assert set(self._register.completed.values()) == {1}
        done = witness.get(*self._register.completed)
        assert {one and (one.status, one.redrive.count) for one in done} == {(Status.COMPLETED, 1)}
        for one in witness.get(*self._completing):
            assert one is not None
            assert (one.status, one.redrive.count) in {(Status.COMPLETED, 1), (Status.RETRYING, 0)}
        assert witness.claim(what=tuple(self._completing)) == []


def _outcome(dice: random.Random, claimed: Claimed) -> Outcome:
    roll = dice.random()
    if roll < 0.15:
        return Released()
    if roll < 0.3:
        return Failed(attempt=attempt(f"{claimed.lease.token}/{claimed.letter.id}"), next_retry_at=START)
    return Completed()
