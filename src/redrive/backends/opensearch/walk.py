"""Going through letters in order, page by page: each page begins behind the last letter of the one before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from redrive.backends.opensearch.index import Index
from redrive.backends.opensearch.query import Clause

Sort = tuple[tuple[str, str], ...]

BY_AGE: Sort = (("dead_lettered_at", "asc"), ("id_high", "asc"), ("id_low", "asc"))
_SHAPE = ",".join(f"hits.hits.{name}" for name in ("_id", "_seq_no", "_primary_term", "sort"))


class Hit(Struct, frozen=True, gc=False):
    """A document that was found: which version of it, if that was asked for, where it stands in the order, and redrive's own fields."""

    id: UUID
    version: tuple[int, int]
    place: list[Any]
    own: dict[str, Any]


async def page(
    index: Index,
    query: Clause,
    sort: Sort,
    *,
    size: int,
    after: Sequence[Any] | None = None,
    fields: Sequence[str] = (),
    versions: bool = False,
) -> list[Hit]:
    """The next ones in this order, with at least these of redrive's own fields; and their `versions`, if those are wanted."""
    is_whole = bool(fields) and not await index.has_large()
    body: dict[str, Any] = {
        "query": query,
        "size": size,
        "sort": [{f"redrive.{name}": way} for name, way in sort],
        "track_total_hits": False,
        "seq_no_primary_term": versions,
        "_source": is_whole or [f"redrive.{field}" for field in fields] or False,
    }
    if after is not None:
        body["search_after"] = list(after)
    answer = await index.search(body, "" if fields else _SHAPE)
    return [_hit(one) for one in answer.get("hits", {}).get("hits", ())]


async def walked(
    index: Index, query: Clause, sort: Sort, *, size: int, after: Sequence[Any] | None = None, fields: Sequence[str] = ()
) -> AsyncIterator[list[Hit]]:
    """All of them, a page at a time. Goes no further than it is asked to."""
    while found := await page(index, query, sort, size=size, after=after, fields=fields):
        yield found
        if len(found) < size:
            return
        after = found[-1].place


def _hit(one: dict[str, Any]) -> Hit:
    version = one.get("_seq_no", 0), one.get("_primary_term", 0)
    return Hit(UUID(one["_id"]), version, one["sort"], one.get("_source", {}).get("redrive", {}))
