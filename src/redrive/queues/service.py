"""Queues served from the stores that hold them: the engine behind the HTTP interface, and the client for one's own process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.model.errors import AnswerLost, NotLeased, QueueBusy, QueueEmpty, QueueGone, QueueRefused, StoreError
from redrive.model.item import Again, Fresh, Leased
from redrive.queues import checks
from redrive.queues.balance import by_load
from redrive.queues.defining import Defining
from redrive.queues.line import Line
from redrive.queues.stored import Stored

_PATIENCE = timedelta(minutes=1)
_NEVER_US = 1 << 61


class Queues(Defining, Stored):
    """Leased, partitioned queues. Use it with `async with`: meanwhile it looks after leases, schedules and dead items."""

    async def produce(self, name: str, items: Sequence[Fresh], *, timeout: timedelta | None = _PATIENCE) -> None:
        """Put items into a queue. When it returns, they are as durable as their store is."""
        line = await self._line(name)
        seconds = checks.request_timeout(timeout, is_produce=True).total_seconds()
        checks.produced(items, len(line.queue.partitions))
        if line.producing >= self._limits.producing:
            raise QueueBusy("queue is overloaded; try again later")
        line.producing += 1
        try:
            try:
                await self._put(line, list(items), seconds)
            except QueueGone:
                await self._put(await self._again(name), list(items), seconds)
        finally:
            line.producing -= 1

    async def _put(self, line: Line, items: list[Fresh], seconds: float) -> None:
        addressed = line.addressed(items)
        now_us = self._clock.now_us()
        if addressed is None and line.only is not None:
            await self._in_time(line.only, seconds, line.only.store.put(line.only.shard, items, now=self._clock.now()))
            self._lifecycle.due(now_us + (line.only.shard.expire_us or _NEVER_US))
        else:
            await self._put_apart(line, items, addressed, seconds)
        for item in items:
            if item.enqueue_us:
                self._lifecycle.due(item.enqueue_us)
        line.room.wake()

    async def _put_apart(self, line: Line, items: list[Fresh], addressed: dict[int, list[Fresh]] | None, seconds: float) -> None:
        """Into several partitions, or into one of several stores: the one with the most room that answers."""
        if addressed is not None:
            by_part: dict[int, list[Fresh]] = {}
            for partition, theirs in addressed.items():
                sent = by_part.setdefault(line.parts.index(line.at(partition)), [])
                sent += [replace(item, partition=partition) for item in theirs]
            for number, sent in by_part.items():
                part = line.parts[number]
                await self._in_time(part, seconds, part.store.put(part.shard, sent, now=self._clock.now()))
                self._lifecycle.due(self._clock.now_us() + (part.shard.expire_us or _NEVER_US))
                line.room.wake()
            return
        error: StoreError | None = None
        for part in await by_load(line, fewest_first=True):
            try:
                await self._in_time(part, seconds, part.store.put(part.shard, items, now=self._clock.now()))
            except AnswerLost:
                # It may be there, and put elsewhere it would be there twice: whoever asked decides.
                line.failed(part)
                raise
            except StoreError as failure:
                error = failure
                line.failed(part)
                continue
            line.succeeded(part)
            self._lifecycle.due(self._clock.now_us() + (part.shard.expire_us or _NEVER_US))
            return
        assert error is not None
        raise error

    async def lease(
        self,
        name: str,
        limit: int = 10,
        *,
        client: str,
        timeout: timedelta | None = _PATIENCE,
        lease: timedelta | None = None,
    ) -> Leased:
        """Lease items of one partition, waiting for some to come; `QueueEmpty` when none came in time."""
        line = await self._line(name)
        checks.leased(limit, client)
        seconds = checks.request_timeout(timeout).total_seconds()
        room = line.room
        if client in room.clients:
            raise QueueRefused("duplicate client id; a client cannot make multiple leased requests to the same queue")
        if len(room) >= self._limits.leasing:
            raise QueueBusy("queue is overloaded; try again later")
        room.clients.add(client)
        try:
            return await self._lease(line, limit, lease, seconds)
        except asyncio.CancelledError:
            # Who leaves may have been woken just now, or have watched for the queue's rate: the next looks for itself.
            line.room.wake()
            raise
        finally:
            room.clients.discard(client)

    async def _lease(self, line: Line, limit: int, lease: timedelta | None, seconds: float) -> Leased:
        room, ticket = line.room, line.room.ticket()
        clock = time.monotonic
        deadline = clock() + seconds
        lease_us = 0 if lease is None else checks.lease(lease)
        is_newcomer = True
        while True:
            if line.room is not room:  # It was deleted, and created again under the same name.
                room, ticket = line.room, line.room.ticket()
            seen = room.arrivals
            wait_seconds = deadline - clock()
            if not (is_newcomer and len(room)):
                try:
                    leased = await self._taken(line, limit, lease_us)
                except QueueGone:
                    gone, line = line, await self._again(line.queue.name)
                    if line.queue.id == gone.queue.id:
                        raise
                    continue
                if leased.items:
                    if len(room):
                        room.wake()
                    return leased
                if leased.wait_us:
                    wait_seconds = min(wait_seconds, leased.wait_us / 1e6)
            is_newcomer = False
            if deadline - clock() <= 0:
                if line.queue.rate:
                    room.wake()  # Who was first has watched for the rate: now it is the next one's turn.
                raise QueueEmpty("request timeout; no items are in the queue, try again")
            await room.wait(seen, wait_seconds, ticket)
            line = await self._line(line.queue.name)

    async def _taken(self, line: Line, limit: int, lease_us: int) -> Leased:
        """What is there now, from the partition that has most."""
        wait_us = failed = 0
        for part in [line.only] if line.only else await by_load(line, fewest_first=False):
            try:
                leased = await part.store.lease(part.shard, limit, lease_us=lease_us, now=self._clock.now())
            except StoreError:
                failed += 1
                if failed == len(line.parts):
                    raise
                line.failed(part)
                continue
            if leased.dying:
                await self._bury(line)
            if leased.items:
                self._lifecycle.due(leased.until_us)
                return leased
            wait_us = min(wait_us or leased.wait_us, leased.wait_us or wait_us)
        return Leased(wait_us=wait_us)

    async def complete(self, name: str, partition: int, ids: Sequence[str], *, timeout: timedelta | None = _PATIENCE) -> None:
        """Leased items are worked off, all of them or none."""
        part = await self._part(name, partition)
        checks.request_timeout(timeout)
        checks.ids(ids, "complete")
        line = await self._line(name)
        line.settling += 1
        try:
            await part.store.complete(part.shard, partition, ids, now=self._clock.now())
        except NotLeased as error:
            raise NotLeased(error.id, f"item(s) cannot be completed; '{error.id}' is not marked as leased") from None
        finally:
            line.settling -= 1
        if part.shard.is_ordered:
            line.room.wake()

    async def retry(self, name: str, partition: int, items: Sequence[Again]) -> None:
        """Leased items were not worked off: back to the queue, now or later, or given up on. All of them or none."""
        part = await self._part(name, partition)
        if not items:
            raise QueueRefused("items is invalid; list of items cannot be empty")
        if len(items) > checks.MOST_ITEMS:
            raise QueueRefused(f"items is invalid; max_retry_batch_size is {checks.MOST_ITEMS} but received {len(items)}")
        checks.each_id([item.id for item in items])
        line = await self._line(name)
        line.settling += 1
        try:
            swept = await part.store.retry(part.shard, partition, items, now=self._clock.now())
        except NotLeased as error:
            raise NotLeased(error.id, f"item(s) cannot be retried; '{error.id}' is not marked as leased") from None
        finally:
            line.settling -= 1
        if swept.dying:
            await self._bury(line)
        for item in items:
            if item.at_us:
                self._lifecycle.due(item.at_us)
        line.room.wake()

    async def extend(self, name: str, partition: int, ids: Sequence[str], lease: timedelta) -> int:
        """Hold leased items for so long from now; answers with the instant their leases end (in microseconds)."""
        part = await self._part(name, partition)
        checks.ids(ids, "extend")
        lease_us = checks.lease(lease)
        try:
            until_us = await part.store.extend(part.shard, partition, ids, lease_us, now=self._clock.now())
        except NotLeased as error:
            raise NotLeased(error.id, f"item(s) cannot be extended; '{error.id}' is not marked as leased") from None
        self._lifecycle.due(until_us)
        return until_us
