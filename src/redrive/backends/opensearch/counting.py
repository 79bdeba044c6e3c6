"""How many: counted by the engine, exactly. A composite walks all values of a field; where they fill more than one answer, all
of them are taken from the same point in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
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
    buckets = await values(index, asked(query, micros(moment)), {"terms": {"field": FIELD[by]}})
    totals = {bucket["key"]["value"]: bucket["doc_count"] for bucket in buckets}
    for cut in [value for value in totals if is_cut(value)]:
        totals[await _uncut(index, by, cut)] = totals.pop(cut)
    return totals


async def values(index: Index, query: Clause, of: Clause, more: Mapping[str, Any] = {}) -> list[dict[str, Any]]:
    """Every value `of` what matches, as a source of a composite tells it: how often, and what `more` says of it."""
    first = await _page(index, {}, query, of, more, None)
    if len(first) < _VALUES_A_PAGE:
        return first
    found: list[dict[str, Any]] = []
    async with _point_in_time(index) as point:
        while page := await _page(index, point, query, of, more, found[-1]["key"] if found else None):
            found += page
            if len(page) < _VALUES_A_PAGE:
                break
    return found


async def _page(
    index: Index, point: dict[str, Any], query: Clause, of: Clause, more: Mapping[str, Any], after: dict[str, Any] | None
) -> list[dict[str, Any]]:
    sources = {"size": _VALUES_A_PAGE, "sources": [{"value": of}]}
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
    aggs = {**BY_STATUS, "leased": {"filter": leased(now), "aggs": BY_STATUS}}
    answer = await index.search({"size": 0, "track_total_hits": False, "query": asked(query, now), "aggs": aggs}, _BUCKETS)
    return seen(statuses_in(answer["aggregations"]), statuses_in(answer["aggregations"]["leased"]))


BY_STATUS: Clause = {"statuses": {"terms": {"field": "status", "size": len(Status)}}}


def statuses_in(answer: Mapping[str, Any]) -> dict[str, int]:
    """How many letters are stored with each status, from the answer to `BY_STATUS`."""
    return {bucket["key"]: bucket["doc_count"] for bucket in answer["statuses"]["buckets"]}


def seen(stored: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """Statuses as they are seen: those that somebody holds are `retrying`, whatever they are stored with."""
    # Where both were not asked at once, a letter may have changed between; no more are taken than there are.
    moved = {status: min(count, stored.get(status, 0)) for status, count in held.items()}
    totals = {status: count - moved.get(status, 0) for status, count in stored.items()}
    totals[Status.RETRYING.value] = sum(moved.values())
    return {status: count for status, count in totals.items() if count}


async def _uncut(index: Index, by: Field, term: str) -> str:
    """The whole of a text that was too long for a term: from any letter that has it."""
    fields = ["redrive.size", f"redrive.{SMALL_LETTER}"]
    body = {"size": 1, "query": {"bool": {"filter": [{"term": {FIELD[by]: term}}]}}, "_source": fields}
    (hit,) = (await index.search(body, "hits.hits._id,hits.hits._source"))["hits"]["hits"]
    (letter,) = (await whole(index, {UUID(hit["_id"]): hit["_source"]["redrive"]})).values()
    return tally_key(by)(letter)
