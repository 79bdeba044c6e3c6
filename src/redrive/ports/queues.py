"""`QueueStore`: where items wait to be leased, partition by partition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from redrive.model.item import Again, Due, Fresh, Item, Leased, Move, PartitionStats, Place, Swept
from redrive.model.queue import Catalogue, Queue, Shard
from redrive.ports.capabilities import Capabilities

if TYPE_CHECKING:
    import asyncio


class QueueStore(Protocol):
    """Keeps the items of queues' partitions, and in a home store the catalogue of all queues.

    A partition is first in, first out by position id, within each priority. Every verb is one transaction: it is done whole or
    not at all, and what raises has changed nothing, except for `AnswerLost`. Verbs of several callers, in several processes,
    have the same effect as one after another. `now` is for tests; without it the store's own clock decides.

    A verb on a queue that was removed raises `QueueGone`. Ids that name no item raise `NoSuchItem`, items that are not leased
    (or whose lease has ended) `NotLeased`, each with the id.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def catalogue(self) -> Catalogue:
        """All queues that were defined here, by name."""
        ...

    async def define(self, version: int, queues: Sequence[Queue], drop: Sequence[str] = ()) -> bool:
        """Write these queues, by id, and forget those whose ids are dropped, if the catalogue is still of this version.

        False: it is not; read it again. Dropping a queue does not touch its items: see `remove`.
        """
        ...

    async def put(self, shard: Shard, items: Sequence[Fresh], *, now: datetime | None = None) -> list[str]:
        """Add items; answer with the position id of each, empty for one that was there already.

        Those without a partition of their own go together to the partition that has the fewest ready (of equals, the one that
        the shard names first). Ids strictly increase
        within a partition, for ever, and in the order given. An item is there already when its partition holds one with its
        `source_id`, or when the shard dedupes and its reference (if it has one) was put there within that time.
        An item expires `expire_us` after it is put, or after its `enqueue_us` if that is later. In an ordered shard, an item
        whose key has an item in the partition goes behind it, unless that one is dying.
        """
        ...

    async def lease(self, shard: Shard, limit: int, *, lease_us: int = 0, now: datetime | None = None) -> Leased:
        """Lease up to `limit` ready items of the partition that has the most (of equals, the one that the shard names first),
        highest priority first, then the oldest.

        The lease is the shard's unless given; each item's attempts go up by one. Costs the same whatever the backlog. An item
        whose time to expire has passed is dying instead, where the shard's items expire. With a rate, no more are given than
        its bucket holds: it holds one second's worth, and at least one.
        """
        ...

    async def extend(
        self, shard: Shard, partition: int, ids: Sequence[str], lease_us: int, *, now: datetime | None = None
    ) -> int:
        """Let the leases of all these items end so long from now; answers with that instant. All or nothing."""
        ...

    async def complete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        """Delete leased items: their work is done. All or nothing. In an ordered shard, the next of their keys become ready."""
        ...

    async def retry(self, shard: Shard, partition: int, again: Sequence[Again], *, now: datetime | None = None) -> Swept:
        """Give leased items back: to the tail, to the schedule, or up. All or nothing.

        An item that is told to be dead, or whose attempts exceed the shard's, is dying from then on and keeps its position id;
        any other gets a new one, in the order given. `Swept` counts what became ready and what is dying.
        """
        ...

    async def sweep(self, shard: Shard, *, limit: int = 1000, now: datetime | None = None) -> Swept:
        """Do what is due, up to `limit` items: see the rules.

        A scheduled item whose time has come goes to the tail with a new id. So does an item whose lease has ended, unless its
        attempts exceed the shard's or its time to expire has passed: then it is dying. A ready or scheduled item past its time to
        expire is dying; one that waits behind another of its key expires only when its turn has come. Nothing expires unless the
        shard says after how long. A dying item keeps its position id. In a partition, ended leases come first, by when they ended,
        then schedules, by when they were due, then what expires; of equals, the lower position.
        """
        ...

    async def dying(self, shard: Shard, *, limit: int = 1000) -> list[tuple[int, Item]]:
        """Items that were given up on, with their partitions, the oldest of each partition first."""
        ...

    async def move(self, shard: Shard, moves: Sequence[Move], to: Shard, *, now: datetime | None = None) -> int:
        """Put what stands for dying items into another shard of this same store, and delete them from this one, as one.

        One whose `source_id` is there already is not put again, but deleted here all the same. An item that is no longer
        dying here, or is named again, is left out. Answers with how many were deleted.
        """
        ...

    async def next_due(self, *, limit: int = 100) -> list[Due]:
        """The queues of this store in which something is due next, the soonest first. May name one too early, never too late.

        A queue in which items are dying is due at `OVERDUE_US`, for as long as they are there. Once a queue was swept, it is named
        too early no more until something changes there.
        """
        ...

    async def items(
        self, shard: Shard, partition: int, places: frozenset[Place], *, pivot: str = "", limit: int = 1000
    ) -> list[Item]:
        """Items in these places by position id, from the pivot (which need not be there) on."""
        ...

    async def stats(self, shard: Shard, *, now: datetime | None = None) -> list[PartitionStats]:
        """How each partition of the shard stands. Costs the same whatever the backlog."""
        ...

    async def clear(self, shard: Shard, places: frozenset[Place], *, now: datetime | None = None) -> int:
        """Delete all items in these places; answers with how many."""
        ...

    async def delete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        """Delete items, leased or not. All or nothing."""
        ...

    async def remove(self, shard: Shard) -> None:
        """Delete all items of these partitions, and refuse every verb on them from now on, also to those who know nothing of it.

        Repeating it changes nothing.
        """
        ...

    async def changed(self, patience: timedelta) -> None:
        """Return when another process may have made something ready here, at the latest after `patience`. May return early."""
        ...

    def serve_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """From now on queues are served from this event loop, whose program does little else: a store of this machine may do its
        work there. None: no longer so. A store across a network need not do anything."""
        ...

    async def check(self) -> None:
        """Raise unless the store can be used; changes nothing."""
        ...

    async def close(self) -> None: ...
