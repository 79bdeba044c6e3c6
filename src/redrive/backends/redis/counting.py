"""How many: from counts that every write keeps, where they answer the question; else by looking at cards."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from redrive.backends.redis.holdings import read
from redrive.backends.redis.keys import AGE, COUNTED, Shard, counts, status_index
from redrive.backends.redis.plan import everything, exact_index
from redrive.backends.redis.server import Server, all_of
from redrive.backends.redis.walk import Asked, leased, walked
from redrive.model.query import Field, Is, Op, Query, tally_key
from redrive.model.status import Status


async def counted(server: Server, query: Query, now: datetime | None) -> int:
    """How many letters match."""
    if isinstance(query, Is) and query.field is Field.STATUS and query.op is Op.EQ:
        return (await _statuses(server, now)).get(query.value, 0)
    if isinstance(query, Is) and query.field is Field.NAMESPACE and query.op is Op.EQ:
        return (await counted_by(server, Field.NAMESPACE))[query.value]
    suffix = AGE if everything(query) else exact_index(query)
    if suffix is not None:
        sizes = await all_of(server.command(shard.tag, "ZCARD", shard.key(suffix)) for shard in server.shards)
        return sum(sizes)
    walk = await walked(server, Asked(query=query, now=now))
    count = 0
    while page := await walk.more():
        count += len(page)
    return count


async def tallied(server: Server, by: Field, query: Query, now: datetime | None) -> dict[str, int]:
    """How many letters match for each value of the field."""
    if everything(query):
        if by is Field.STATUS:
            return await _statuses(server, now)
        if by in COUNTED:
            return dict(await counted_by(server, by))
    walk = await walked(server, Asked(query=query, now=now))
    key, totals = tally_key(by), Counter[str]()
    while page := await walk.more():
        totals.update(key(one.kept.seen(one.now)) for one in page)
    return dict(totals)


async def counted_by(server: Server, by: Field) -> Counter[str]:
    """All letters, by a field that every write counts."""
    totals = Counter[str]()
    for flat in await all_of(server.command(shard.tag, "HGETALL", shard.key(counts(by))) for shard in server.shards):
        for value, count in zip(flat[::2], flat[1::2], strict=True):
            totals[value.decode("utf-8", "surrogatepass")] += int(count)
    return totals


async def _statuses(server: Server, now: datetime | None) -> dict[str, int]:
    """Letters by status: by the one they are stored with, less those that are leased and so are `retrying`."""
    stored = [status for status in Status if status is not Status.RETRYING]

    async def count_some(shard: Shard) -> Counter[str]:
        keys = [shard.key(status_index(status)) for status in stored]
        sizes = (await server.run("spans", keys))[::3]
        totals = Counter(dict(zip((status.value for status in stored), sizes, strict=True)))
        held, moment = await read(server, shard, await leased(server, shard, now), now, cards=True)
        for kept in held.values():
            if kept.is_held(moment):
                totals[kept.letter.status.value] -= 1
                totals[Status.RETRYING.value] += 1
        return totals

    whole = Counter[str]()
    for part in await all_of(count_some(shard) for shard in server.shards):
        whole.update(part)
    return {status: count for status, count in whole.items() if count > 0}
