"""Queues on Redis: every verb is one script, run whole on the server's clock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec

from redrive.backends.redis import opening
from redrive.backends.redis.address import Address, Durability
from redrive.backends.redis.keys import text_bytes
from redrive.backends.redis.queue_keys import QueueKeys
from redrive.backends.redis.queue_rows import LETTERS, again_values, instants, is_plain, leased_items, listed_item, rest
from redrive.backends.redis.queue_scripts import ensure_done, queue_script
from redrive.backends.redis.server import Server
from redrive.backends.remote.loops import PerLoop
from redrive.model.instant import micros
from redrive.model.item import Again, Due, Fresh, Item, Leased, Move, PartitionStats, Place, Swept
from redrive.model.queue import Catalogue, Queue, Shard
from redrive.ports.capabilities import Capabilities

_RANDOM = 16
"""Bytes for the first position of a second."""
_MOST_DYING = 5000
"""A lease that met so many past their time lets others have the server before it goes on."""
_LOOK_SECONDS = (0.02, 0.5)
"""How soon another process's change is looked for, at first and later on."""

Value = bytes | str | int


class RedisQueues:
    """All queues of a store lie in one hash slot: on a cluster, on one node."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._servers = PerLoop(address.name, open=self._connected, close=Server.close)
        self._named: QueueKeys | None = None
        self._catalogue = Catalogue()
        self._changes: int | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(durable=self.address.durability is Durability.ALWAYS, shared=True, atomic=True)

    async def catalogue(self) -> Catalogue:
        server = await self._server()
        told = await server.run(queue_script("queue_catalogue"), [self._keys(server).catalogue], self._catalogue.version)
        if told:
            fields = dict(zip(told[::2], told[1::2], strict=True))
            version = int(fields.pop(b"version"))
            queues = (_decoder.decode(definition) for definition in fields.values())
            self._catalogue = Catalogue(version=version, queues=tuple(sorted(queues, key=_name)))
        return self._catalogue

    async def define(self, version: int, queues: Sequence[Queue], drop: Sequence[str] = ()) -> bool:
        server = await self._writable()
        values: list[bytes] = []
        for queue in queues:
            values += (text_bytes(queue.id), _encoder.encode(queue))
        dropped = [text_bytes(id) for id in drop]
        keys = [self._keys(server).catalogue]
        return bool(await server.run(queue_script("queue_define"), keys, version, len(dropped), *dropped, *values))

    async def put(self, shard: Shard, items: Sequence[Fresh], *, now: datetime | None = None) -> list[str]:
        how: list[Value] = [shard.expire_us, shard.dedupe_us, int(shard.is_ordered)]
        if all(is_plain(shard, fresh) for fresh in items):
            answer = await self._write("queue_put", shard, now, *how, "plain", *map(rest, items))
        else:
            values = [value for fresh in items for value in (instants(fresh), rest(fresh))]
            answer = await self._write("queue_put", shard, now, *how, "apart", *values, others=[(shard, _numbers(items))])
        return [id.decode() for id in answer[1]]

    async def lease(self, shard: Shard, limit: int, *, lease_us: int = 0, now: datetime | None = None) -> Leased:
        how = (lease_us or shard.lease_us, repr(shard.rate), int(shard.expire_us > 0), _MOST_DYING)
        dying = 0
        while True:
            answer = await self._write("queue_lease", shard, now, limit, *how)
            now_us, until_us, wait_us = int(answer[2]), int(answer[3]), int(answer[5])
            dying += answer[4]
            if len(answer) > 6 or answer[4] < _MOST_DYING:
                items = leased_items(answer[6:], now_us, until_us)
                return Leased(partition=int(answer[1]), until_us=until_us, items=items, dying=dying, wait_us=wait_us)

    async def extend(
        self, shard: Shard, partition: int, ids: Sequence[str], lease_us: int, *, now: datetime | None = None
    ) -> int:
        return int((await self._write("queue_extend", shard, now, lease_us, *_once(ids), at=partition))[1])

    async def complete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        await self._write("queue_complete", shard, now, *_once(ids), at=partition)

    async def retry(self, shard: Shard, partition: int, again: Sequence[Again], *, now: datetime | None = None) -> Swept:
        told = again_values({one.id: one for one in again}.values())
        _, ready, dying = await self._write("queue_retry", shard, now, shard.max_attempts, *told, at=partition)
        return Swept(ready=ready, dying=dying)

    async def sweep(self, shard: Shard, *, limit: int = 1000, now: datetime | None = None) -> Swept:
        answer = await self._write("queue_sweep", shard, now, limit, shard.max_attempts, int(shard.expire_us > 0))
        return Swept(ready=answer[1], dying=answer[2], is_done=bool(answer[3]))

    async def dying(self, shard: Shard, *, limit: int = 1000) -> list[tuple[int, Item]]:
        answer = await self._read("queue_dying", shard, None, limit)
        each = zip(answer[1::3], answer[2::3], answer[3::3], strict=True)
        return [(int(partition), listed_item(id, item, b"")) for partition, id, item in each]

    async def move(self, shard: Shard, moves: Sequence[Move], to: Shard, *, now: datetime | None = None) -> int:
        named = {(move.partition, move.id): move for move in moves}.values()
        values: list[Value] = []
        for move in named:
            values += (move.partition, text_bytes(move.id), instants(move.fresh), rest(move.fresh))
        server = await self._writable()
        how = (to.expire_us, to.dedupe_us, int(to.is_ordered))
        root = self._keys(server).root(to.queue)
        others = [
            (shard, {move.partition for move in named}),
            (to, (*to.partitions, *_numbers(move.fresh for move in named))),
        ]
        answer = await self._write("queue_move", shard, now, root, _joined(to.partitions), *how, *values, others=others)
        return int(answer[1])

    async def next_due(self, *, limit: int = 100) -> list[Due]:
        server = await self._server()
        keys = self._keys(server)
        answer = await server.run(queue_script("queue_due"), [keys.due], b"", b"", b"", b"", limit)
        return [Due(queue=keys.queue(root), at_us=int(float(at))) for root, at in zip(answer[1::2], answer[2::2], strict=True)]

    async def items(
        self, shard: Shard, partition: int, places: frozenset[Place], *, pivot: str = "", limit: int = 1000
    ) -> list[Item]:
        answer = await self._read("queue_items", shard, None, _letters(places), text_bytes(pivot), limit, at=partition)
        return [listed_item(*one) for one in zip(answer[1::3], answer[2::3], answer[3::3], strict=True)]

    async def stats(self, shard: Shard, *, now: datetime | None = None) -> list[PartitionStats]:
        answer = await self._read("queue_stats", shard, now)
        return [_stats(int(answer[1]), *map(int, one)) for one in answer[2:]]

    async def clear(self, shard: Shard, places: frozenset[Place], *, now: datetime | None = None) -> int:
        return int((await self._write("queue_clear", shard, now, _letters(places)))[1])

    async def delete(self, shard: Shard, partition: int, ids: Sequence[str], *, now: datetime | None = None) -> None:
        await self._write("queue_delete", shard, now, *_once(ids), at=partition)

    async def remove(self, shard: Shard) -> None:
        await self._write("queue_remove", shard, None)

    async def changed(self, patience: timedelta) -> None:
        # A server that is silent is waited for no longer, though an answer may take more time.
        with suppress(TimeoutError):
            async with asyncio.timeout(patience.total_seconds()):
                await self._has_changed()

    async def _has_changed(self) -> None:
        """A number that every script raises that makes something ready is looked at, more and more rarely."""
        wait, longest = _LOOK_SECONDS
        # What came since somebody last looked is new to whoever waits.
        before = self._changes if self._changes is not None else await self._looked()
        while True:
            await asyncio.sleep(wait)
            if await self._looked() != before:
                return
            wait = min(2 * wait, longest)

    async def _looked(self) -> int:
        server = await self._server()
        key = self._keys(server).changes
        self._changes = int(await server.command(key, "GET", key) or 0)
        return self._changes

    def serve_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        pass

    async def check(self) -> None:
        server = await self._server()
        keys = self._keys(server)
        await server.run(queue_script("queue_rights"), [keys.tag + b"check"])
        # Writes nothing into a key that is not there, and needs all that a write needs.
        await server.command(keys.tag, "SETRANGE", keys.tag + b"check", 0, b"", writes=True)

    async def close(self) -> None:
        await self._servers.close()

    async def _write(
        self,
        name: str,
        shard: Shard,
        now: datetime | None,
        *values: Value,
        at: int | None = None,
        others: Sequence[tuple[Shard, Iterable[int]]] = (),
    ) -> Any:
        """Run a script on the shard's partitions, or on one of them."""
        return await self._run(await self._writable(), name, shard, now, values, at, others)

    async def _read(self, name: str, shard: Shard, now: datetime | None, *values: Value, at: int | None = None) -> Any:
        return await self._run(await self._server(), name, shard, now, values, at)

    async def _run(
        self,
        server: Server,
        name: str,
        shard: Shard,
        now: datetime | None,
        values: Sequence[Value],
        at: int | None,
        others: Sequence[tuple[Shard, Iterable[int]]] = (),
    ) -> Any:
        keys = self._keys(server)
        numbers = shard.partitions if at is None else (at,)
        named = keys.of(shard, *others) if at is None else keys.of(shard, (shard, numbers), *others)
        moment: Value = b"" if now is None else micros(now)
        random = os.urandom(_RANDOM * (len(numbers) + sum(len(tuple(more)) for _, more in others)))
        answer = await server.run(queue_script(name), named, keys.root(shard.queue), moment, random, _joined(numbers), *values)
        ensure_done(answer, shard.queue, *(other.queue for other, _ in others[1:]))
        return answer

    def _keys(self, server: Server) -> QueueKeys:
        if self._named is None:
            self._named = QueueKeys(self.address.prefix, is_cluster=server.is_cluster)
        return self._named

    async def _server(self) -> Server:
        return await self._servers.get()

    async def _connected(self) -> Server:
        return await opening.connected(self.address)

    async def _writable(self) -> Server:
        server = await self._server()
        if not server.is_writable:
            await server.run(queue_script("queue_rights"), [self._keys(server).due])
            await opening.take_ground(server)
        return server


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Queue)


def _name(queue: Queue) -> str:
    return queue.name


def _once(ids: Sequence[str]) -> list[bytes]:
    return [text_bytes(id) for id in dict.fromkeys(ids)]


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _numbers(items: Iterable[Fresh]) -> tuple[int, ...]:
    """Partitions that items must go to."""
    return tuple({fresh.partition for fresh in items if fresh.partition is not None})


def _letters(places: frozenset[Place]) -> str:
    return "".join(LETTERS[place] for place in Place if place in places)


def _stats(
    now_us: int, number: int, all_: int, leased: int, ready: int, scheduled: int, behind: int, dying: int,
    from_: int, created_s: int, created_us: int, leased_s: int, leased_us: int,
) -> PartitionStats:  # fmt: skip
    total = all_ - scheduled
    created = (from_ * total + created_s) * 1_000_000 + created_us
    held = (from_ * leased + leased_s) * 1_000_000 + leased_us
    return PartitionStats(
        partition=number,
        total=total,
        leased=leased,
        ready=ready,
        scheduled=scheduled,
        behind=behind,
        dying=dying,
        average_age_us=max(now_us - created // total, 0) if total else 0,
        average_leased_age_us=max(now_us - held // leased, 0) if leased else 0,
    )
