"""Groups: from what is kept of them when that answers the question, else by looking through the letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from redrive.backends.postgres.counts import leased
from redrive.backends.postgres.database import Database
from redrive.backends.postgres.query import Condition
from redrive.backends.postgres.rows import plain
from redrive.model.census import STORED, scope_of
from redrive.model.hours import SHOWN
from redrive.model.instant import instant
from redrive.model.paging import LastGroup, group, group_page
from redrive.model.query import EVERYTHING, Group, GroupOrder, GroupPage, Query
from redrive.model.status import Status
from redrive.model.stored import headline

_HELD = "ARRAY(SELECT ARRAY[h.status, h.count::text] FROM held h WHERE h.fingerprint = g.fingerprint) AS held"
"""How many letters of a group somebody holds, by the status that they are stored with."""


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
            return await self._page(sql, condition, order, limit, hour)
        if order is GroupOrder.GROWTH and (last is None or last.value > 0):
            # Those that grow are few and come first; only behind them is it necessary to look at all groups.
            page = await self._kept(scope.namespace, order, limit, last, hour, now, is_growing=True)
            if page.next is not None:
                return page
        return await self._kept(scope.namespace, order, limit, last, hour, now)

    async def _page(self, sql: str, condition: Condition, order: GroupOrder, limit: int, hour: int) -> GroupPage:
        rows = await self._database.read(sql, *condition.arguments)
        # Only where counts are wrong is there a group without letters.
        return group_page([_group(row, hour) for row in rows if row["data"] is not None], limit, order, hour)

    async def _kept(
        self,
        namespace: str | None,
        order: GroupOrder,
        limit: int,
        last: LastGroup | None,
        hour: int,
        now: int | None,
        *,
        is_growing: bool = False,
    ) -> GroupPage:
        """Groups to which nothing was noted are listed as they are kept; the few others are worked out first."""
        schema = self._schema
        condition = Condition(schema, EVERYTHING, now)
        space = "NULL::text" if namespace is None else condition.text(namespace)
        place = "''::bytea" if namespace is None else f"{schema}.key_of({space})"
        within = "true" if namespace is None else f"n.namespace = {space}"
        among = "true" if namespace is None else f"l.namespace = {space}"
        # In the text and not behind it: so the plan of an hour is made once.
        end = f"{hour}::bigint"
        value = {GroupOrder.LAST_SEEN: "last_seen", GroupOrder.COUNT: "count", GroupOrder.GROWTH: "growth"}[order]
        sign = f"CASE WHEN {{0}}.hour > {end} - 2 THEN {{0}}.count ELSE -{{0}}.count END"
        statuses = [f"coalesce(sum(n.count) FILTER (WHERE n.status = '{one}'), 0)::bigint AS {one}" for one in STORED]
        sums = [f"coalesce(g.{one}, 0) + t.{one} AS {one}" for one in ("count", *STORED)]
        growth, joined, own_value = "0", "", f"g.{value}"
        if order is GroupOrder.GROWTH:
            growth, joined, own_value = "coalesce(w.growth, 0)", "LEFT JOIN grown w ON w.key = t.key", "coalesce(w.growth, 0)"
        kept = f"{schema}.groups g {joined.replace('t.key', 'g.key')}"
        beyond, beyond_own, most = "true", "true", ""
        if last is not None:
            at, name = f"{condition.parameter(last.value)}::bigint", f"{condition.parameter(plain(last.fingerprint))}::text"
            beyond = f'(m.{value}, m.fingerprint) < ({at}, {name} COLLATE "C")'
            beyond_own = f'({own_value}, g.fingerprint) < ({at}, {name} COLLATE "C")'
            most = f"AND growth <= {at}"
        if is_growing:
            beyond += " AND m.growth > 0"
            kept = f"""(
                SELECT * FROM grown WHERE growth > 0 {most} AND key NOT IN (SELECT key FROM touched)
                ORDER BY growth DESC FETCH FIRST {limit + 1} ROWS WITH TIES
            ) w JOIN {schema}.groups g ON g.key = w.key"""
        first = f"ORDER BY value DESC, fingerprint DESC LIMIT {limit + 1}"
        sql = f"""
            WITH grown AS (
                SELECT h.key, sum({sign.format("h")})::bigint AS growth FROM {schema}.group_hours h
                WHERE h.place = {place} AND h.hour BETWEEN {end} - 3 AND {end} GROUP BY h.key
            ),
            touched AS MATERIALIZED (
                SELECT n.fingerprint, {schema}.key_of(n.fingerprint) AS key, sum(n.count)::bigint AS count, {", ".join(statuses)},
                    coalesce(sum({sign.format("n")}) FILTER (WHERE n.hour BETWEEN {end} - 3 AND {end}), 0)::bigint AS growth,
                    min(n.first) AS first, max(n.last) AS last, bool_or(n.is_shaken) AS is_shaken
                FROM {schema}.changes n WHERE {within} GROUP BY n.fingerprint
            ),
            settled AS (
                SELECT g.key, g.fingerprint, {_columns("g")}, g.first_seen, g.last_seen, {own_value} AS value FROM {kept}
                WHERE g.place = {place} AND g.key NOT IN (SELECT key FROM touched) AND {beyond_own} {first}
            ),
            moving AS (
                SELECT m.key, m.fingerprint, {_columns("m")}, m.first_seen, m.last_seen, m.{value} AS value FROM (
                    SELECT t.key, t.fingerprint, {", ".join(sums)}, {growth} + t.growth AS growth,
                        CASE WHEN t.is_shaken THEN {schema}.first_seen(t.fingerprint, {space}) ELSE least(g.first_seen, t.first) END
                            AS first_seen,
                        CASE WHEN t.is_shaken THEN {schema}.last_seen(t.fingerprint, {space}) ELSE greatest(g.last_seen, t.last) END
                            AS last_seen
                    FROM touched t LEFT JOIN {schema}.groups g ON g.key = t.key AND g.place = {place} {joined}
                ) m WHERE m.count > 0 AND {beyond}
            ),
            listed AS (SELECT * FROM (SELECT * FROM settled UNION ALL SELECT * FROM moving) u {first}),
            timed AS (
                SELECT key, array_agg(ARRAY[hour, count]) AS hours FROM (
                    SELECT key, hour, sum(count)::bigint AS count FROM (
                        SELECT g.key, h.hour, h.count FROM listed g JOIN {schema}.group_hours h ON h.key = g.key
                        WHERE h.place = {place} AND h.hour BETWEEN {end} - {SHOWN - 1} AND {end}
                        UNION ALL
                        SELECT g.key, n.hour, n.count FROM listed g JOIN {schema}.changes n ON n.fingerprint = g.fingerprint
                        WHERE {within}
                    ) h GROUP BY key, hour
                ) h GROUP BY key
            ),
            held AS MATERIALIZED (
                SELECT l.fingerprint, l.status, count(*) AS count FROM {leased(self._database.tables, condition)} WHERE {among} GROUP BY 1, 2
            )
            SELECT {_columns("g")}, t.hours, {_HELD}, g.first_seen, (
                SELECT l.data FROM {schema}.letters l
                WHERE left(l.fingerprint, 64) = left(g.fingerprint, 64) AND l.fingerprint = g.fingerprint
                    AND l.dead_lettered_at = g.last_seen AND {among}
                ORDER BY l.id DESC LIMIT 1
            ) AS data FROM listed g LEFT JOIN timed t ON t.key = g.key ORDER BY g.value DESC, g.fingerprint DESC
        """
        return await self._page(sql, condition, order, limit, hour)

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
        hours = ", ".join(f"ARRAY[{now} - {ago}, count(*) FILTER (WHERE f.hour = {now} - {ago})]" for ago in range(SHOWN))
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
                SELECT f.fingerprint, {statuses}, ARRAY[{hours}] AS hours FROM found f JOIN listed g ON g.fingerprint = f.fingerprint
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
            SELECT {_columns("t")}, t.hours, {_HELD}, g.first_seen, l.data
            FROM listed g JOIN told t ON t.fingerprint = g.fingerprint JOIN latest ON latest.fingerprint = g.fingerprint
            {self._database.tables.joined("latest")} ORDER BY g.value DESC, g.fingerprint DESC
        """


def _columns(table: str) -> str:
    return ", ".join(f"{table}.{status}" for status in STORED)


def _group(row: Mapping[str, Any], hour: int) -> Group:
    statuses = Counter({status.value: row[status] for status in STORED})
    for status, count in row["held"]:
        statuses[status] -= int(count)
        statuses[Status.RETRYING.value] += int(count)
    hours = dict(row["hours"] or ())
    shown = [hours.get(hour - SHOWN + 1 + number, 0) for number in range(SHOWN)]
    count = sum(row[status] for status in STORED)
    return group(headline(row["data"]), count, instant(row["first_seen"]), statuses, shown)
