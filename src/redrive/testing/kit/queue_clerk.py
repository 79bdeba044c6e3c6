"""What every kit for queues stands on: an opener to override, and a clerk who uses the store on the test's own time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from redrive.model.instant import micros
from redrive.model.item import Again, Due, Fresh, Item, Leased, Move, PartitionStats, Place, Swept
from redrive.model.queue import Catalogue, Queue, Shard
from redrive.ports.capabilities import Capabilities
from redrive.ports.queues import QueueStore
from redrive.testing.kit.clerk import Placed, Run, no_opener
from redrive.testing.kit.queue_samples import EVERYWHERE
from redrive.testing.kit.samples import START

QueueOpener = Callable[[Path], QueueStore]
"""Opens the store that lives in this folder: a new folder gives an empty store, a known one what a durable store kept.

To be tested with several processes it must be a function that other processes can import.
"""


class QueueClerk:
    """Uses a store as a blocking caller would. `now` is the instant of every call, and moves only by `wait`."""

    def __init__(self, store: QueueStore, run: Run, now: datetime = START) -> None:
        self.store = store
        self.now = now
        self.run = run

    @property
    def capabilities(self) -> Capabilities:
        return self.store.capabilities

    @property
    def now_us(self) -> int:
        return micros(self.now)

    def wait(self, **duration: float) -> None:
        """Let time pass: `wait(minutes=5)`."""
        self.now += timedelta(**duration)

    def catalogue(self) -> Catalogue:
        return self.run(self.store.catalogue())

    def define(self, version: int, *queues: Queue, drop: Sequence[str] = ()) -> bool:
        return self.run(self.store.define(version, queues, drop))

    def put(self, shard: Shard, *items: Fresh) -> list[str]:
        return self.run(self.store.put(shard, items, now=self.now))

    def lease(self, shard: Shard, limit: int = 1000, *, lease_us: int = 0) -> Leased:
        return self.run(self.store.lease(shard, limit, lease_us=lease_us, now=self.now))

    def take(self, shard: Shard, *, lease_us: int = 0) -> Item:
        """The next item, which must be there."""
        (item,) = self.lease(shard, 1, lease_us=lease_us).items
        return item

    def extend(self, shard: Shard, *ids: str, lease_us: int, partition: int = 0) -> int:
        return self.run(self.store.extend(shard, partition, ids, lease_us, now=self.now))

    def complete(self, shard: Shard, *ids: str, partition: int = 0) -> None:
        self.run(self.store.complete(shard, partition, ids, now=self.now))

    def retry(self, shard: Shard, *again: Again, partition: int = 0) -> Swept:
        return self.run(self.store.retry(shard, partition, again, now=self.now))

    def sweep(self, shard: Shard, *, limit: int = 1000) -> Swept:
        return self.run(self.store.sweep(shard, limit=limit, now=self.now))

    def dying(self, shard: Shard, *, limit: int = 1000) -> list[tuple[int, Item]]:
        return self.run(self.store.dying(shard, limit=limit))

    def move(self, shard: Shard, moves: Sequence[Move], to: Shard) -> int:
        return self.run(self.store.move(shard, moves, to, now=self.now))

    def next_due(self, *, limit: int = 100) -> list[Due]:
        return self.run(self.store.next_due(limit=limit))

    def items(
        self, shard: Shard, *, partition: int = 0, places: Iterable[Place] = EVERYWHERE, pivot: str = "", limit: int = 1000
    ) -> list[Item]:
        return self.run(self.store.items(shard, partition, frozenset(places), pivot=pivot, limit=limit))

    def everything(self, shard: Shard) -> list[Item]:
        """The items of all partitions."""
        return [item for partition in shard.partitions for item in self.items(shard, partition=partition, limit=1_000_000)]

    def one(self, shard: Shard, name: str) -> Item:
        """The item of this name, which must be there once."""
        (found,) = [item for item in self.everything(shard) if item.reference == name]
        return found

    def place(self, shard: Shard, name: str) -> Place:
        return self.one(shard, name).place

    def stats(self, shard: Shard) -> list[PartitionStats]:
        return self.run(self.store.stats(shard, now=self.now))

    def clear(self, shard: Shard, *places: Place) -> int:
        return self.run(self.store.clear(shard, frozenset(places), now=self.now))

    def delete(self, shard: Shard, *ids: str, partition: int = 0) -> None:
        self.run(self.store.delete(shard, partition, ids, now=self.now))

    def remove(self, shard: Shard) -> None:
        self.run(self.store.remove(shard))

    def changed(self, patience: timedelta) -> None:
        self.run(self.store.changed(patience))

    def check(self) -> None:
        self.run(self.store.check())

    def close(self) -> None:
        self.run(self.store.close())


class QueueKit(Placed):
    """Fixtures of all kits for queues. A subclass overrides `opener`."""

    @pytest.fixture
    def opener(self) -> QueueOpener:
        """Give the function that opens the store under test."""
        no_opener()

    @pytest.fixture
    def store(self, opener: QueueOpener, place: Path, run: Run) -> Iterator[QueueClerk]:
        """An empty store."""
        clerk = QueueClerk(opener(place), run)
        yield clerk
        clerk.close()
