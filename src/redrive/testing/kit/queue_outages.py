"""An engine of queues that is killed and started again, or frozen, while many put, lease, settle, sweep and move."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from redrive.model.item import Again, Fresh, Item, Place
from redrive.ports.queues import QueueStore
from redrive.testing.kit.clerk import Run
from redrive.testing.kit.lines import BLINK_SECONDS, PATIENCE, SHORT, SOON, ended, recovered, within
from redrive.testing.kit.queue_clerk import QueueClerk
from redrive.testing.kit.queue_crowd import Register, counts_are_right, worked_off
from redrive.testing.kit.queue_dying import moved
from redrive.testing.kit.queue_hearing import hears
from redrive.testing.kit.queue_lines import QueueLines, QueueRemote, own
from redrive.testing.kit.queue_samples import DEAD, HOUR_US, PAIR, SECOND_US, START_US, fresh, names
from redrive.testing.kit.queue_steps import STEPS, looks
from redrive.testing.kit.samples import START
from redrive.testing.kit.town import Town

_PUTTERS = 2
_WORKERS = 4
_BATCH = 6
_LATER = timedelta(seconds=1)


class QueueOutages(QueueLines):
    """An engine that ends at any instant, and comes back."""

    def test_an_engine_that_is_killed_amid_everything_loses_nothing_and_serves_no_two(
        self, remote: QueueRemote, near: QueueClerk, run: Run
    ) -> None:
        town = _Town(near.store)
        run(town.lives_through_kills(remote.mortal, remote.engine))
        town.is_in_order(near)

    def test_an_engine_that_is_frozen_amid_everything_loses_nothing_and_serves_no_two(
        self, remote: QueueRemote, name: str, near: QueueClerk, run: Run
    ) -> None:
        town = _Town(store := remote.open(remote.near(name, SHORT)))
        run(town.lives_through_frosts(remote.mortal))
        run(store.close())
        town.is_in_order(near)

    def test_while_the_engine_is_down_each_call_says_so_and_changes_nothing_and_then_it_goes_on(
        self, remote: QueueRemote, near: QueueClerk
    ) -> None:
        steps = [kind() for kind in STEPS]
        for step in steps:
            step.prepare(near)
        remote.mortal.kill()
        try:
            # The connection may have been in use as it broke; after that there is none.
            ended(near.check)
            for look in looks(near.store):
                assert within(PATIENCE, partial(near.run, look)).is_undone
            told = [within(PATIENCE, partial(step.call, near)) for step in steps]
        finally:
            remote.engine.start()
        assert all(one.is_undone for one in told)
        recovered(near)
        for step, one in zip(steps, told, strict=True):
            near.now = START
            step.prove(near, near, one)

    def test_who_waits_hears_of_changes_again_after_the_engine_was_down(
        self, remote: QueueRemote, name: str, near: QueueClerk, other: QueueStore, run: Run
    ) -> None:
        listener = remote.listener(remote.near(name, SHORT))
        run(hears(listener, other))
        remote.mortal.kill()
        try:
            for _ in range(2):
                assert not within(SOON, lambda: run(listener.changed(SHORT))).is_unknown
        finally:
            remote.engine.start()
        recovered(near)
        # Here, too, the first call may meet a connection that broke.
        ended(lambda: run(other.check()))
        run(hears(listener, other))
        run(listener.close())


class _Town(Town):
    """Tasks that live on one queue and its dead queue, what they were told, and what they never heard.

    All of it happens at `START`, except that items which are to come back later do so a second after.
    """

    def __init__(self, store: QueueStore) -> None:
        super().__init__()
        self._store = store
        self._shard = replace(own(PAIR), max_attempts=0, expire_us=0, lease_us=HOUR_US)
        self._dead = own(DEAD)
        self._register = Register()
        self._attempts: Counter[str] = Counter()
        self._confirmed: set[str] = set()
        self._unknown: set[str] = set()
        """Batches of which nobody knows whether they were put."""
        self._completed: set[str] = set()
        self._completing: set[str] = set()
        """Items of which nobody knows whether they were completed."""
        self._given_up: set[str] = set()
        self._moved: set[str] = set()

    def lives(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield from (self._put(number) for number in range(_PUTTERS))
        yield from (self._work(f"worker {number}") for number in range(_WORKERS))

    async def _put(self, number: int) -> None:
        batch = 0
        while not self.is_over:
            batch += 1
            name = f"{number}/{batch}"
            ids = await self.told(partial(self._store.put, self._shard, _batch(name), now=START))
            assert ids is None or all(ids), "what was said not to be done was done"
            (self._unknown if ids is None else self._confirmed).add(name)

    async def _work(self, worker: str) -> None:
        dice = random.Random(worker)
        while not self.is_over:
            leased = await self.told(partial(self._store.lease, self._shard, 7, now=START))
            if leased is None or not leased.items:
                await asyncio.sleep(BLINK_SECONDS)
                continue
            self._register.take(leased.items)
            for item in leased.items:
                assert item.attempts > self._attempts[item.reference]
                self._attempts[item.reference] = item.attempts
            ids = [item.id for item in leased.items]
            await self.told(partial(self._store.extend, self._shard, leased.partition, ids, HOUR_US, now=START))
            lots: dict[str, list[Item]] = {"done": [], "dead": [], "again": [], "later": []}
            for item in leased.items:
                lots[dice.choices(list(lots), [6, 2, 1, 1])[0]].append(item)
            await self._settle(leased.partition, **lots)
            await self.told(partial(self._store.sweep, self._shard, now=START + _LATER))
            await self._bury()

    async def _settle(self, partition: int, done: list[Item], dead: list[Item], again: list[Item], later: list[Item]) -> None:
        # Nobody leases once more what is completed or given up, be it told of or not; the rest is anybody's from now on.
        self._register.settle(done, dead)
        self._register.give_back([*done, *dead, *again, *later])
        self._completing.update(names(done))
        if await self.told(partial(self._complete, partition, done)):
            self._completing.difference_update(names(done))
            self._completed.update(names(done))
        ends = [
            *(Again(id=item.id, dead=True) for item in dead),
            *(Again(id=item.id) for item in again),
            *(Again(id=item.id, at_us=START_US + SECOND_US) for item in later),
        ]
        swept = await self.told(partial(self._store.retry, self._shard, partition, ends, now=START))
        if swept is not None:
            assert (swept.ready, swept.dying) == (len(again), len(dead))
            self._given_up.update(names(dead))

    async def _complete(self, partition: int, done: list[Item]) -> bool:
        await self._store.complete(self._shard, partition, [item.id for item in done], now=START)
        return True

    async def _bury(self) -> None:
        dying = await self.heard(self._store.dying(self._shard, limit=10)) or []
        moves = [moved(item, partition) for partition, item in dying]
        if await self.told(partial(self._store.move, self._shard, moves, self._dead, now=START)) is not None:
            # Those that were not moved now, another has moved meanwhile.
            self._moved.update(item.reference for _, item in dying)

    def is_in_order(self, witness: QueueClerk) -> None:
        """Everything that was confirmed is there, and everything unknown can be found out and brought to its end."""
        recovered(witness)
        here, dead = witness.everything(self._shard), witness.everything(self._dead)
        self._nothing_is_lost(here, dead)
        counts_are_right(witness, self._shard)
        counts_are_right(witness, self._dead)
        for name in sorted(self._unknown):
            if not any(self._attempts[item.reference] for item in _batch(name)):
                self._confirmed.add(name)
                assert len({bool(id) for id in witness.put(self._shard, *_batch(name))}) == 1, "half a batch was put"
        every = {item.reference for name in self._confirmed | self._unknown for item in _batch(name)}
        witness.now = START + timedelta(hours=2)
        done = worked_off(witness, self._shard, self._dead)
        assert witness.everything(self._shard) == []
        buried = Counter(names(witness.everything(self._dead)))
        assert set((done + buried).values()) == {1}, "an item came twice"
        assert not self._completed & (done + buried).keys(), "a completed item has come back"
        assert every - (done + buried).keys() <= self._completed | self._completing, "an item is gone"

    def _nothing_is_lost(self, here: list[Item], dead: list[Item]) -> None:
        assert self._completed, "nothing was completed"
        assert self._moved, "nothing was moved"
        found = Counter(names(here)) + Counter(names(dead))
        assert set(found.values()) == {1}, "an item is there twice"
        assert not self._completed & found.keys(), "a completed item has come back"
        known = found.keys() | self._completed | self._completing
        assert {item.reference for name in self._confirmed for item in _batch(name)} <= known, "a confirmed item is gone"
        parts = Counter(name.rpartition("/")[0] for name in known)
        assert parts.keys() <= self._confirmed | self._unknown
        assert set(parts.values()) == {_BATCH}, "half a batch was put"
        assert self._moved <= set(names(dead)), "a moved item is not in the dead queue"
        dying = {item.reference for item in here if item.place is Place.DYING}
        assert self._given_up <= dying | set(names(dead)), "what was given up is not on its way to the dead queue"
        for item in (*here, *dead):
            assert item.payload == _item(item.reference).payload


def _item(name: str) -> Fresh:
    """The item of this name: large enough to be torn, known by heart, and put but once."""
    return fresh(name, payload=name.encode() * 300, source_id=name, partition=int(name.rpartition("/")[2]) % 2)


def _batch(name: str) -> list[Fresh]:
    return [_item(f"{name}/{number}") for number in range(_BATCH)]
