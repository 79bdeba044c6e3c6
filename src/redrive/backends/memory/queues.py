"""Queues in memory: gone with the process, the fastest there is, and the oracle every other store is compared with."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from copy import copy
from datetime import datetime, timedelta
from itertools import islice

from redrive.backends.memory.partition import Partition
from redrive.model.bucket import Bucket
from redrive.model.errors import QueueGone
from redrive.model.instant import micros
from redrive.model.item import Again, Due, Fresh, Item, Leased, Move, PartitionStats, Place, Swept
from redrive.model.queue import Catalogue, Queue, Shard
from redrive.ports.capabilities import Capabilities
from redrive.ports.inline import pause


class MemoryQueues:
    """Safe from threads: one lock, held for a batch at a time."""

    capabilities = Capabilities(embedded=True, inline=True, atomic=True)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._catalogue = Catalogue()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._gone: set[tuple[str, int]] = set()
        self._buckets: dict[str, Bucket] = {}
        self._floor = 0

    async def catalogue(self) -> Catalogue:
        return self._catalogue

    async def define(self, version: int, queues: Sequence[Queue], drop: Sequence[str] = ()) -> bool:
        with self._lock:
            if version != self._catalogue.version:
                return False
            known = {queue.id: queue for queue in self._catalogue.queues} | {queue.id: queue for queue in queues}
            left = sorted((queue for queue in known.values() if queue.id not in drop), key=lambda queue: queue.name)
            self._catalogue = Catalogue(version=version + 1, queues=tuple(left))
            return True

    async def put(self, shard: Shard, items: Sequence[Fresh], *, now: datetime | None = None) -> list[str]:
        with self._lock:
            return self._put(shard, items, self._now(now))

    def _put(self, shard: Shard, items: Sequence[Fresh], now_us: int) -> list[str]:
        partitions = self._of(shard)
        roomiest = min(partitions, key=_ready)
        if all(fresh.partition is None for fresh in items):
            return roomiest.put(shard, items, now_us)
        by_partition: dict[int, list[int]] = {}
        for number, fresh in enumerate(items):
            chosen = roomiest.number if fresh.partition is None else fresh.partition
            by_partition.setdefault(chosen, []).append(number)
        ids = [""] * len(items)
        for chosen, numbers in by_partition.items():
            put = self._at(shard, chosen).put(shard, [items[number] for number in numbers], now_us)
            for number, id in zip(numbers, put, strict=True):
                ids[number] = id
        return ids

    async def lease(self, shard: Shard, limit: int, *, lease_us: int = 0, now: datetime | None = None) -> Leased:
        with self._lock:
            now_us = self._now(now)
            until_us = now_us + (lease_us or shard.lease_us)
            fullest = max(self._of(shard), key=_ready)
            if not shard.rate:
                items, dying = fullest.lease(shard, limit, now_us, until_us)
                return Leased(partition=fullest.number, until_us=until_us, items=items, dying=dying)
            bucket = self._buckets.get(shard.queue, Bucket()).filled(shard.rate, now_us)
            if not bucket.whole and fullest.ready:
                self._buckets[shard.queue] = bucket
                return Leased(partition=fullest.number, wait_us=bucket.wait_us(shard.rate))
            items, dying = fullest.lease(shard, min(limit, bucket.whole), now_us, until_us)
            self._buckets[shard.queue] = bucket.less(len(items))
            return Leased(partition=fullest.number, until_us=until_us, items=items, dying=dying)

    async def extend(
        self, shard: Shard, partition: int, ids: Sequence[str], lease_us: int, *, now: datetime | None = None
    ) -> int:
        with self._lock:
            now_us = self._now(now)
            self._at(shard, partition).extend(ids, now_us, now_us + lease_us)
            return now_us + lease_us

    async def complete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        with self._lock:
            self._at(shard, partition).complete(ids, self._now(now))

    async def retry(self, shard: Shard, partition: int, again: Sequence[Again], *, now: datetime | None = None) -> Swept:
        with self._lock:
            return self._at(shard, partition).retry(shard, again, self._now(now))

    async def sweep(self, shard: Shard, *, limit: int = 1000, now: datetime | None = None) -> Swept:
        ready = dying = 0
        is_done = True
        with self._lock:
            now_us = self._now(now)
            for partition in self._of(shard):
                swept = partition.sweep(shard, now_us, limit - ready - dying)
                ready, dying, is_done = ready + swept.ready, dying + swept.dying, is_done and swept.is_done
        return Swept(ready=ready, dying=dying, is_done=is_done)

    async def dying(self, shard: Shard, *, limit: int = 1000) -> list[tuple[int, Item]]:
        with self._lock:
            found = ((partition.number, item) for partition in self._of(shard) for item in partition.dying.values())
            return [(number, copy(item)) for number, item in islice(found, limit)]

    async def move(self, shard: Shard, moves: Sequence[Move], to: Shard, *, now: datetime | None = None) -> int:
        with self._lock:
            now_us = self._now(now)
            named = {(move.partition, move.id): move for move in moves}.values()
            dying = [move for move in named if move.id in self._at(shard, move.partition).dying]
            self._put(to, [move.fresh for move in dying], now_us)
            for move in dying:
                self._at(shard, move.partition).delete([move.id], now_us)
            return len(dying)

    async def next_due(self, *, limit: int = 100) -> list[Due]:
        soonest: dict[str, int] = {}
        with self._lock:
            for (queue, _), partition in self._partitions.items():
                due_us = partition.next_due_us()
                if due_us and due_us < soonest.get(queue, due_us + 1):
                    soonest[queue] = due_us
        found = sorted((Due(queue=queue, at_us=at_us) for queue, at_us in soonest.items()), key=lambda due: due.at_us)
        return found[:limit]

    async def items(
        self, shard: Shard, partition: int, places: frozenset[Place], *, pivot: str = "", limit: int = 1000
    ) -> list[Item]:
        with self._lock:
            return self._at(shard, partition).listed(places, pivot, limit)

    async def stats(self, shard: Shard, *, now: datetime | None = None) -> list[PartitionStats]:
        with self._lock:
            now_us = self._now(now)
            return [partition.stats(now_us) for partition in self._of(shard)]

    async def clear(self, shard: Shard, places: frozenset[Place], *, now: datetime | None = None) -> int:
        with self._lock:
            now_us = self._now(now)
            return sum(partition.clear(places, now_us) for partition in self._of(shard))

    async def delete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        with self._lock:
            self._at(shard, partition).delete(ids, self._now(now))

    async def remove(self, shard: Shard) -> None:
        with self._lock:
            for number in shard.partitions:
                self._partitions.pop((shard.queue, number), None)
                self._gone.add((shard.queue, number))
            self._buckets.pop(shard.queue, None)

    async def changed(self, patience: timedelta) -> None:
        await pause(patience.total_seconds())

    def serve_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        pass

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def _now(self, given: datetime | None) -> int:
        if given is not None:
            return micros(given)
        self._floor = max(self._floor, time.time_ns() // 1000)
        return self._floor

    def _of(self, shard: Shard) -> list[Partition]:
        return [self._at(shard, number) for number in shard.partitions]

    def _at(self, shard: Shard, number: int) -> Partition:
        key = (shard.queue, number)
        found = self._partitions.get(key)
        if found is None:
            if key in self._gone:
                raise QueueGone(f"queue '{shard.queue}' was deleted")
            found = self._partitions[key] = Partition(number)
        return found


def _ready(partition: Partition) -> int:
    return partition.ready
