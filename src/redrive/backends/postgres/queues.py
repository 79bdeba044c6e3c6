"""Queues on PostgreSQL. Every verb is a function in the database, and so one round trip; the rules are those of the memory store.

A partition is a row that every verb on it locks: so its ids increase as they are committed, counts are exact, and nobody has to
pass over what another holds. Where a verb chooses among partitions, it does so by what was committed when it began, and locks
only the one it chose, so that partitions do not wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NoReturn

from asyncpg import Record
from msgspec import json

from redrive.backends.postgres.database import IS_READ_ONLY, MAY_WRITE, Database
from redrive.backends.postgres.listen import Bell
from redrive.backends.postgres.queue_reads import SPOTS, QueueReads
from redrive.backends.postgres.queue_rows import columns, fresh, item
from redrive.backends.postgres.rows import plain, restored_text
from redrive.model.errors import NoSuchItem, NotLeased, QueueGone, StoreNotWritable
from redrive.model.instant import micros
from redrive.model.item import Again, Due, Fresh, Item, Leased, Move, PartitionStats, Place, Swept
from redrive.model.queue import Catalogue, Queue, Shard
from redrive.ports.capabilities import Capabilities
from redrive.ports.waiting import LOOK_EVERY

_LISTEN_AT_MOST = timedelta(seconds=30)
"""How long to trust that somebody would ring."""
_WRITTEN = ("queue_catalogue", "queues", "queue_parts", "queue_items", "queue_leases", "queue_seen", "queue_buckets")


class PostgresQueues:
    """For teams: many processes on many hosts share the queues, as durable as their database."""

    capabilities = Capabilities(durable=True, shared=True, atomic=True)

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads = QueueReads(database)
        self._bell = Bell(database, listen) if (listen := database.address.listen) else None
        schema = database.schema
        self._put = f"SELECT * FROM {schema}.queue_put($1, $2, $3, $4, $5, $6, {fresh(schema, first=7)}, NULL)"
        self._move = f"SELECT * FROM {schema}.queue_move($1, $2, $3, $4, $5, $6, $7, $8, $9, {fresh(schema, first=10)})"

    async def catalogue(self) -> Catalogue:
        return await self._reads.catalogue()

    async def define(self, version: int, queues: Sequence[Queue], drop: Sequence[str] = ()) -> bool:
        by_id = {queue.id: queue for queue in queues}
        ids, datas = [plain(id) for id in by_id], [json.encode(queue) for queue in by_id.values()]
        (is_done,) = await self._called("queue_define", version, ids, datas, [plain(id) for id in drop])
        return bool(is_done)

    async def put(self, shard: Shard, items: Sequence[Fresh], *, now: datetime | None = None) -> list[str]:
        rules = (shard.expire_us, shard.dedupe_us, shard.is_ordered)
        (row,) = await self._database.write(
            self._put, _micros(now), plain(shard.queue), shard.partitions, *rules, *columns(items)
        )
        await self._heard(shard, row)
        ids: list[str] = row["ids"]
        return ids

    async def lease(self, shard: Shard, limit: int, *, lease_us: int = 0, now: datetime | None = None) -> Leased:
        asked = (limit, lease_us or shard.lease_us, shard.expire_us, shard.rate)
        *rows, told = await self._leased(shard, now, *asked, False)
        if told["refused"] == "stale":
            *rows, told = await self._leased(shard, now, *asked, True)
        await self._heard(shard, told)
        until_us = told["until_us"]
        items = [item(row, Place.LEASED, until_us) for row in rows]
        return Leased(partition=told["number"], until_us=until_us, items=items, dying=told["dying"], wait_us=told["wait_us"])

    async def extend(
        self, shard: Shard, partition: int, ids: Sequence[str], lease_us: int, *, now: datetime | None = None
    ) -> int:
        row = await self._called("queue_extend", _micros(now), plain(shard.queue), partition, _distinct(ids), lease_us)
        await self._heard(shard, row)
        return int(row["until_us"])

    async def complete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        row = await self._called("queue_complete", _micros(now), plain(shard.queue), partition, _distinct(ids))
        await self._heard(shard, row)

    async def retry(self, shard: Shard, partition: int, again: Sequence[Again], *, now: datetime | None = None) -> Swept:
        told = {one.id: one for one in again}
        what = (
            _distinct(told),
            [one.at_us for one in told.values()],
            [one.dead for one in told.values()],
            [one.failure for one in told.values()],
        )
        row = await self._called("queue_retry", _micros(now), plain(shard.queue), partition, *what, shard.max_attempts)
        await self._heard(shard, row)
        return Swept(ready=row["ready"], dying=row["dying"])

    async def sweep(self, shard: Shard, *, limit: int = 1000, now: datetime | None = None) -> Swept:
        rules = (shard.expire_us, shard.max_attempts, limit)
        row = await self._called("queue_sweep", _micros(now), plain(shard.queue), shard.partitions, *rules)
        await self._heard(shard, row)
        return Swept(ready=row["ready"], dying=row["dying"], is_done=row["is_done"])

    async def dying(self, shard: Shard, *, limit: int = 1000) -> list[tuple[int, Item]]:
        return await self._reads.dying(shard, limit)

    async def move(self, shard: Shard, moves: Sequence[Move], to: Shard, *, now: datetime | None = None) -> int:
        named = {(move.partition, move.id): move for move in moves}
        asked = (plain(shard.queue), [number for number, _ in named], [plain(id) for _, id in named])
        rules = (plain(to.queue), to.partitions, to.expire_us, to.dedupe_us, to.is_ordered)
        what = columns([move.fresh for move in named.values()])
        (row,) = await self._database.write(self._move, _micros(now), *asked, *rules, *what)
        await self._heard(to if row["refused"] == "to_gone" else shard, row)
        return int(row["moved"])

    async def next_due(self, *, limit: int = 100) -> list[Due]:
        return await self._reads.next_due(limit)

    async def items(
        self, shard: Shard, partition: int, places: frozenset[Place], *, pivot: str = "", limit: int = 1000
    ) -> list[Item]:
        return await self._reads.items(shard, partition, places, pivot, limit)

    async def stats(self, shard: Shard, *, now: datetime | None = None) -> list[PartitionStats]:
        return await self._reads.stats(shard, _micros(now))

    async def clear(self, shard: Shard, places: frozenset[Place], *, now: datetime | None = None) -> int:
        what = (Place.READY in places, Place.LEASED in places, [spot for place, spot in SPOTS.items() if place in places])
        row = await self._called("queue_clear", _micros(now), plain(shard.queue), shard.partitions, *what)
        await self._heard(shard, row)
        return int(row["cleared"])

    async def delete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        row = await self._called("queue_delete", _micros(now), plain(shard.queue), partition, _distinct(ids))
        await self._heard(shard, row)

    async def remove(self, shard: Shard) -> None:
        await self._called("queue_remove", plain(shard.queue), shard.partitions)

    async def changed(self, patience: timedelta) -> None:
        if self._bell is None:
            await asyncio.sleep(min(patience, LOOK_EVERY).total_seconds())
            return
        seconds = min(patience, _LISTEN_AT_MOST).total_seconds()
        # A server that is silent is waited for no longer, though to connect may take more time.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.rest(seconds)

    def serve_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        pass

    async def check(self) -> None:
        tables = [f"{self._database.schema}.{name}" for name in _WRITTEN]
        ((may_write, is_standby),) = await self._database.read(f"SELECT {MAY_WRITE}, {IS_READ_ONLY}", tables)
        if is_standby:
            raise StoreNotWritable(f"{self._database.address.name} may only be read (a standby?); use the primary")
        if not may_write:
            raise StoreNotWritable(f"the user may not write the queues at {self._database.address.name}; grant the rights")

    async def close(self) -> None:
        if self._bell is not None:
            await self._bell.close()
        await self._database.close()

    async def _called(self, function: str, *args: Any) -> Record:
        """The one row that this function answers with."""
        parameters = ", ".join(f"${number}" for number in range(1, len(args) + 1))
        (row,) = await self._database.write(f"SELECT * FROM {self._database.schema}.{function}({parameters})", *args)
        return row

    async def _leased(self, shard: Shard, now: datetime | None, *asked: Any) -> list[Record]:
        sql = f"SELECT * FROM {self._database.schema}.queue_lease($1, $2, $3, $4, $5, $6, $7, $8)"
        return await self._database.write(sql, _micros(now), plain(shard.queue), shard.partitions, *asked)

    async def _heard(self, shard: Shard, row: Record) -> None:
        """Raise if it was refused; and wake whoever waits, if there is something to lease where nothing was."""
        if row["refused"] is not None:
            _raise(shard, row)
        if self._bell is not None and row.get("is_woken"):
            await self._bell.ring()


def _raise(shard: Shard, row: Record) -> NoReturn:
    match row["refused"]:
        case "missing":
            raise NoSuchItem(restored_text(row["culprit"]))
        case "unleased":
            raise NotLeased(restored_text(row["culprit"]))
        case _:
            raise QueueGone(f"queue '{shard.queue}' was deleted")


def _distinct(ids: Sequence[str] | dict[str, Again]) -> list[str]:
    return [plain(id) for id in dict.fromkeys(ids)]


def _micros(now: datetime | None) -> int | None:
    """The instant for a function; None: the server's own clock decides."""
    return None if now is None else micros(now)
