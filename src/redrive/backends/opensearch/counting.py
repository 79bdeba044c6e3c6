"""How many: counted by the engine, exactly. A composite walks all values of a field; where they fill more than one answer, all
of them are taken from the same point in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.backends.opensearch import sift
from redrive.backends.opensearch.document import SMALL_LETTER
from redrive.backends.opensearch.holdings import whole
from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.query import FIELD, Clause, asked, is_documentary, leased
from redrive.backends.opensearch.terms import is_cut
from redrive.model.instant import micros
from redrive.model.query import Field, Query, tally_key
from redrive.model.status import Status

_VALUES_A_PAGE = 1000
_KEEP_ALIVE = "1m"
_BUCKETS = "aggregations"


async def counted(index: Index, query: Query, now: datetime | None) -> int:
    """How many letters match."""
    moment = await index.now(now)
    await index.fresh()
    if is_documentary(query):
        return await sift.counted(index, query, moment)
    body = {"size": 0, "track_total_hits": True, "query": asked(query, micros(moment))}
    answer = await index.search(body, "hits.total.value")
    return int(answer["hits"]["total"]["value"])


async def tallied(index: Index, by: Field, query: Query, now: datetime | None) -> dict[str, int]:
    """How many letters match for each value of the field."""
    moment = await index.now(now)
    await index.fresh()
    if is_documentary(query):
        return await sift.tallied(index, by, query, moment)
    if by is Field.STATUS:
        return await _statuses(index, query, micros(moment))
    buckets = await values(index, asked(query, micros(moment)), FIELD[by], {})
    totals = {bucket["key"]["value"]: bucket["doc_count"] for bucket in buckets}
    for cut in [value for value in totals if is_cut(value)]:
        totals[await _uncut(index, by, cut)] = totals.pop(cut)
    return totals


async def values(index: Index, query: Clause, field: str, more: dict[str, Any]) -> list[dict[str, Any]]:
    """Every value of a field among what matches: how often, and what `more` says of it."""
    first = await _page(index, {}, query, field, more, None)
    if len(first) < _VALUES_A_PAGE:
        return first
    found: list[dict[str, Any]] = []
    async with _point_in_time(index) as point:
        while page := await _page(index, point, query, field, more, found[-1]["key"] if found else None):
            found += page
            if len(page) < _VALUES_A_PAGE:
                break
    return found


async def _page(
    index: Index, point: dict[str, Any], query: Clause, field: str, more: dict[str, Any], after: dict[str, Any] | None
) -> list[dict[str, Any]]:
    sources = {"size": _VALUES_A_PAGE, "sources": [{"value": {"terms": {"field": field}}}]}
    if after is not None:
        sources["after"] = after
    values = {"composite": sources, "aggs": more} if more else {"composite": sources}
    body = {"size": 0, "track_total_hits": False, "query": query, "aggs": {"values": values}, **point}
    answer = await index.search(body, _BUCKETS)
    found: list[dict[str, Any]] = answer.get("aggregations", {}).get("values", {}).get("buckets", [])
    return found


@asynccontextmanager
async def _point_in_time(index: Index) -> AsyncIterator[dict[str, Any]]:
    path = index.path("_search/point_in_time")
    made = await index.client.call("POST", path, params={"keep_alive": _KEEP_ALIVE})
    try:
        yield {"pit": {"id": made["pit_id"], "keep_alive": _KEEP_ALIVE}}
    finally:
        await index.client.ask("DELETE", "/_search/point_in_time", {"pit_id": [made["pit_id"]]})


async def _statuses(index: Index, query: Query, now: int) -> dict[str, int]:
    """By the status they are stored with, but those that are leased, which are `retrying`."""
    free = {"filter": {"bool": {"must_not": [leased(now)]}}, "aggs": {"values": {"terms": {"field": "status", "size": 100}}}}
    body = {
        "size": 0,
        "track_total_hits": False,
        "query": asked(query, now),
        "aggs": {"leased": {"filter": leased(now)}, "free": free},
    }
    found = (await index.search(body, _BUCKETS))["aggregations"]
    totals = {bucket["key"]: bucket["doc_count"] for bucket in found["free"]["values"]["buckets"]}
    if found["leased"]["doc_count"]:
        totals[Status.RETRYING.value] = found["leased"]["doc_count"]
    return totals


async def _uncut(index: Index, by: Field, term: str) -> str:
    """The whole of a text that was too long for a term: from any letter that has it."""
    fields = ["redrive.size", f"redrive.{SMALL_LETTER}"]
    body = {"size": 1, "query": {"bool": {"filter": [{"term": {FIELD[by]: term}}]}}, "_source": fields}
    (hit,) = (await index.search(body, "hits.hits._id,hits.hits._source"))["hits"]["hits"]
    (letter,) = (await whole(index, {UUID(hit["_id"]): hit["_source"]["redrive"]})).values()
    return tally_key(by)(letter)
