"""How many: from counts that every write keeps, where they answer the question; else by looking at cards."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TypeGuard

from redrive.backends.redis.holdings import read_many
from redrive.backends.redis.keys import AGE, COUNTED, GROUPS, Shard, counts, status_index
from redrive.backends.redis.plan import everything, exact_index
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server, all_of
from redrive.backends.redis.walk import Asked, leased, walked
from redrive.model.letter import Letter
from redrive.model.query import And, Field, Is, Op, Query, conjuncts, tally_key
from redrive.model.status import Status


async def counted(server: Server, query: Query, now: datetime | None) -> int:
    """How many letters match."""
    if (status := only_status(query)) is not None:
        return (await _statuses(server, now)).get(status, 0)
    if isinstance(query, Is) and query.field is Field.NAMESPACE and query.op is Op.EQ:
        return (await _hash(server, counts(Field.NAMESPACE))).get(query.value, 0)
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
        if by is Field.GROUP:
            return {name: sum(statuses.values()) for name, statuses in (await stored_groups(server)).items()}
        if by in COUNTED:
            return await _hash(server, counts(by))
    walk = await walked(server, Asked(query=query, now=now))
    key, totals = tally_key(by), Counter[str]()
    while page := await walk.more():
        totals.update(key(one.kept.seen(one.now)) for one in page)
    return dict(totals)


async def unbounded(server: Server, query: Query) -> Query:
    """The question without its namespace, if all letters are of that one: the usual case, which counts answer."""
    parts = list(conjuncts(query))
    names = {part.value for part in parts if _is_namespace(part)}
    if not names or {name for name, count in (await _hash(server, counts(Field.NAMESPACE))).items() if count} != names:
        return query
    others = tuple(part for part in parts if not _is_namespace(part))
    return others[0] if len(others) == 1 else And(others)


def _is_namespace(part: Query) -> TypeGuard[Is]:
    return isinstance(part, Is) and part.field is Field.NAMESPACE and part.op is Op.EQ


def only_status(query: Query) -> str | None:
    """The status, if all letters of one are asked for."""
    match query:
        case And(parts=(part,)):
            return only_status(part)
        case Is(field=Field.STATUS, value=value, op=Op.EQ):
            return str(value)
        case _:
            return None


async def stored_groups(server: Server) -> dict[str, dict[str, int]]:
    """How many letters each group has of each status, by the one they are stored with."""
    groups: dict[str, dict[str, int]] = {}
    for value, count in (await _hash(server, GROUPS)).items():
        status, _, name = value.partition("=")
        if name in groups:
            groups[name][status] = count
        else:
            groups[name] = {status: count}
    return groups


async def held(server: Server, now: datetime | None) -> list[Letter]:
    """The letters under a live lease as they are stored, or as much of them as their cards tell."""

    async def of(shard: Shard) -> list[Letter]:
        found = await read_many(server, shard, await leased(server, shard, now), now, cards=True)
        return [kept.letter for kept, moment in found if kept.is_held(moment)]

    return [letter for part in await all_of(map(of, server.shards)) for letter in part]


async def _hash(server: Server, suffix: bytes) -> dict[str, int]:
    """The counts that all shards keep there."""
    totals: dict[bytes, int] = {}
    for flat in await all_of(server.command(shard.tag, "HGETALL", shard.key(suffix)) for shard in server.shards):
        for value, count in zip(flat[::2], flat[1::2], strict=True):
            totals[value] = totals.get(value, 0) + int(count)
    return {value.decode("utf-8", "surrogatepass"): count for value, count in totals.items()}


async def _statuses(server: Server, now: datetime | None) -> dict[str, int]:
    """Letters by status: by the one they are stored with, less those that are leased and so are `retrying`."""
    stored = [status for status in Status if status is not Status.RETRYING]
    suffixes = [status_index(status) for status in stored]
    totals = Counter[str]()
    for answer in await all_of(server.run(script("spans"), list(map(shard.key, suffixes))) for shard in server.shards):
        totals.update(dict(zip((status.value for status in stored), answer[::3], strict=True)))
    for letter in await held(server, now):
        totals[letter.status.value] -= 1
        totals[Status.RETRYING.value] += 1
    return {status: count for status, count in totals.items() if count > 0}
