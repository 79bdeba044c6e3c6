"""Groups: from what is kept of them when that answers the question, else by looking through the letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.kept_groups import COLUMNS, HELD, LATEST, KeptGroups, columns
from redrive.backends.postgres.query import Condition
from redrive.backends.postgres.rows import plain, restored_text
from redrive.model.category import Category
from redrive.model.census import STORED, scope_of
from redrive.model.hours import SHOWN
from redrive.model.instant import instant
from redrive.model.paging import LastGroup, group, group_page
from redrive.model.query import Group, GroupOrder, GroupPage, Query
from redrive.model.status import Status
from redrive.model.stored import FailureLine, Headline, headline

_RETRYING = Status.RETRYING.value


class Groups:
    """Lists groups."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema

    async def listed(
        self, query: Query, order: GroupOrder, limit: int, last: LastGroup | None, hour: int, now: int | None
    ) -> GroupPage:
        """A page of groups; `hour` is the last that is shown."""
        scope = scope_of(query)
        if scope is None or scope.facet is not None or scope.status is not None:
            condition = Condition(self._schema, query, now)
            sql = self._counted(condition, order, limit, last, hour)
            return await self._page(sql, condition.arguments, order, limit, hour)
        kept = KeptGroups(self._database.tables, scope.namespace, order, limit + 1, last, hour, now)
        return await self._page(*kept.statement(), order, limit, hour)

    async def _page(self, sql: str, arguments: Sequence[object], order: GroupOrder, limit: int, hour: int) -> GroupPage:
        rows = await self._database.read(sql, *arguments)
        return group_page([_group(row, hour) for row in rows], limit, order, hour)

    def _counted(self, condition: Condition, order: GroupOrder, limit: int, last: LastGroup | None, hour: int) -> str:
        schema = self._schema
        now = f"{hour}::bigint"
        recent, before = (f"count(*) FILTER (WHERE f.hour IN ({now} - {one}, {now} - {two}))" for one, two in ((0, 1), (2, 3)))
        value = {
            GroupOrder.LAST_SEEN: "max(f.dead_lettered_at)", GroupOrder.COUNT: "count(*)", GroupOrder.GROWTH: f"{recent} - {before}"
        }[order]  # fmt: skip
        having = ""
        if last is not None:
            at, name = f"{condition.parameter(last.value)}::bigint", f"{condition.parameter(plain(last.fingerprint))}::text"
            having = f'HAVING ({value}, f.fingerprint) < ({at}, {name} COLLATE "C")'
        statuses = ", ".join(f"count(*) FILTER (WHERE f.status = '{status}') AS {status}" for status in STORED)
        hours = ", ".join(f"{now} - {ago}" for ago in range(SHOWN))
        counts = ", ".join(f"count(*) FILTER (WHERE f.hour = {now} - {ago})" for ago in range(SHOWN))
        return f"""
            WITH found AS MATERIALIZED (
                SELECT l.id, l.fingerprint, l.dead_lettered_at, {schema}.hour_of(l.dead_lettered_at) AS hour, l.status,
                    {condition.is_leased} AS is_held
                FROM {schema}.letters l WHERE {condition.sql}
            ),
            listed AS (
                SELECT f.fingerprint, min(f.dead_lettered_at) AS first_seen, max(f.dead_lettered_at) AS last_seen, {value} AS value
                FROM found f GROUP BY f.fingerprint {having} ORDER BY value DESC, f.fingerprint DESC LIMIT {limit + 1}
            ),
            told AS (
                SELECT f.fingerprint, {statuses}, ARRAY[{hours}] AS hours, ARRAY[{counts}] AS counts FROM found f JOIN listed g ON g.fingerprint = f.fingerprint
                GROUP BY f.fingerprint
            ),
            held AS (
                SELECT f.fingerprint, f.status, count(*) AS count FROM found f JOIN listed g ON g.fingerprint = f.fingerprint
                WHERE f.is_held GROUP BY 1, 2
            ),
            latest AS (
                SELECT DISTINCT ON (f.fingerprint) f.fingerprint, f.id
                FROM found f JOIN listed g ON g.fingerprint = f.fingerprint AND g.last_seen = f.dead_lettered_at
                ORDER BY f.fingerprint, f.id DESC
            )
            SELECT {columns("t")}, t.hours, t.counts, {HELD}, g.fingerprint, g.first_seen, g.last_seen, {LATEST}
            FROM listed g JOIN told t ON t.fingerprint = g.fingerprint JOIN latest ON latest.fingerprint = g.fingerprint
            {self._database.tables.joined("latest")} ORDER BY g.value DESC, g.fingerprint DESC
        """


def _group(row: Mapping[str, Any], hour: int) -> Group:
    statuses = {status: row[status] for status in COLUMNS}
    count = sum(statuses.values())
    for status, held in row["held"]:
        statuses[status] -= int(held)
        statuses[_RETRYING] = statuses.get(_RETRYING, 0) + int(held)
    shown, start = [0] * SHOWN, hour - SHOWN + 1
    for at, came in zip(row["hours"] or (), row["counts"] or (), strict=True):
        if start <= at <= hour:
            shown[at - start] += came
    return group(_headline(row), count, instant(row["first_seen"]), statuses, shown)


def _headline(row: Mapping[str, Any]) -> Headline:
    if row["data"] is not None:
        return headline(row["data"])
    failure = FailureLine(
        type=restored_text(row["error"]),
        fingerprint=restored_text(row["fingerprint"]),
        message=restored_text(row["message"]),
        category=Category(row["category"]),
    )
    return Headline(failure=failure, dead_lettered_at=instant(row["last_seen"]))
