"""Redis with `appendfsync always`: put, and claim with settle, in batches of one and of a hundred, beside the raw driver.

The raw side keeps the same keys up with redis-py: pipelines for what is written, and a script of a few lines for the claim, which
must read before it writes. Values are encoded in advance; nothing is decoded, checked, fenced or answered.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from redis.asyncio import Redis

from bench import remote
from bench.harness import Effort, Row, Watch
from dev.engines.registry import ENGINES
from redrive.backends.redis import opened
from redrive.backends.redis.cards import card
from redrive.backends.redis.keys import AGE, UPDATED, Shard, bytes_of, counted, indexes, inverted, shard, status_index
from redrive.model.letter import Letter
from redrive.model.settlement import Completed, settled
from redrive.model.status import Status
from redrive.model.stored import stored

_CLAIM = """
local members = redis.call('ZRANGEBYLEX', KEYS[1], '-', '+', 'LIMIT', 0, ARGV[1])
if #members == 0 then return {} end
local ids, due, leases, ends = {}, {}, {}, {}
for i, member in ipairs(members) do
  local id = string.sub(member, 17)
  ids[i] = id
  leases[2 * i - 1], leases[2 * i] = id, ARGV[2]
  due[2 * i - 1], due[2 * i] = '0', string.sub(member, 1, 8) .. ARGV[3] .. id
  ends[2 * i - 1], ends[2 * i] = '0', ARGV[3] .. id
end
redis.call('INCR', KEYS[5])
redis.call('ZREM', KEYS[1], unpack(members))
redis.call('ZADD', KEYS[1], unpack(due))
redis.call('HSET', KEYS[2], unpack(leases))
redis.call('ZADD', KEYS[3], unpack(ends))
local letters = redis.call('HMGET', KEYS[4], unpack(ids))
return {ids, letters}
"""


def rows(effort: Effort) -> Iterator[Row]:
    numbers = count()
    with ENGINES["redis"].make(durable=True) as server:
        location = server.url.partition(":")[2]

        async def ours(letters: Sequence[Letter], work: remote.Verb) -> float:
            await _emptied(server.url)
            store = opened(f"{location}?prefix=bench{next(numbers)}").letters
            await store.check()
            rate = await work(store, letters)
            await store.close()
            return rate

        async def raw(letters: Sequence[Letter], batch: int, *, is_put: bool) -> float:
            await _emptied(server.url)
            async with Redis.from_url(server.url) as client:
                return await _Raw(client, shard(f"bench{next(numbers)}", 0), letters, batch).rate(is_put=is_put)

        yield from remote.rows(
            "Redis",
            effort,
            ours=lambda letters, work: asyncio.run(ours(letters, work)),
            raw=lambda letters, batch, is_put: asyncio.run(raw(letters, batch, is_put=is_put)),
        )


async def _emptied(url: str) -> None:
    async with Redis.from_url(url) as client:
        await client.flushall()


class _Raw:
    """The same keys, kept up with bare commands on one connection."""

    def __init__(self, client: Any, keys: Shard, letters: Sequence[Letter], batch: int) -> None:
        self._client = client
        self._keys = keys
        self._batch = batch
        self._total = len(letters)
        self._puts = [self._commands(letters[start : start + batch]) for start in range(0, len(letters), batch)]
        self._now = datetime.now(UTC)
        self._until = bytes_of(self._now + remote.LEASE)
        self._ended = {letter.id.bytes: self._end(letter) for letter in letters}
        self._claim = client.register_script(_CLAIM)

    async def rate(self, *, is_put: bool) -> float:
        with Watch() as watch:
            for commands in self._puts:
                await self._sent(commands)
        return watch.rate(self._total) if is_put else await self._claimed_and_settled()

    async def _claimed_and_settled(self) -> float:
        keys, done = self._keys, 0
        places = [keys.due, keys.leases, keys.ends, keys.letters, keys.fence]
        lease = bytes(8) + self._until + bytes(8) + b"raw"
        with Watch() as watch:
            while done < self._total:
                ids, _ = await self._claim(keys=places, args=[self._batch, lease, self._until])
                await self._sent(self._settling(ids))
                done += len(ids)
        assert await self._client.zcard(keys.due) == 0
        return watch.rate(done)

    def _commands(self, letters: Sequence[Letter]) -> list[tuple[Any, ...]]:
        keys, sets, counts = self._keys, defaultdict[bytes, list[Any]](list), defaultdict[tuple[bytes, bytes], int](int)
        for letter in letters:
            id, at = letter.id.bytes, bytes_of(letter.dead_lettered_at)
            for name in (AGE, *indexes(letter)):
                sets[keys.key(name)] += (0, at + id)
            sets[keys.key(UPDATED)] += (0, bytes_of(letter.updated_at) + id)
            if (retry_at := letter.retry.next_retry_at) is not None:
                sets[keys.due] += (0, inverted(letter.priority) + bytes_of(retry_at) + id)
            for where in counted(letter):
                counts[where] += 1
        return [
            ("HSET", keys.letters, *(value for letter in letters for value in (letter.id.bytes, stored(letter)))),
            ("HSET", keys.cards, *(value for letter in letters for value in (letter.id.bytes, card(letter, b"version1")))),
            *(("ZADD", key, *members) for key, members in sets.items()),
            *(("HINCRBY", keys.key(name), value, number) for (name, value), number in counts.items()),
        ]

    def _end(self, letter: Letter) -> tuple[bytes, ...]:
        """What settling this letter takes: its new form and card, and its places in four sorted sets."""
        id, after = letter.id.bytes, settled(letter, Completed(), self._now)
        return (
            stored(after),
            card(after, b"version2"),
            bytes_of(letter.dead_lettered_at) + id,
            bytes_of(letter.updated_at) + id,
            bytes_of(after.updated_at) + id,
            inverted(letter.priority) + self._until + id,
            self._until + id,
        )

    def _settling(self, ids: Sequence[bytes]) -> list[tuple[Any, ...]]:
        keys = self._keys
        letters, cards, members, olds, news, dues, ends = zip(*(self._ended[id] for id in ids), strict=True)
        return [
            ("HSET", keys.letters, *(value for pair in zip(ids, letters, strict=True) for value in pair)),
            ("HSET", keys.cards, *(value for pair in zip(ids, cards, strict=True) for value in pair)),
            ("HDEL", keys.leases, *ids),
            ("ZREM", keys.due, *dues),
            ("ZREM", keys.ends, *ends),
            ("ZREM", keys.key(status_index(Status.PENDING)), *members),
            ("ZADD", keys.key(status_index(Status.COMPLETED)), *(value for member in members for value in (0, member))),
            ("ZREM", keys.key(UPDATED), *olds),
            ("ZADD", keys.key(UPDATED), *(value for member in news for value in (0, member))),
        ]

    async def _sent(self, commands: list[tuple[Any, ...]]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        await pipeline.execute()
