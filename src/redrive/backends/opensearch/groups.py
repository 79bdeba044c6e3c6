"""Letters that failed in the same way, in any order of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.backends.opensearch import sift
from redrive.backends.opensearch.counting import BY_STATUS, seen, statuses_in, values
from redrive.backends.opensearch.document import SMALL_LETTER
from redrive.backends.opensearch.holdings import whole
from redrive.backends.opensearch.hours import AT, BY_HOUR, within
from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.query import Clause, asked, is_documentary, leased
from redrive.backends.opensearch.terms import term
from redrive.model import gather
from redrive.model.hours import HOUR, SHOWN
from redrive.model.instant import instant, micros
from redrive.model.paging import LastGroup, group, group_page, last_hour
from redrive.model.query import Group, GroupOrder, GroupPage, Query

_FINGERPRINT = "redrive.fingerprint"
_MOST_A_CALL = 500
"""Each is told in some forty buckets, and the engine answers with no more than 65,535."""
_SHAPE = ",".join(
    f"aggregations.groups.buckets.{name}"
    for name in (
        "key",
        "doc_count",
        "first.hits.hits.sort",
        "last.hits.hits._id",
        "last.hits.hits._source",
        "statuses",
        "hours",
    )
)


async def listed(
    index: Index, query: Query, order: GroupOrder, limit: int, last: LastGroup | None, now: datetime | None
) -> GroupPage:
    """A page of the groups among the letters that match."""
    moment = await index.now(now)
    hour = last_hour(last, moment)
    await index.fresh()
    if is_documentary(query):
        return gather.listed(await sift.grouped(index, query, hour, moment), order, limit, last, hour)
    wanted = asked(query, micros(moment))
    found = sorted(await _places(index, wanted, order, hour), reverse=True)
    if last is not None:
        behind = last.value, term(last.fingerprint)
        found = [one for one in found if one < behind]
    groups: list[Group] = []
    while found and len(groups) <= limit:
        missing = min(limit + 1 - len(groups), _MOST_A_CALL)
        names, found = [name for _, name in found[:missing]], found[missing:]
        groups += await _groups(index, wanted, names, hour, micros(moment))
    return group_page(groups, limit, order, hour)


async def _places(index: Index, query: Clause, order: GroupOrder, hour: int) -> list[tuple[int, str]]:
    """All groups, each by what it is listed by and by its name."""
    of: Clause = {"terms": {"field": _FINGERPRINT}}
    match order:
        case GroupOrder.LAST_SEEN:
            buckets = await values(index, query, of, {"last": {"max": {"field": AT}}})
            return [(int(bucket["last"]["value"]), bucket["key"]["value"]) for bucket in buckets]
        case GroupOrder.COUNT:
            buckets = await values(index, query, of)
            return [(bucket["doc_count"], bucket["key"]["value"]) for bucket in buckets]
        case GroupOrder.GROWTH:
            both = {"recent": {"filter": within(hour - 1, hour)}, "before": {"filter": within(hour - 3, hour - 2)}}
            buckets = await values(index, query, of, both)
            return [(bucket["recent"]["doc_count"] - bucket["before"]["doc_count"], bucket["key"]["value"]) for bucket in buckets]


async def _groups(index: Index, query: Clause, names: list[str], hour: int, now: int) -> list[Group]:
    """The groups with these fingerprints, in this order; one that has gone meanwhile is left out."""
    last = {"size": 1, "sort": _sorted("desc"), "_source": [f"redrive.{SMALL_LETTER}", "redrive.size"]}
    first = {"size": 1, "sort": _sorted("asc"), "_source": False}
    shown = {"filter": within(hour - SHOWN + 1, hour), "aggs": {"values": _hours()}}
    aggs = {"last": {"top_hits": last}, "first": {"top_hits": first}, "hours": shown, **BY_STATUS}
    # Who holds what is asked apart: it changes with every instant, and the rest the engine can remember.
    buckets, held = await asyncio.gather(
        _of(index, [query], names, aggs, _SHAPE), _of(index, [query, leased(now)], names, BY_STATUS, "aggregations")
    )
    latest = {name: bucket["last"]["hits"]["hits"][0] for name, bucket in buckets.items()}
    letters = await whole(index, {UUID(hit["_id"]): hit["_source"]["redrive"] for hit in latest.values()})
    groups: list[Group] = []
    for name in names:
        if name in latest and (letter := letters.get(UUID(latest[name]["_id"]))):
            bucket = buckets[name]
            at = instant(bucket["first"]["hits"]["hits"][0]["sort"][0])
            statuses = seen(statuses_in(bucket), statuses_in(held[name]) if name in held else {})
            groups.append(group(letter, bucket["doc_count"], at, statuses, _hours_in(bucket["hours"], hour)))
    return groups


async def _of(
    index: Index, filters: Sequence[Clause], names: Sequence[str], aggs: Mapping[str, Any], shape: str
) -> dict[str, dict[str, Any]]:
    """What the engine tells of each of these groups that has letters."""
    terms = {"field": _FINGERPRINT, "include": names, "size": len(names)}
    body = {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": [*filters, {"terms": {_FINGERPRINT: names}}]}},
        "aggs": {"groups": {"terms": terms, "aggs": aggs}},
    }
    answer = await index.search(body, shape)
    return {bucket["key"]: bucket for bucket in answer.get("aggregations", {}).get("groups", {}).get("buckets", [])}


def _hours() -> Clause:
    return {"histogram": {**BY_HOUR["histogram"], "min_doc_count": 1}}


def _hours_in(answer: dict[str, Any], hour: int) -> list[int]:
    counts = {int(bucket["key"]) // HOUR: bucket["doc_count"] for bucket in answer["values"]["buckets"]}
    return [counts.get(hour - SHOWN + 1 + number, 0) for number in range(SHOWN)]


def _sorted(way: str) -> list[dict[str, str]]:
    return [{AT: way}, {"redrive.id_high": way}, {"redrive.id_low": way}]
