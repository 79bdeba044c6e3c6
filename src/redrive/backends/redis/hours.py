"""Letters by clock hour. The members of every index begin with the instant, so the server counts between two of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.backends.redis.counting import held, only_status
from redrive.backends.redis.keys import AGE, bytes_of_micros, index
from redrive.backends.redis.plan import everything, exact_index
from redrive.backends.redis.scripts import script
from redrive.backends.redis.server import Server, all_of
from redrive.backends.redis.walk import Asked, walked
from redrive.model.hours import HOUR, hour_of, start_of
from redrive.model.query import And, Field, Is, Op, Query
from redrive.model.status import Status

_MOST_HOURS = 1000
_MOST_SETS = 500
"""A call takes the server's whole attention, so it must not ask for too much."""
_LAST_OF_AN_HOUR = timedelta(microseconds=HOUR - 1)


async def hourly(server: Server, since: datetime, until: datetime, query: Query, now: datetime | None) -> dict[datetime, int]:
    """How many of the letters that match lie in each hour from the one to the other."""
    first, last = hour_of(since), hour_of(until)
    suffix = AGE if everything(query) else exact_index(query)
    status = only_status(query)
    if last < first:
        totals = Counter[int]()
    elif suffix is not None:
        totals = await _along(server, suffix, first, last + 1)
    elif status is not None and status != Status.RETRYING:
        totals = await _along(server, index(Field.STATUS, status) or b"", first, last + 1)
        totals.subtract(hour_of(one.dead_lettered_at) for one in await held(server, now) if one.status == status)
    else:
        totals = await _walked(server, first, last, query, now)
    return {start_of(hour): count for hour, count in totals.items() if count > 0}


async def between(server: Server, suffixes: Sequence[bytes], hours: Sequence[int]) -> list[list[int]]:
    """For each of these indexes: how many letters it has from each of the hours to the next."""
    edges = [bytes_of_micros(hour * HOUR) for hour in hours]
    joined, totals = b"".join(edges), [[0] * (len(edges) - 1) for _ in suffixes]
    for start in range(0, len(suffixes), _MOST_SETS):
        some = suffixes[start : start + _MOST_SETS]
        for answer in await all_of(server.run(script("hours"), list(map(shard.key, some)), joined) for shard in server.shards):
            for place, told in enumerate(answer, start):
                _add(totals[place], told, edges)
    return totals


def _add(totals: list[int], told: bytes | list[int], edges: Sequence[bytes]) -> None:
    """Numbers are told, or the instants themselves where there are few."""
    if isinstance(told, bytes):
        for start in range(0, len(told), 8):
            totals[bisect_right(edges, told[start : start + 8]) - 1] += 1
    else:
        for place, count in enumerate(told):
            totals[place] += count


async def _along(server: Server, suffix: bytes, first: int, end: int) -> Counter[int]:
    """The letters of an index by hour. Of a long time, it is looked at first which stretches have any."""
    step = 1
    while end - first > _MOST_HOURS * step:
        step *= _MOST_HOURS
    starts = range(first, end, step)
    (counts,) = await between(server, [suffix], [*starts, end])
    found = Counter({start: count for start, count in zip(starts, counts, strict=True) if count})
    if step == 1:
        return found
    closer = Counter[int]()
    for start in found:
        closer += await _along(server, suffix, start, min(start + step, end))
    return closer


async def _walked(server: Server, first: int, last: int, query: Query, now: datetime | None) -> Counter[int]:
    """The letters that match, one by one."""
    since = Is(Field.DEAD_LETTERED_AT, start_of(first), Op.GE)
    until = Is(Field.DEAD_LETTERED_AT, start_of(last) + _LAST_OF_AN_HOUR, Op.LE)
    walk = await walked(server, Asked(query=And((query, since, until)), now=now))
    totals = Counter[int]()
    while page := await walk.more():
        totals.update(hour_of(one.kept.letter.dead_lettered_at) for one in page)
    return totals
