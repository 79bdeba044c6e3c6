"""Letters as readers see them: by their ids, or page by page in an order."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.query import Condition, is_anywhere
from redrive.model.cursor import cursor
from redrive.model.letter import Letter
from redrive.model.paging import is_newest_first, last_letter, last_nearest, listed_by, page
from redrive.model.query import EVERYTHING, Order, Page, Query, looks_behind
from redrive.model.status import Status
from redrive.model.stored import restored

_LOOK_AT = 2000
"""Letters that are looked at one by one for a phrase that may be anywhere."""


class Listings:
    """Finds letters."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema

    async def of(self, ids: Sequence[UUID], now: int | None) -> list[Letter]:
        """Those of these letters that are there."""
        condition = Condition(self._schema, EVERYTHING, now)
        wanted = self._database.tables.among(f"{condition.parameter(list(ids))}::uuid[]")
        return await self._seen(condition, f"(SELECT l.* FROM {wanted}) l")

    async def find(self, query: Query, order: Order, limit: int, after: str | None, now: int | None) -> Page:
        unsearched = 0
        if looks_behind(query):
            # Before the search: what is indexed meanwhile is rather told as missing than not told at all.
            ((unsearched,),) = await self._database.read(f"SELECT count(*) FROM {self._schema}.unread")
        if order is Order.NEAREST:
            return await self._nearest(query, limit, after, now, unsearched)
        last = last_letter(after, order)
        if is_anywhere(query):
            some = Condition(self._schema, query, now, is_for_few=True)
            found = await self._listed(some, order, limit, last, among=_LOOK_AT)
            if len(found) > limit:
                return page(found, limit, order, unsearched=unsearched)
        found = await self._listed(Condition(self._schema, query, now), order, limit, last)
        return page(found, limit, order, unsearched=unsearched)

    async def _listed(
        self, condition: Condition, order: Order, limit: int, last: tuple[int, UUID] | None, *, among: int | None = None
    ) -> list[Letter]:
        """One letter more than the limit in this order, behind the last one; of so many only, or of all."""
        column = listed_by(order)
        way, beyond = ("DESC", "<") if is_newest_first(order) else ("ASC", ">")
        wanted, ordered = "true", f"ORDER BY l.{column} {way}, l.id {way} LIMIT"
        if last is not None:
            at, id = map(condition.parameter, last)
            wanted = f"(l.{column}, l.id) {beyond} ({at}::bigint, {id}::uuid)"
        if among is None:
            source = f"{self._schema}.letters l WHERE {condition.sql} AND {wanted}"
        else:
            some = f"SELECT l.* FROM {self._schema}.letters l WHERE {wanted} {ordered} {among}"
            source = f"({some}) l WHERE {condition.sql}"
        return await self._seen(condition, f"{source} {ordered} {limit + 1}")

    async def _nearest(self, query: Query, limit: int, after: str | None, now: int | None, unsearched: int) -> Page:
        condition = Condition(self._schema, query, now)
        far = condition.distance(query)
        columns = f"{condition.is_leased} AS is_leased, l.data, l.dead_lettered_at, l.id, {far} AS far"
        wanted = "true"
        if (last := last_nearest(after)) is not None:
            farthest, at, id = map(condition.parameter, last)
            is_older = f"(n.dead_lettered_at, n.id) < ({at}::bigint, {id}::uuid)"
            wanted = f"(n.far > {farthest}::bigint OR (n.far = {farthest}::bigint AND {is_older}))"
        sql = (
            f"SELECT n.* FROM (SELECT {columns} FROM {self._schema}.letters l WHERE {condition.sql}) n WHERE {wanted}"
            f" ORDER BY n.far, n.dead_lettered_at DESC, n.id DESC LIMIT {limit + 1}"
        )
        rows = await self._database.read(sql, *condition.arguments)
        letters = tuple(_as_seen(is_leased, data) for is_leased, data, *_ in rows[:limit])
        if not letters or len(rows) <= limit:
            return Page(letters=letters, unsearched=unsearched)
        # By what is indexed, as the order is: the letter itself may say more.
        _, _, at, id, far = rows[limit - 1]
        goes_on = cursor((Order.NEAREST, far, at.to_bytes(8, signed=True) + id.bytes))
        return Page(letters=letters, next=goes_on, unsearched=unsearched)

    async def _seen(self, condition: Condition, source: str) -> list[Letter]:
        sql = f"SELECT {condition.is_leased}, l.data FROM {source}"
        return [_as_seen(is_leased, data) for is_leased, data in await self._database.read(sql, *condition.arguments)]


def _as_seen(is_leased: bool, data: bytes) -> Letter:
    """A letter under a live lease is `retrying`."""
    return replace(restored(data), status=Status.RETRYING) if is_leased else restored(data)
