"""Many workers at one queue: tasks and threads that put, lease, settle, sweep and move at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from msgspec.structs import replace

from redrive.model.errors import NoSuchItem, QueueGone
from redrive.model.item import Again, Move, Place
from redrive.model.queue import Shard
from redrive.testing.kit.clerk import Run
from redrive.testing.kit.crowd import PATIENCE_SECONDS, THREADS, in_threads
from redrive.testing.kit.queue_catalogue import queue
from redrive.testing.kit.queue_clerk import QueueClerk, QueueKit
from redrive.testing.kit.queue_crowd import Register, everybody_is_done, work
from redrive.testing.kit.queue_dying import moved
from redrive.testing.kit.queue_samples import DEAD, LINES, MINUTE_US, ORDERS, PAIR, fresh, named, names
from redrive.testing.kit.samples import START

_TASKS = 6
_ITEMS = 60

_BUSY = [replace(PAIR, max_attempts=0), replace(LINES, partitions=(0, 1), max_attempts=0)]
busy = pytest.mark.parametrize("shard", _BUSY, ids=["plain", "ordered"])


def _only_the_dead_are_left(store: QueueClerk, shard: Shard, register: Register) -> None:
    left = store.everything(shard)
    assert {item.place for item in left} == {Place.DYING}
    assert Counter(names(left)) == register.given_up


class QueueOwners(QueueKit):
    """Tier 3: whoever leases, each item is held by one at a time and settled once."""

    @busy
    def test_tasks_settle_every_item_exactly_once(self, store: QueueClerk, run: Run, shard: Shard) -> None:
        register = Register()
        workers = [f"task {number}" for number in range(_TASKS)]

        async def crowd() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(work(store.store, shard, worker, register))

        run(crowd())
        everybody_is_done(register, shard, workers)
        _only_the_dead_are_left(store, shard, register)

    @busy
    def test_threads_settle_every_item_exactly_once(self, store: QueueClerk, shard: Shard) -> None:
        register = Register()
        workers = [f"thread {number}" for number in range(THREADS)]
        in_threads(store.store, THREADS, lambda number, run: run(work(store.store, shard, workers[number], register)))
        everybody_is_done(register, shard, workers)
        _only_the_dead_are_left(store, shard, register)

    def test_threads_that_move_the_same_items_move_each_once(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named(*map(str, range(_ITEMS))))
        store.retry(ORDERS, *(Again(id=item.id, dead=True) for item in store.lease(ORDERS).items))
        counts: list[int] = []

        def carry(number: int, run: Run) -> None:
            # Each time somebody moves one, or there are none left.
            for _ in range(_ITEMS + 1):
                dying = run(store.store.dying(ORDERS, limit=7 + number))
                moves: list[Move] = [moved(item, partition) for partition, item in dying]
                counts.append(run(store.store.move(ORDERS, moves, DEAD, now=START)))

        in_threads(store.store, THREADS, carry)
        assert sum(counts) == _ITEMS
        assert Counter(names(store.items(DEAD))) == Counter(map(str, range(_ITEMS)))
        assert store.items(ORDERS) == []

    def test_threads_that_sweep_the_same_items_do_each_once(self, store: QueueClerk) -> None:
        store.put(PAIR, *named(*map(str, range(_ITEMS)), partition=0))
        store.put(PAIR, *named(*map(str, range(_ITEMS, 2 * _ITEMS)), partition=1, enqueue_us=store.now_us + MINUTE_US))
        store.lease(PAIR)
        store.wait(minutes=1)
        counts: list[int] = []

        def sweep(number: int, run: Run) -> None:
            for _ in range(2 * _ITEMS):
                swept = run(store.store.sweep(PAIR, limit=5 + number, now=store.now))
                counts.append(swept.ready)
                if swept.is_done:
                    return

        in_threads(store.store, THREADS, sweep)
        assert sum(counts) == 2 * _ITEMS
        assert Counter(names(store.everything(PAIR))) == Counter(map(str, range(2 * _ITEMS)))
        assert [one.ready for one in store.stats(PAIR)] == [_ITEMS, _ITEMS]

    def test_of_many_that_put_the_same_source_or_reference_one_does(self, store: QueueClerk) -> None:
        shard = replace(ORDERS, dedupe_us=MINUTE_US)
        new: Counter[str] = Counter()
        lock = threading.Lock()

        def put(thread: int, run: Run) -> None:
            for number in range(_ITEMS):
                for kind, one in (("reference", fresh(str(number))), ("source", fresh("", source_id=str(number)))):
                    (id,) = run(store.store.put(shard, [one], now=START))
                    with lock:
                        new[f"{kind} {number}"] += bool(id)

        in_threads(store.store, THREADS, put)
        assert set(new.values()) == {1}
        assert store.stats(shard)[0].ready == len(new) == 2 * _ITEMS

    def test_of_many_that_complete_the_same_item_one_does(self, store: QueueClerk) -> None:
        store.put(ORDERS, *named(*map(str, range(_ITEMS))))
        items = store.lease(ORDERS).items
        done: Counter[str] = Counter()
        lock = threading.Lock()

        def complete(thread: int, run: Run) -> None:
            for item in items:
                try:
                    run(store.store.complete(ORDERS, 0, [item.id], now=START))
                except NoSuchItem:
                    continue
                with lock:
                    done[item.reference] += 1

        in_threads(store.store, THREADS, complete)
        assert done == Counter(names(items))
        assert store.items(ORDERS) == []

    def test_nobody_puts_into_a_queue_that_is_removed_meanwhile(self, store: QueueClerk) -> None:
        refused: list[int] = []
        removed = threading.Event()

        def put(number: int, run: Run) -> None:
            if number == 0:
                for _ in range(5):
                    run(store.store.put(ORDERS, [fresh("mine")], now=START))
                run(store.store.remove(ORDERS))
                removed.set()
                return
            while True:
                is_late = removed.is_set()
                try:
                    run(store.store.put(ORDERS, [fresh(str(number))], now=START))
                except QueueGone:
                    refused.append(number)
                    return
                assert not is_late, "an item was put into a queue that is gone"

        in_threads(store.store, THREADS, put)
        assert sorted(refused) == list(range(1, THREADS))
        with pytest.raises(QueueGone):
            store.items(ORDERS)

    def test_no_definition_of_many_is_lost(self, store: QueueClerk) -> None:
        wins: list[int] = []

        def define(number: int, run: Run) -> None:
            for turn in range(10):
                while True:
                    version = run(store.store.catalogue()).version
                    if run(store.store.define(version, [queue(f"{number}/{turn}")])):
                        break
                wins.append(version)

        in_threads(store.store, THREADS, define)
        assert len(set(wins)) == len(wins) == THREADS * 10
        assert len(store.catalogue().queues) == THREADS * 10
