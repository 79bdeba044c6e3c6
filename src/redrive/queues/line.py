"""A queue as it is served: its shards, and those who wait for its items."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from zlib import crc32

from msgspec import Struct

from redrive.model.errors import BadSettings, QueueClosing
from redrive.model.item import Fresh
from redrive.model.queue import Queue, Shard
from redrive.ports.queues import QueueStore

CLOSING = "service is shutting down"


class Part(Struct, frozen=True):
    """What a store has of a queue."""

    store: QueueStore
    shard: Shard


class Burials:
    """One after another: two at the same time might send what died to a dead queue in another store, and again when it was worked
    off there meanwhile. Who comes while one is under way shares the next with all who come then."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._begun = 0
        self._is_done = False

    async def share(self, bury: Callable[[], Awaitable[bool]]) -> bool:
        """The answer of a burial that began after this was called."""
        wanted = self._begun + 1
        async with self._turn:
            if self._begun < wanted:
                self._begun += 1
                self._is_done = False
                self._is_done = await bury()
            return self._is_done


class Line:
    """One queue of the catalogue. Made anew when its definition changes; those who wait move over."""

    def __init__(self, queue: Queue, stores: dict[str, QueueStore], *, is_dead_queue: bool, line: Line | None = None) -> None:
        self.queue = queue
        if missing := set(queue.partitions) - set(stores):
            raise BadSettings(
                f"queue '{queue.name}' has partitions in store '{min(missing)}': name it under [queues] in the settings"
            )
        self._by_store = {
            name: Part(stores[name], _shard(queue, name, is_dead_queue)) for name in dict.fromkeys(queue.partitions)
        }
        self.parts = list(self._by_store.values())
        self.only = self.parts[0] if len(self.parts) == 1 else None
        self.room: WaitingRoom = line.room if line else WaitingRoom()
        self.burials: Burials = line.burials if line else Burials()
        self.producing = 0
        self.settling = 0
        self.failures: dict[int, int] = line.failures if line else {}
        """How often in a row the store of a partition has failed."""

    def at(self, partition: int) -> Part:
        """The store and shard that have a partition."""
        return self.only or self._by_store[self.queue.partitions[partition]]

    def failed(self, part: Part) -> None:
        for partition in part.shard.partitions:
            self.failures[partition] = self.failures.get(partition, 0) + 1

    def succeeded(self, part: Part) -> None:
        if self.failures:
            for partition in part.shard.partitions:
                self.failures.pop(partition, None)

    def addressed(self, items: list[Fresh]) -> dict[int, list[Fresh]] | None:
        """Items by the partition they must go to; None: wherever there is room.

        What is told apart by its key, or by its reference, is always told apart in the same partition.
        """
        queue = self.queue
        is_told = self.only is None and any(item.partition is not None for item in items)
        if not (queue.ordered or queue.dedupe or is_told) or len(queue.partitions) == 1:
            return None
        by_partition: dict[int, list[Fresh]] = {}
        for item in items:
            if item.partition is not None:
                by_partition.setdefault(item.partition, []).append(item)
                continue
            text = item.key if queue.ordered and item.key else item.reference
            by_partition.setdefault(partition_of(text, len(queue.partitions)), []).append(item)
        return by_partition


def partition_of(text: str, count: int) -> int:
    """The same text always leads to the same partition."""
    return crc32(text.encode()) % count


def _shard(queue: Queue, name: str, is_dead_queue: bool) -> Shard:
    numbers = tuple(number for number, store in enumerate(queue.partitions) if store == name)
    microsecond = 1_000_000
    return Shard(
        queue=queue.id,
        partitions=numbers,
        lease_us=int(queue.lease_timeout.total_seconds() * microsecond),
        expire_us=0 if is_dead_queue else int(queue.expire_timeout.total_seconds() * microsecond),
        max_attempts=queue.max_attempts,
        is_ordered=queue.ordered,
        dedupe_us=int(queue.dedupe.total_seconds() * microsecond),
        rate=queue.rate * len(numbers) / len(queue.partitions),
    )


class WaitingRoom:
    """Those who wait for an item, in the order they came.

    Whatever makes an item ready wakes the first. Who got something wakes the next, for there may be more; who got nothing ends
    it. So a thousand may wait, and as many are woken as find something, and one.
    """

    def __init__(self) -> None:
        self.arrivals = 0
        """Goes up whenever something may have become ready. Who looked before, and found nothing, looks again."""
        self.clients: set[str] = set()
        self._waiting: OrderedDict[int, asyncio.Future[None]] = OrderedDict()
        self._tickets = 0
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def ticket(self) -> int:
        """The place in the order of those who come. Who was woken for nothing keeps it."""
        self._tickets += 1
        return self._tickets

    def wake(self) -> None:
        """Something may be ready."""
        self.arrivals += 1
        while self._waiting:
            _, waiter = self._waiting.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """All look again: nothing will be as it was."""
        self.arrivals += 1
        for _ in range(len(self._waiting)):
            self.wake()

    async def wait(self, seen: int, seconds: float, ticket: int) -> None:
        """Return when something may be ready that was not among the arrivals `seen`, or after some time."""
        if self._is_closed:
            raise QueueClosing(CLOSING)
        if seen != self.arrivals:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._enter(ticket, waiter)
        timer = loop.call_later(seconds, _end, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # It was woken, and left at the same moment: the call is for the next.
                self.wake()
            raise
        finally:
            timer.cancel()
            if self._waiting.get(ticket) is waiter:
                del self._waiting[ticket]

    def _enter(self, ticket: int, waiter: asyncio.Future[None]) -> None:
        """Into the order, at the end or, for one who waited before, in front; behind the few who are in front with more right."""
        earlier: list[tuple[int, asyncio.Future[None]]] = []
        if self._waiting and next(reversed(self._waiting)) > ticket:
            while next(iter(self._waiting)) < ticket:
                earlier.append(self._waiting.popitem(last=False))
        is_last = not self._waiting or next(reversed(self._waiting)) < ticket
        self._waiting[ticket] = waiter
        if is_last:
            return
        self._waiting.move_to_end(ticket, last=False)
        for before, other in reversed(earlier):
            self._waiting[before] = other
            self._waiting.move_to_end(before, last=False)

    def close(self) -> None:
        """Nobody waits any longer."""
        self._is_closed = True
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(QueueClosing(CLOSING))
        self._waiting.clear()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
