"""What a crowd at a queue is made of: workers that put, lease and settle, and a register of who holds what."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence

from redrive.model.item import Again, Fresh, Item, Place
from redrive.model.queue import Shard
from redrive.ports.queues import QueueStore
from redrive.testing.kit.queue_clerk import QueueClerk
from redrive.testing.kit.queue_dying import moved
from redrive.testing.kit.queue_samples import HOUR_US, fresh, names
from redrive.testing.kit.samples import START, is_chaos

ITEMS = 1200 if is_chaos() else 150
"""What each worker puts."""
KEYS = 3
"""How many keys each worker has, where items have keys."""


class Register:
    """Who holds what, as the workers themselves know it. An item that is handed to two at once is a defect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._keys: set[str] = set()
        self._last: dict[str, int] = {}
        self.completed: Counter[str] = Counter()
        self.given_up: Counter[str] = Counter()

    def take(self, items: Sequence[Item]) -> None:
        names, keys = [item.reference for item in items], [item.key for item in items if item.key]
        with self._lock:
            assert not self._held.intersection(names), "leased by two at the same time"
            assert not (self.completed + self.given_up).keys() & set(names), "leased after it was settled"
            assert not self._keys.intersection(keys), "two of a key are leased at the same time"
            assert len(set(names)) == len(names)
            assert len(set(keys)) == len(keys)
            self._held.update(names)
            self._keys.update(keys)

    def give_back(self, items: Sequence[Item]) -> None:
        """Call before settling: from then on another may hold it."""
        with self._lock:
            self._held.difference_update(item.reference for item in items)
            self._keys.difference_update(item.key for item in items)

    def settle(self, done: Sequence[Item], dead: Sequence[Item]) -> None:
        """Call while they are held: what is settled later was leased later."""
        with self._lock:
            self.completed.update(item.reference for item in done)
            self.given_up.update(item.reference for item in dead)
            for item in (*done, *dead):
                if item.key:
                    number = int(item.reference.rpartition("/")[2])
                    assert number > self._last.get(item.key, -1), "items of a key were settled out of order"
                    self._last[item.key] = number


def made(worker: str, shard: Shard) -> list[Fresh]:
    """What this worker puts. Where the queue is ordered, items have keys of the worker's own, each in a partition."""
    items = []
    for number in range(ITEMS):
        name = f"{worker}/{number}"
        if shard.is_ordered:
            turn = number % KEYS
            partition = shard.partitions[turn % len(shard.partitions)]
            items.append(fresh(name, key=f"{worker}/{turn}", partition=partition))
        else:
            items.append(fresh(name, priority=number % 2))
    return items


async def work(store: QueueStore, shard: Shard, worker: str, register: Register) -> None:
    """Put, lease and settle until nothing is left: some are given back, some given up, the rest is completed.

    Nobody waits for another: who gives an item back, or makes the next of its key ready, looks again.
    """
    dice = random.Random(worker)
    to_put = made(worker, shard)
    while True:
        batch, to_put = to_put[:10], to_put[10:]
        if batch:
            assert all(await store.put(shard, batch, now=START))
        leased = await store.lease(shard, dice.randrange(1, 12), lease_us=HOUR_US, now=START)
        if not leased.items:
            if to_put:
                continue
            return
        register.take(leased.items)
        done: list[Item] = []
        dead: list[Item] = []
        again: list[Item] = []
        for item in leased.items:
            roll = dice.random()
            (again if roll < 0.2 else dead if roll < 0.3 else done).append(item)
        register.settle(done, dead)
        register.give_back(leased.items)
        await store.complete(shard, leased.partition, [item.id for item in done], now=START)
        told = [Again(id=item.id, dead=True) for item in dead] + [Again(id=item.id) for item in again]
        swept = await store.retry(shard, leased.partition, told, now=START)
        assert (swept.ready, swept.dying) == (len(again), len(dead))


def everybody_is_done(register: Register, shard: Shard, workers: Sequence[str]) -> None:
    """Each item was completed or given up, once."""
    expected = Counter(item.reference for worker in workers for item in made(worker, shard))
    assert register.completed + register.given_up == expected
    assert register.completed
    assert register.given_up


def counts_are_right(store: QueueClerk, shard: Shard) -> None:
    """What each partition says of itself is what is there."""
    for stats, partition in zip(store.stats(shard), shard.partitions, strict=True):
        places = Counter(item.place for item in store.items(shard, partition=partition, limit=1_000_000))
        counted = (stats.ready, stats.leased, stats.scheduled, stats.behind, stats.dying)
        assert counted == tuple(
            places[place] for place in (Place.READY, Place.LEASED, Place.SCHEDULED, Place.BEHIND, Place.DYING)
        )
        assert stats.total == places.total() - places[Place.SCHEDULED]


def worked_off(store: QueueClerk, shard: Shard, dead: Shard) -> Counter[str]:
    """Sweep, move what is dying to its dead queue, and complete the rest; answers with what was completed."""
    while not store.sweep(shard).is_done:
        pass
    while dying := store.dying(shard):
        assert store.move(shard, [moved(item, partition) for partition, item in dying], dead) == len(dying)
    done: Counter[str] = Counter()
    while (leased := store.lease(shard)).items:
        done.update(names(leased.items))
        store.complete(shard, *(item.id for item in leased.items), partition=leased.partition)
    return done
