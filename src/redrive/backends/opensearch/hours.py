"""Letters by clock hour, counted by the engine."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from redrive.backends.opensearch import sift
from redrive.backends.opensearch.counting import values
from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.query import Clause, asked, is_documentary
from redrive.model.hours import HOUR, hour_of, start_of
from redrive.model.instant import instant, micros
from redrive.model.query import And, Field, Is, Op, Query

AT = "redrive.dead_lettered_at"
BY_HOUR: Clause = {"histogram": {"field": AT, "interval": HOUR}}
_MOST_EXACT = 2**53 // HOUR - 1
"""The engine counts in doubles, which tell a microsecond from the next until the year 2255 and from 1685 on."""


async def hourly(index: Index, since: datetime, until: datetime, query: Query, now: datetime | None) -> dict[datetime, int]:
    """How many of the letters that match lie in each hour from the one to the other."""
    moment = await index.now(now)
    await index.fresh()
    first, last = hour_of(since), hour_of(until)
    totals = Counter[int]()
    if is_documentary(query):
        totals += await _sifted(index, first, last, query, moment)
    else:
        totals += await _sifted(index, first, min(last, -_MOST_EXACT - 1), query, moment)
        totals += await _counted(index, max(first, -_MOST_EXACT), min(last, _MOST_EXACT), query, moment)
        totals += await _sifted(index, max(first, _MOST_EXACT + 1), last, query, moment)
    return {start_of(hour): count for hour, count in totals.items()}


def within(first: int, last: int) -> Clause:
    """Letters of these hours and those between them."""
    return {"range": {AT: {"gte": first * HOUR, "lt": (last + 1) * HOUR}}}


async def _counted(index: Index, first: int, last: int, query: Query, now: datetime) -> Counter[int]:
    if last < first:
        return Counter()
    buckets = await values(index, asked(query, micros(now), within(first, last)), BY_HOUR)
    return Counter({int(bucket["key"]["value"]) // HOUR: bucket["doc_count"] for bucket in buckets})


async def _sifted(index: Index, first: int, last: int, query: Query, now: datetime) -> Counter[int]:
    if last < first:
        return Counter()
    since = Is(Field.DEAD_LETTERED_AT, start_of(first), Op.GE)
    until = Is(Field.DEAD_LETTERED_AT, instant((last + 1) * HOUR - 1), Op.LE)
    return await sift.hourly(index, And((query, since, until)), now)
