"""Counts: from what is kept when that answers the question, else by looking through the letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redrive.backends.columns import COLUMN
from redrive.backends.postgres.database import Database
from redrive.backends.postgres.query import Condition
from redrive.backends.postgres.rows import restored_text
from redrive.backends.postgres.tables import Tables
from redrive.model.census import ALL, FACETS, HOURS, STORED, Scope, hour_number, hour_text, scopes_of
from redrive.model.hours import HOUR, hour_of, start_of
from redrive.model.query import EVERYTHING, Field, Query, tally_key

_KEPT = "SELECT c.namespace, c.value, c.status, c.count"
STATUSES = ", ".join(f"('{status}', g.{status})" for status in STORED)
"""The columns of `groups g` as rows."""


class Counts:
    """What a store's counts say."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema

    async def count(self, query: Query, now: int | None) -> int:
        scopes = scopes_of(query)
        condition = Condition(self._schema, query if scopes is None else EVERYTHING, now)
        if scopes is None:
            sql = f"SELECT '', count(*) FROM {self._schema}.letters l WHERE {condition.sql}"
        else:
            sql = " UNION ALL ".join(self._kept(condition, scope, "''", scope.facet) for scope in scopes)
        return sum((await self._counted(sql, condition)).values())

    async def tally(self, by: Field, query: Query, now: int | None) -> dict[str, int]:
        tally_key(by)
        scopes = scopes_of(query)
        if scopes is not None and all(by in (Field.STATUS, Field.NAMESPACE) or scope.facet in (None, by) for scope in scopes):
            condition = Condition(self._schema, EVERYTHING, now)
            is_facet = by in FACETS or by is Field.GROUP
            key = "r.value" if is_facet else f"r.{by}"
            kept = (self._kept(condition, scope, key, by if is_facet else scope.facet, by=by) for scope in scopes)
            sql = " UNION ALL ".join(kept)
        else:
            condition = Condition(self._schema, query, now)
            column = condition.seen_status if by is Field.STATUS else COLUMN[by]
            sql = f"SELECT {column}, count(*) FROM {self._schema}.letters l WHERE {condition.sql} GROUP BY 1"
        return {restored_text(value): count for value, count in (await self._counted(sql, condition)).items()}

    async def hourly(self, since: datetime, until: datetime, query: Query, now: int | None) -> dict[datetime, int]:
        first, last = hour_of(since), hour_of(until)
        if first > last:
            return {}
        scopes = scopes_of(query)
        if scopes is not None and all(scope.facet is None for scope in scopes):
            condition = Condition(self._schema, EVERYTHING, now)
            sql = " UNION ALL ".join(self._kept_hours(condition, scope, first, last) for scope in scopes)
            return {start_of(hour_number(text)): count for text, count in (await self._counted(sql, condition)).items()}
        if scopes is not None and all(scope.facet is Field.GROUP and scope.status is None for scope in scopes):
            condition = Condition(self._schema, EVERYTHING, None)
            sql = " UNION ALL ".join(self._hours_of_group(condition, scope, first, last) for scope in scopes)
            return {start_of(hour): count for hour, count in (await self._counted(sql, condition)).items()}
        condition = Condition(self._schema, query, now)
        begin, end = (condition.parameter(hour * HOUR) for hour in (first, last + 1))
        sql = (
            f"SELECT {self._schema}.hour_of(l.dead_lettered_at), count(*) FROM {self._schema}.letters l WHERE {condition.sql}"
            f" AND l.dead_lettered_at >= {begin}::bigint AND l.dead_lettered_at < {end}::bigint GROUP BY 1"
        )
        return {start_of(hour): count for hour, count in (await self._counted(sql, condition)).items()}

    async def _counted(self, sql: str, condition: Condition) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for value, count in await self._database.read(sql, *condition.arguments, is_of_texts=condition.is_of_texts):
            if count:
                found[value] += count
        return found

    def _kept(self, condition: Condition, scope: Scope, key: str, facet: Field | None, *, by: Field | None = None) -> str:
        """How many letters there are in the scope for each `key`, by what is kept of this facet."""
        value = condition.text(scope.value) if scope.facet is not None else None
        wanted = [f"r.value = {value}"] if value else []
        if facet is Field.GROUP:
            is_of_status = scope.status is not None or by is Field.STATUS
            kept = self._kept_groups(scope, value, condition, is_apart=by is Field.NAMESPACE, is_of_status=is_of_status)
        else:
            kept = f"{_KEPT} FROM {self._schema}.counts c WHERE c.facet = '{facet or ALL}'"
            kept += f" AND left(c.value, 64) = left({value}, 64)" if value else ""
        column = COLUMN[facet].removeprefix("l.") if facet else None
        values = (f"n.{column}", f"l.{column}") if column else ("''", "''")
        return self._summed(condition, scope, key, kept, values, wanted, is_of_status=by is Field.STATUS)

    def _kept_groups(self, scope: Scope, value: str | None, condition: Condition, *, is_apart: bool, is_of_status: bool) -> str:
        wanted = "g.place <> ''" if is_apart else "g.place = ''"
        if scope.namespace is not None:
            wanted = f"g.place = {self._schema}.key_of({condition.text(scope.namespace)})"
        if value is not None:
            wanted += f" AND g.key = {self._schema}.key_of({value})"
        if not is_of_status:
            return f"SELECT g.namespace, g.fingerprint, '', g.count FROM {self._schema}.groups g WHERE {wanted}"
        return (
            f"SELECT g.namespace, g.fingerprint, s.status, s.count FROM {self._schema}.groups g"
            f" CROSS JOIN LATERAL (VALUES {STATUSES}) AS s (status, count) WHERE {wanted}"
        )

    def _kept_hours(self, condition: Condition, scope: Scope, first: int, last: int) -> str:
        among = " BETWEEN {} AND {}".format(*(condition.text(hour_text(hour)) for hour in (first, last)))
        kept = f"{_KEPT} FROM {self._schema}.counts c WHERE c.facet = '{HOURS}' AND left(c.value, 64){among}"
        hours = "n.hour", f"{self._schema}.hour_of(l.dead_lettered_at)"
        values = [f"lpad(({hour} + 1000000000)::text, 10, '0')" for hour in hours]
        return self._summed(condition, scope, "r.value", kept, values, [f"r.value{among}"])

    def _hours_of_group(self, condition: Condition, scope: Scope, first: int, last: int) -> str:
        value, place, within = condition.text(scope.value), "''", "true"
        if scope.namespace is not None:
            namespace = condition.text(scope.namespace)
            place, within = f"{self._schema}.key_of({namespace})", f"n.namespace = {namespace}"
        begin, end = (f"{condition.parameter(hour)}::bigint" for hour in (first, last))
        return f"""
            SELECT r.hour, sum(r.count)::bigint FROM (
                SELECT h.hour, h.count FROM {self._schema}.group_hours h
                WHERE h.key = {self._schema}.key_of({value}) AND h.place = {place} AND h.hour BETWEEN {begin} AND {end}
                UNION ALL
                SELECT n.hour, n.count FROM {self._schema}.noted n
                WHERE n.fingerprint = {value} AND {within} AND n.hour BETWEEN {begin} AND {end}
            ) r GROUP BY r.hour
        """

    def _summed(
        self,
        condition: Condition,
        scope: Scope,
        key: str,
        kept: str,
        values: Sequence[str],
        wanted: Sequence[str],
        *,
        is_of_status: bool = False,
    ) -> str:
        """What is kept, what was noted since, and, where statuses matter, that letters under a live lease are `retrying`.

        `values` says what a note `n` and a letter `l` are counted by.
        """
        of_note, of_letter = values
        parts = [kept, f"SELECT n.namespace, {of_note}, n.status, n.count FROM {self._schema}.noted n"]
        if is_of_status or scope.status is not None:
            parts.append(
                f"SELECT l.namespace, {of_letter}, s.status, s.count FROM {leased(self._database.tables, condition)}"
                " CROSS JOIN LATERAL (VALUES (l.status, -1), ('retrying', 1)) AS s (status, count)"
            )
        conditions = [*wanted]
        if scope.namespace is not None:
            conditions.append(f"r.namespace = {condition.text(scope.namespace)}")
        if scope.status is not None:
            conditions.append(f"r.status = {condition.text(scope.status)}")
        return (
            f"SELECT {key}, sum(r.count)::bigint FROM ({' UNION ALL '.join(parts)}) AS r (namespace, value, status, count)"
            f" WHERE {' AND '.join(conditions) or 'true'} GROUP BY 1"
        )


def leased(tables: Tables, condition: Condition) -> str:
    """The letters that somebody holds, as `l`."""
    return f"(SELECT l.* FROM {tables.schema}.held({condition.now}) AS c (id) {tables.joined('c')}) AS l"
