"""Groups: from what is kept of them when that answers the question, else by looking through the letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redrive.backends.postgres.counts import leased
from redrive.backends.postgres.database import Database
from redrive.backends.postgres.kept_groups import COLUMNS, HELD, KeptGroups, columns, latest
from redrive.backends.postgres.query import Condition
from redrive.backends.postgres.rows import plain, restored_text
from redrive.model.category import Category
from redrive.model.census import scope_of
from redrive.model.hours import HOUR, SHOWN
from redrive.model.instant import instant
from redrive.model.paging import LastGroup, group, group_page
from redrive.model.query import Group, GroupOrder, GroupPage, Query, looks_behind
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
        if scope is None or not scope.is_of_groups:
            sql, arguments = self._counted(query, order, limit, last, hour, now)
            rows = await self._database.read(sql, *arguments, is_of_texts=looks_behind(query))
            return _page(rows, order, limit, hour)
        kept = KeptGroups(self._database.tables, scope, order, limit + 1, last, hour, now)
        sql, arguments = kept.statement()
        return _page(await self._database.read(sql, *arguments), order, limit, hour)

    def _counted(
        self, query: Query, order: GroupOrder, limit: int, last: LastGroup | None, hour: int, now: int | None
    ) -> tuple[str, list[object]]:
        """A statement that goes through all letters that match once, and its parameters."""
        schema, condition = self._schema, Condition(self._schema, query, now)
        signed = f"CASE WHEN c.hour > {hour}::bigint - 2 THEN c.count ELSE -c.count END"
        grown = f"coalesce(sum({signed}) FILTER (WHERE c.hour BETWEEN {hour}::bigint - 3 AND {hour}::bigint), 0)::bigint"
        value = {
            GroupOrder.LAST_SEEN: "max(c.last_seen)", GroupOrder.COUNT: "sum(c.count)::bigint", GroupOrder.GROWTH: grown
        }[order]  # fmt: skip
        having = ""
        if last is not None:
            at, name = f"{condition.parameter(last.value)}::bigint", f"{condition.parameter(plain(last.fingerprint))}::text"
            having = f'HAVING ({value}, c.fingerprint) < ({at}, {name} COLLATE "C")'
        statuses = ", ".join(f"coalesce(sum(c.count) FILTER (WHERE c.status = '{one}'), 0)::bigint AS {one}" for one in COLUMNS)
        each = Condition(schema, query, now, behind=condition.arguments, is_for_few=True)
        sql = f"""
            WITH cells AS MATERIALIZED (
                SELECT l.fingerprint, l.status, CASE WHEN l.dead_lettered_at >= {(hour - SHOWN + 1) * HOUR} THEN {schema}.hour_of(l.dead_lettered_at) END AS hour,
                    count(*) AS count, min(l.dead_lettered_at) AS first_seen, max(l.dead_lettered_at) AS last_seen
                FROM {schema}.letters l WHERE {condition.sql} GROUP BY 1, 2, 3
            ),
            listed AS (
                SELECT c.fingerprint, min(c.first_seen) AS first_seen, max(c.last_seen) AS last_seen, {value} AS value, {statuses},
                    array_agg(c.hour) FILTER (WHERE c.hour IS NOT NULL) AS hours, array_agg(c.count) FILTER (WHERE c.hour IS NOT NULL) AS counts
                FROM cells c GROUP BY c.fingerprint {having} ORDER BY value DESC, c.fingerprint DESC LIMIT {limit + 1}
            ),
            held AS MATERIALIZED (
                SELECT l.fingerprint, l.status, count(*) AS count FROM {leased(self._database.tables, each)} WHERE {each.sql} GROUP BY 1, 2
            )
            SELECT {columns("g")}, g.hours, g.counts, {HELD}, g.fingerprint, g.first_seen, g.last_seen, l.*
            FROM listed g CROSS JOIN LATERAL ({latest(schema, each.sql)}) l ORDER BY g.value DESC, g.fingerprint DESC
        """
        return sql, each.arguments


def _page(rows: Sequence[Mapping[str, Any]], order: GroupOrder, limit: int, hour: int) -> GroupPage:
    return group_page([_group(row, hour) for row in rows], limit, order, hour)


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
