"""What is stored in queues: counted, listed, imported, deleted."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from redrive.model.errors import QueueRefused, StoreError
from redrive.model.item import Fresh, Item, PartitionStats, Place
from redrive.queues import checks
from redrive.queues.serving import Serving
from redrive.queues.verbs import QueueStats

_STORED = frozenset(Place) - {Place.SCHEDULED}
_SCHEDULED = frozenset({Place.SCHEDULED})
_WAITING = frozenset({Place.READY, Place.BEHIND})


class Stored(Serving):
    async def stats(self, name: str) -> QueueStats:
        line = await self._line(name)
        partitions: list[PartitionStats] = []
        for part in line.parts:
            try:
                partitions += await part.store.stats(part.shard, now=self._clock.now())
            except StoreError:
                if line.only:
                    raise
                # The others are told all the same, and of this one that it fails.
                line.failed(part)
                partitions += [PartitionStats(partition=number) for number in part.shard.partitions]
        return QueueStats(
            producing=line.producing,
            leasing=len(line.room),
            settling=line.settling,
            partitions=sorted(partitions, key=lambda one: one.partition),
            failures=dict(line.failures),
        )

    async def clear(self, name: str, *, queue: bool = False, scheduled: bool = False, destructive: bool = False) -> int:
        """Delete what waits (`queue`), what is scheduled, or with `destructive` everything; answers with how many."""
        line = await self._line(name)
        if not (queue or scheduled):
            raise QueueRefused("invalid clear request; one of 'queue', 'scheduled' must be true")
        places = (
            frozenset(Place) if destructive else (_WAITING if queue else frozenset()) | (_SCHEDULED if scheduled else frozenset())
        )
        return sum([await part.store.clear(part.shard, places, now=self._clock.now()) for part in line.parts])

    async def items(self, name: str, partition: int, *, pivot: str = "", limit: int = 0) -> list[Item]:
        """Stored items by position, from the pivot on; those that are scheduled are not among them."""
        part = await self._part(name, partition)
        limit = checks.page(pivot, limit)
        return await part.store.items(part.shard, partition, _STORED, pivot=pivot, limit=limit)

    async def scheduled(self, name: str, partition: int, *, pivot: str = "", limit: int = 0) -> list[Item]:
        part = await self._part(name, partition)
        limit = checks.page(pivot, limit)
        return await part.store.items(part.shard, partition, _SCHEDULED, pivot=pivot, limit=limit)

    async def bring(self, name: str, partition: int, items: Sequence[Fresh]) -> list[str]:
        """Import items as they are; answers with the id of each, empty for one whose `source_id` is there already."""
        part = await self._part(name, partition)
        if not items:
            raise QueueRefused("items is invalid; cannot be empty")
        sent = [replace(item, partition=partition) for item in items]
        ids = await part.store.put(part.shard, sent, now=self._clock.now())
        line = await self._line(name)
        self._lifecycle.due(self._clock.now_us())
        line.room.wake()
        return ids

    async def discard(self, name: str, partition: int, ids: Sequence[str]) -> None:
        """Delete stored items, leased or not. All of them or none."""
        part = await self._part(name, partition)
        if not ids:
            raise QueueRefused("ids is invalid; cannot be empty")
        checks.each_id(ids)
        await part.store.delete(part.shard, partition, ids, now=self._clock.now())
        (await self._line(name)).room.wake()
