"""Letters that failed in the same way, the last seen first."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.backends.opensearch import sift
from redrive.backends.opensearch.counting import values
from redrive.backends.opensearch.document import SMALL_LETTER
from redrive.backends.opensearch.holdings import whole
from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.query import Clause, asked, is_documentary
from redrive.backends.opensearch.terms import term
from redrive.model.instant import instant, micros
from redrive.model.paging import group, group_page
from redrive.model.query import Group, GroupPage, Query

_FINGERPRINT = "redrive.fingerprint"
_AT = "redrive.dead_lettered_at"
_SHAPE = ",".join(
    f"aggregations.groups.buckets.{name}"
    for name in ("key", "doc_count", "first.hits.hits.sort", "last.hits.hits._id", "last.hits.hits._source")
)


async def listed(index: Index, query: Query, limit: int, after: tuple[int, str] | None, now: datetime | None) -> GroupPage:
    """A page of the groups among the letters that match."""
    moment = await index.now(now)
    await index.fresh()
    if is_documentary(query):
        return await sift.grouped(index, query, limit, after, moment)
    wanted = asked(query, micros(moment))
    buckets = await values(index, wanted, _FINGERPRINT, {"last": {"max": {"field": _AT}}})
    found = sorted(((int(bucket["last"]["value"]), bucket["key"]["value"]) for bucket in buckets), reverse=True)
    if after is not None:
        behind = after[0], term(after[1])
        found = [one for one in found if one < behind]
    groups: list[Group] = []
    while found and len(groups) <= limit:
        missing = limit + 1 - len(groups)
        names, found = [name for _, name in found[:missing]], found[missing:]
        groups += await _groups(index, wanted, names)
    return group_page(groups, limit)


async def _groups(index: Index, query: Clause, names: list[str]) -> list[Group]:
    """The groups with these fingerprints, in this order; one that has gone meanwhile is left out."""
    last = {"size": 1, "sort": _sorted("desc"), "_source": [f"redrive.{SMALL_LETTER}", "redrive.size"]}
    first = {"size": 1, "sort": _sorted("asc"), "_source": False}
    body: dict[str, Any] = {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": [query, {"terms": {_FINGERPRINT: names}}]}},
        "aggs": {
            "groups": {
                "terms": {"field": _FINGERPRINT, "include": names, "size": len(names)},
                "aggs": {"last": {"top_hits": last}, "first": {"top_hits": first}},
            }
        },
    }
    answer = await index.search(body, _SHAPE)
    buckets = answer.get("aggregations", {}).get("groups", {}).get("buckets", [])
    latest = {bucket["key"]: bucket["last"]["hits"]["hits"][0] for bucket in buckets}
    letters = await whole(index, {UUID(hit["_id"]): hit["_source"]["redrive"] for hit in latest.values()})
    by_name = {
        bucket["key"]: group(letter, bucket["doc_count"], instant(bucket["first"]["hits"]["hits"][0]["sort"][0]))
        for bucket in buckets
        if (letter := letters.get(UUID(latest[bucket["key"]]["_id"])))
    }
    return [by_name[name] for name in names if name in by_name]


def _sorted(way: str) -> list[dict[str, str]]:
    return [{_AT: way}, {"redrive.id_high": way}, {"redrive.id_low": way}]
