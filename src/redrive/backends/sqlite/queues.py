"""Queues on SQLite: all that callers ask for at the same time is done in one transaction, by few statements.

Requests of a group are done in the order put, complete, everything else, lease: any order is as good as another among those who
ask at the same time, and in this one the rows of all who put are written at once, what all have completed is deleted at once,
and what all want to lease is read at once.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from redrive.backends.sqlite import queue_catalogue, queue_leases, queue_looking, queue_putting, queue_sweep, queue_taking
from redrive.backends.sqlite.connections import snapshot
from redrive.backends.sqlite.database import Database
from redrive.backends.sqlite.queue_parts import Parts
from redrive.model.errors import QueueRefused
from redrive.model.instant import micros
from redrive.model.item import Again, Due, Fresh, Item, Leased, Move, PartitionStats, Place, Swept
from redrive.model.queue import Catalogue, Queue, Shard
from redrive.ports.capabilities import Capabilities
from redrive.ports.inline import here, pause

T = TypeVar("T")

_LOOK = timedelta(milliseconds=50)
_AHEAD = 4096


class _Put(NamedTuple):
    shard: Shard
    items: Sequence[Fresh]
    now: datetime | None


class _Complete(NamedTuple):
    shard: Shard
    partition: int
    ids: Sequence[str]
    now: datetime | None


class _Lease(NamedTuple):
    shard: Shard
    limit: int
    lease_us: int
    now: datetime | None


_Other = Callable[[Parts], Any]
_Request = _Put | _Complete | _Lease | _Other


class SqliteQueues:
    """In the same file as letters and desk; several processes may share it."""

    capabilities = Capabilities(durable=True, embedded=True, inline=True, shared=True, atomic=True)

    def __init__(self, database: Database) -> None:
        self._database = database
        self._version: int | None = None
        """What the file's version was when others were last looked for."""

    async def catalogue(self) -> Catalogue:
        return await self._read(queue_catalogue.read)

    async def define(self, version: int, queues: Sequence[Queue], drop: Sequence[str] = ()) -> bool:
        return await self._database.write(queue_catalogue.define, (version, queues, drop))

    async def put(self, shard: Shard, items: Sequence[Fresh], *, now: datetime | None = None) -> list[str]:
        return await self._done(_Put(shard, items, now))  # type: ignore[no-any-return]  # any request's answer

    async def lease(self, shard: Shard, limit: int, *, lease_us: int = 0, now: datetime | None = None) -> Leased:
        return await self._done(_Lease(shard, limit, lease_us, now))  # type: ignore[no-any-return]  # any request's answer

    async def extend(
        self, shard: Shard, partition: int, ids: Sequence[str], lease_us: int, *, now: datetime | None = None
    ) -> int:
        def act(tx: Parts) -> int:
            part = tx.at(shard.queue, partition)
            now_us = tx.now(now)
            queue_leases.extend(tx, part, ids, now_us, now_us + lease_us)
            return now_us + lease_us

        return await self._act(act)

    async def complete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        await self._done(_Complete(shard, partition, ids, now))

    async def retry(self, shard: Shard, partition: int, again: Sequence[Again], *, now: datetime | None = None) -> Swept:
        def act(tx: Parts) -> Swept:
            part = tx.at(shard.queue, partition)
            return queue_sweep.retry(tx, part, shard, again, tx.now(now))

        return await self._act(act)

    async def sweep(self, shard: Shard, *, limit: int = 1000, now: datetime | None = None) -> Swept:
        def act(tx: Parts) -> Swept:
            parts = tx.of(shard)
            now_us = tx.now(now)
            ready = dying = 0
            is_done = True
            for part in parts:
                swept = queue_sweep.sweep(tx, part, shard, now_us, limit - ready - dying)
                ready, dying, is_done = ready + swept.ready, dying + swept.dying, is_done and swept.is_done
            return Swept(ready=ready, dying=dying, is_done=is_done)

        return await self._act(act)

    async def dying(self, shard: Shard, *, limit: int = 1000) -> list[tuple[int, Item]]:
        def query(connection: sqlite3.Connection) -> list[tuple[int, Item]]:
            found: list[tuple[int, Item]] = []
            for part in self._parts(connection).of(shard):
                if part.state.dying and len(found) < limit:
                    some = queue_looking.items(connection, part, {Place.DYING}, "", limit - len(found))
                    found += [(part.partition, item) for item in some]
            return found

        return await self._read(query)

    async def move(self, shard: Shard, moves: Sequence[Move], to: Shard, *, now: datetime | None = None) -> int:
        def act(tx: Parts) -> int:
            tx.of(to)
            dying = queue_taking.dying_ones(tx, shard, moves)
            now_us = tx.now(now)
            queue_putting.put(tx, to, [move.fresh for move in dying.values()], now_us)
            for partition in {partition for partition, _ in dying}:
                ids = [id for number, id in dying if number == partition]
                queue_taking.delete(tx, tx.at(shard.queue, partition), ids, now_us)
            return len(dying)

        return await self._act(act)

    async def next_due(self, *, limit: int = 100) -> list[Due]:
        return await self._read(lambda connection: queue_looking.next_due(connection, limit))

    async def items(
        self, shard: Shard, partition: int, places: frozenset[Place], *, pivot: str = "", limit: int = 1000
    ) -> list[Item]:
        def query(connection: sqlite3.Connection) -> list[Item]:
            part = self._parts(connection).at(shard.queue, partition)
            return queue_looking.items(connection, part, places, pivot, limit)

        return await self._read(query)

    async def stats(self, shard: Shard, *, now: datetime | None = None) -> list[PartitionStats]:
        def query(connection: sqlite3.Connection) -> list[PartitionStats]:
            tx = self._parts(connection)
            parts = tx.of(shard)
            now_us = tx.now(now)
            return [part.stats(now_us) for part in parts]

        return await self._read(query)

    async def clear(self, shard: Shard, places: frozenset[Place], *, now: datetime | None = None) -> int:
        def act(tx: Parts) -> int:
            parts = tx.of(shard)
            now_us = tx.now(now)
            return sum(queue_taking.clear(tx, part, places, now_us) for part in parts)

        return await self._act(act)

    async def delete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        def act(tx: Parts) -> None:
            part = tx.at(shard.queue, partition)
            queue_taking.delete(tx, part, ids, tx.now(now))

        await self._act(act)

    async def remove(self, shard: Shard) -> None:
        await self._act(lambda tx: queue_catalogue.remove(tx, shard))

    async def changed(self, patience: timedelta) -> None:
        known, waited = self._version, timedelta()
        while True:
            version = await self._database.version()
            if version != known:
                self._version = version
                return
            if waited >= patience:
                return
            turn = min(_LOOK, patience - waited)
            await pause(turn.total_seconds())
            waited += turn

    def serve_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._database.lead_on(loop)

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        await here(self._database.close)

    def _parts(self, connection: sqlite3.Connection) -> Parts:
        return Parts(connection, self._clock)

    def _clock(self, passed_us: int, given: datetime | None) -> int:
        self._database.passed(passed_us)
        return micros(self._database.now(given))

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        def on_snapshot(connection: sqlite3.Connection) -> T:
            with snapshot(connection):
                return query(connection)

        return await self._database.read(on_snapshot)

    async def _act(self, act: Callable[[Parts], T]) -> T:
        return await self._done(act)  # type: ignore[no-any-return]  # any request's answer

    async def _done(self, request: _Request) -> Any:
        answer = await self._database.write(self._run, request)
        if isinstance(answer, QueueRefused):
            raise answer
        return answer

    def _run(self, connection: sqlite3.Connection, requests: list[_Request]) -> list[Any]:
        """All requests in one transaction. One that is refused has changed nothing, and does not disturb the others."""
        tx = self._parts(connection)
        answers: list[Any] = [None] * len(requests)
        puts, completes, others, leases = _sorted(requests)
        for number, put in puts:
            answers[number] = _refused_or(tx, _putting, put)
        _complete(tx, completes, answers)
        for number, act in others:
            answers[number] = _refused_or(tx, lambda tx, act: act(tx), act)
        ahead: dict[str, int] = {}
        for _, lease in leases:
            ahead[lease.shard.queue] = ahead.get(lease.shard.queue, 0) + lease.limit
        for number, lease in leases:
            ahead[lease.shard.queue] -= lease.limit
            more = min(ahead[lease.shard.queue], _AHEAD)
            answers[number] = _refused_or(tx, _leasing, (lease, more))
        tx.flush()
        return answers


def _sorted(
    requests: list[_Request],
) -> tuple[list[tuple[int, _Put]], list[tuple[int, _Complete]], list[tuple[int, _Other]], list[tuple[int, _Lease]]]:
    puts, completes, others, leases = [], [], [], []
    for number, request in enumerate(requests):
        match request:
            case _Put():
                puts.append((number, request))
            case _Complete():
                completes.append((number, request))
            case _Lease():
                leases.append((number, request))
            case act:
                others.append((number, act))
    return puts, completes, others, leases


def _refused_or(tx: Parts, act: Callable[[Parts, T], Any], request: T) -> Any:
    try:
        return act(tx, request)
    except QueueRefused as refusal:
        return refusal


def _putting(tx: Parts, put: _Put) -> list[str]:
    tx.of(put.shard)
    return queue_putting.put(tx, put.shard, put.items, tx.now(put.now))


def _leasing(tx: Parts, request: tuple[_Lease, int]) -> Leased:
    lease, ahead = request
    tx.of(lease.shard)
    now_us = tx.now(lease.now)
    return queue_taking.lease(tx, lease.shard, lease.limit, now_us, now_us + (lease.lease_us or lease.shard.lease_us), ahead)


def _completing(tx: Parts, complete: _Complete) -> None:
    part = tx.at(complete.shard.queue, complete.partition)
    queue_taking.complete(tx, part, complete.ids, tx.now(complete.now))


def _complete(tx: Parts, requests: list[tuple[int, _Complete]], answers: list[Any]) -> None:
    """Those of a partition at once; one by one if one of them is refused."""
    alike: dict[tuple[str, int, datetime | None], list[tuple[int, _Complete]]] = {}
    for number, request in requests:
        alike.setdefault((request.shard.queue, request.partition, request.now), []).append((number, request))
    for some in alike.values():
        _, first = some[0]
        together = list(chain.from_iterable(request.ids for _, request in some))
        is_one = len(some) > 1 and len(set(together)) == len(together)
        if is_one and _refused_or(tx, _completing, first._replace(ids=together)) is None:
            continue
        for number, request in some:
            answers[number] = _refused_or(tx, _completing, request)
