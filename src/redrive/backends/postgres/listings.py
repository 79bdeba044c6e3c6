"""Letters as readers see them: by their ids, or page by page in an order."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.query import Condition, few_with, is_unsure, likely, narrowest
from redrive.model.cursor import cursor
from redrive.model.letter import Letter
from redrive.model.paging import is_newest_first, last_letter, last_nearest, listed_by, page
from redrive.model.query import EVERYTHING, Order, Page, Query, Text, conjuncts, looks_behind
from redrive.model.status import Status
from redrive.model.stored import restored

_LOOK_AT = 400
"""Letters that are looked at one by one first, where the planner cannot know how many of them meet all of a question's parts."""
_LOOK_UNSURE = 2000
"""The same where it cannot know that of one of the parts."""
_FEW = 200
"""Letters that are looked up one by one."""


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
            ((unsearched,),) = await self._database.read(f"SELECT {self._schema}.unread_count()")
        if order is Order.NEAREST:
            return await self._nearest(query, limit, after, now, unsearched)
        last = last_letter(after, order)
        parts = list(conjuncts(query))
        if (few := await self._few(parts)) is not None:
            condition = Condition(self._schema, query, now, is_for_few=True)
            among = self._database.tables.among(f"{condition.parameter(few)}::uuid[]")
            source = f"(SELECT l.* FROM {among}) l WHERE {likely(condition.sql)}"
            return page(await self._listed(condition, source, order, limit, last), limit, order, unsearched=unsearched)
        found = await self._looked_at(query, parts, order, limit, last, now)
        if len(found) <= limit:
            condition = Condition(self._schema, query, now)
            source = f"{self._schema}.letters l WHERE {condition.sql}"
            found = await self._listed(condition, source, order, limit, last, is_of_texts=is_unsure(query))
        return page(found, limit, order, unsearched=unsearched)

    async def _few(self, parts: Sequence[Query]) -> list[UUID] | None:
        """The letters that have a phrase that all must have, where these are few: an index of words finds them at once.

        The planner would rather put several indexes together, as large as they may be. Where the phrase is all that is asked for, it
        does well, but for one that may be anywhere.
        """
        for part in parts:
            if isinstance(part, Text) and (len(parts) > 1 or is_unsure(part)) and (some := few_with(self._schema, part, _FEW)):
                ids = [id for (id,) in await self._database.read(some)]
                if len(ids) < _FEW:
                    return list(dict.fromkeys(ids))
        return None

    async def _looked_at(
        self, query: Query, parts: Sequence[Query], order: Order, limit: int, last: tuple[int, UUID] | None, now: int | None
    ) -> list[Letter]:
        """Those of the first letters in this order that are asked for; nothing where that would be of no use.

        The planner takes parts of a question for independent of each other, and so those that meet all of them for so few that it
        would rather find and sort them all. Mostly one error comes from one source and says the same: then a page is found soon.
        """
        if is_unsure(query):
            many, first = _LOOK_UNSURE, None
        elif len(parts) > 1:
            many, first = _LOOK_AT, narrowest(query)
        else:
            return []
        condition = Condition(self._schema, query, now, is_for_few=True)
        begins = "true" if first is None else condition.of_column(first)
        some = f"SELECT l.* FROM {self._schema}.letters l WHERE {begins}"
        return await self._listed(condition, some, order, limit, last, among=many)

    async def _listed(
        self,
        condition: Condition,
        source: str,
        order: Order,
        limit: int,
        last: tuple[int, UUID] | None,
        *,
        among: int | None = None,
        is_of_texts: bool = False,
    ) -> list[Letter]:
        """One letter more than the limit in this order, behind the last one; of so many of the source only, or of all."""
        column = listed_by(order)
        way, beyond = ("DESC", "<") if is_newest_first(order) else ("ASC", ">")
        ordered = f"ORDER BY l.{column} {way}, l.id {way} LIMIT"
        if last is not None:
            at, id = map(condition.parameter, last)
            source += f" AND (l.{column}, l.id) {beyond} ({at}::bigint, {id}::uuid)"
        if among is not None:
            source = f"({source} {ordered} {among}) l WHERE {likely(condition.sql)}"
        return await self._seen(condition, f"{source} {ordered} {limit + 1}", is_of_texts=is_of_texts)

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
        rows = await self._database.read(sql, *condition.arguments, is_of_texts=condition.is_of_texts)
        letters = tuple(_as_seen(is_leased, data) for is_leased, data, *_ in rows[:limit])
        if not letters or len(rows) <= limit:
            return Page(letters=letters, unsearched=unsearched)
        # By what is indexed, as the order is: the letter itself may say more.
        _, _, at, id, far = rows[limit - 1]
        goes_on = cursor((Order.NEAREST, far, at.to_bytes(8, signed=True) + id.bytes))
        return Page(letters=letters, next=goes_on, unsearched=unsearched)

    async def _seen(self, condition: Condition, source: str, *, is_of_texts: bool = False) -> list[Letter]:
        sql = f"SELECT {condition.is_leased}, l.data FROM {source}"
        rows = await self._database.read(sql, *condition.arguments, is_of_texts=is_of_texts)
        return [_as_seen(is_leased, data) for is_leased, data in rows]


def _as_seen(is_leased: bool, data: bytes) -> Letter:
    """A letter under a live lease is `retrying`."""
    return replace(restored(data), status=Status.RETRYING) if is_leased else restored(data)
