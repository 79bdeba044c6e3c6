"""Counts compared with the letters themselves.

Each comparison is one statement and so sees one instant: what is kept together with what is noted there must be what is there.
Nobody waits for it. To put counts right, what a table should hold is written over what it holds: only who sums up notes writes
it too, and is kept out meanwhile.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from redrive.backends.postgres.database import Connection, Database
from redrive.backends.postgres.rows import restored_text
from redrive.model.census import ALL, FACETS, HOURS, STORED, Miscount, hour_number
from redrive.model.hours import start_of

FOLDING = 0x72647266
"""Which of the server's advisory locks is held by whoever sums up notes ("rdrf"); `fold` has the same."""

_PAUSE_SECONDS = 0.02
_PATIENCE_SECONDS = 3600.0
"""To look through millions of letters takes its time."""

_PLACES = "CROSS JOIN LATERAL (VALUES (NULL), (k.namespace)) AS p (namespace)"
"""A group counts in its namespace and in all."""
_SUMS = "sum(kept)::bigint AS kept, sum(noted)::bigint AS noted, sum(real)::bigint AS real"
_IS_WRONG = "sum(kept) + sum(noted) <> sum(real)"


class _Check(Struct, frozen=True):
    """One comparison."""

    wrong: str
    """Queries of which the last, `wrong`, has what is counted wrongly."""
    shown: str
    """Its columns for people: namespace, what is counted, by which value, which of these; as it is kept, and as it is."""
    right: str
    """Puts right what is `wrong`."""


class Recount:
    """Finds what is counted wrongly, and puts it right."""

    def __init__(self, database: Database) -> None:
        self._database = database
        schema = database.schema
        self._checks = (_cells(schema), _groups(schema), _hours(schema), _spans(schema))
        self._is_free = f"SELECT pg_try_advisory_xact_lock({FOLDING}, hashtext('{schema}'))"
        self._without_zeros = (
            f"DELETE FROM {schema}.counts WHERE count = 0;"
            f"DELETE FROM {schema}.groups WHERE {' AND '.join(f'{one} = 0' for one in ('count', *STORED))};"
            f"DELETE FROM {schema}.group_hours WHERE count = 0"
        )

    async def found(self) -> list[Miscount]:
        """What is counted wrongly."""
        async with self._database.transaction() as connection:
            return await self._compared(connection, is_repair=False)

    async def repaired(self) -> list[Miscount]:
        """What was counted wrongly, and is not any more."""
        while True:
            async with self._database.transaction() as connection:
                if await connection.fetchval(self._is_free):
                    wrong = await self._compared(connection, is_repair=True)
                    await connection.execute(self._without_zeros)
                    return wrong
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _compared(self, connection: Connection, *, is_repair: bool) -> list[Miscount]:
        await connection.execute("SET LOCAL work_mem = '64MB'")
        wrong = []
        for check in self._checks:
            righted = f", righted AS ({check.right})" if is_repair else ""
            sql = f"WITH {check.wrong}{righted} SELECT {check.shown} FROM wrong"
            wrong += [
                Miscount(what=_named(namespace, facet, restored_text(value or "?"), which), kept=kept or 0, real=real or 0)
                for namespace, facet, value, which, kept, real in await connection.fetch(sql, timeout=_PATIENCE_SECONDS)
            ]
        return wrong


def _named(namespace: str | None, facet: str, value: str, which: str) -> str:
    where = "" if namespace in (None, "default") else f" in {restored_text(namespace)}"
    match facet:
        case "all":
            return f"all letters{where}, {which}"
        case "hour":
            return f"hour {start_of(hour_number(value)):%Y-%m-%d %H:00}{where}, {which}"
        case _:
            return f"{facet} {value}{where}, {which}"


def _kinds(schema: str, detail: str, of_letter: str) -> str:
    """Letters by group and one thing more: those that are there, and what is noted."""
    return f"""
        kinds AS (
            SELECT namespace, fingerprint, {of_letter} AS {detail}, 0::bigint AS noted, count(*) AS real
            FROM {schema}.letters GROUP BY 1, 2, 3
            UNION ALL SELECT namespace, fingerprint, {detail}, sum(count)::bigint, 0 FROM {schema}.noted GROUP BY 1, 2, 3
        )
    """


def _faces(schema: str, table: str, hour: str, one: str) -> str:
    """How many there are of each facet's values, in one go: of each of these sets, only one column has a value."""
    facets = ", ".join(f"(namespace, status, {facet})" for facet in (*FACETS, HOURS))
    return f"""
        SELECT namespace, CASE GROUPING({", ".join((*FACETS, HOURS))})
                WHEN 15 THEN 'source' WHEN 23 THEN 'category' WHEN 27 THEN 'error' WHEN 29 THEN 'policy' WHEN 30 THEN '{HOURS}'
                ELSE '{ALL}' END AS facet,
            coalesce(source, category, error, policy, lpad((hour + 1000000000)::text, 10, '0'), '') AS value, status, sum(count) AS count
        FROM (SELECT namespace, status, {", ".join(FACETS)}, {hour} AS hour, {one} AS count FROM {schema}.{table}) k GROUP BY GROUPING SETS ((namespace, status), {facets})
    """


def _place(schema: str) -> str:
    return f"CASE WHEN p.namespace IS NULL THEN '' ELSE {schema}.key_of(p.namespace) END"


def _cells(schema: str) -> _Check:
    letters = _faces(schema, "letters", f"{schema}.hour_of(dead_lettered_at)", "1")
    changes = _faces(schema, "changes", "hour", "count")
    return _Check(
        wrong=f"""
            wrong AS (
                SELECT namespace, facet, value, status, {_SUMS} FROM (
                    SELECT namespace, facet, value, status, count AS kept, 0 AS noted, 0 AS real FROM {schema}.counts
                    UNION ALL SELECT namespace, facet, value, status, 0, 0, count FROM ({letters}) l
                    UNION ALL SELECT namespace, facet, value, status, 0, count, 0 FROM ({changes}) n
                ) r GROUP BY namespace, facet, value, status HAVING {_IS_WRONG}
            )
        """,
        shown="namespace, facet, value, status, kept + noted, real",
        right=f"""
            INSERT INTO {schema}.counts (key, namespace, facet, value, status, count)
            SELECT {schema}.key_of(ARRAY[namespace, facet, value, status]::text), namespace, facet, value, status, real - noted
            FROM wrong ON CONFLICT (key) DO UPDATE SET count = excluded.count
        """,
    )


def _groups(schema: str) -> _Check:
    columns = ", ".join(f"('{status}', g.{status})" for status in STORED)
    sums = ", ".join(f"coalesce(sum(r.real - r.noted) FILTER (WHERE r.status = '{one}'), 0)" for one in (ALL, *STORED))
    return _Check(
        wrong=f"""
            {_kinds(schema, "status", "status")},
            rows AS MATERIALIZED (
                SELECT namespace, fingerprint, status, {_SUMS} FROM (
                    SELECT g.namespace, g.fingerprint, s.status, s.count AS kept, 0::bigint AS noted, 0::bigint AS real
                    FROM {schema}.groups g CROSS JOIN LATERAL (VALUES ('{ALL}', g.count), {columns}) AS s (status, count)
                    UNION ALL
                    SELECT p.namespace, k.fingerprint, s.status, 0, k.noted, k.real
                    FROM kinds k {_PLACES} CROSS JOIN LATERAL (VALUES ('{ALL}'), (k.status)) AS s (status)
                ) r GROUP BY namespace, fingerprint, status
            ),
            wrong AS (SELECT * FROM rows WHERE kept + noted <> real)
        """,
        shown="namespace, 'group', fingerprint, status, kept + noted, real",
        right=f"""
            INSERT INTO {schema}.groups (key, place, namespace, fingerprint, count, {", ".join(STORED)}, first_seen, last_seen)
            SELECT {schema}.key_of(p.fingerprint), {_place(schema)}, p.namespace, p.fingerprint, {sums},
                {schema}.first_seen(p.fingerprint, p.namespace), {schema}.last_seen(p.fingerprint, p.namespace)
            FROM rows r JOIN (SELECT DISTINCT namespace, fingerprint FROM wrong) p
                ON p.fingerprint = r.fingerprint AND p.namespace IS NOT DISTINCT FROM r.namespace
            GROUP BY p.namespace, p.fingerprint
            ON CONFLICT (key, place) DO UPDATE SET count = excluded.count, first_seen = excluded.first_seen,
                last_seen = excluded.last_seen, {", ".join(f"{one} = excluded.{one}" for one in STORED)}
        """,
    )


def _hours(schema: str) -> _Check:
    return _Check(
        wrong=f"""
            {_kinds(schema, "hour", f"{schema}.hour_of(dead_lettered_at)")},
            wrong AS (
                SELECT key, place, hour, max(namespace) AS namespace, max(fingerprint) AS fingerprint, {_SUMS} FROM (
                    SELECT h.key, h.place, h.hour, g.namespace, g.fingerprint, h.count AS kept, 0::bigint AS noted, 0::bigint AS real
                    FROM {schema}.group_hours h LEFT JOIN {schema}.groups g ON g.key = h.key AND g.place = h.place
                    UNION ALL
                    SELECT {schema}.key_of(p.fingerprint), {_place(schema)}, p.hour, p.namespace, p.fingerprint, 0, p.noted, p.real
                    FROM (
                        SELECT p.namespace, k.fingerprint, k.hour, sum(k.noted)::bigint AS noted, sum(k.real)::bigint AS real
                        FROM kinds k {_PLACES} GROUP BY p.namespace, k.fingerprint, k.hour
                    ) p
                ) r GROUP BY key, place, hour HAVING {_IS_WRONG}
            )
        """,
        shown="namespace, 'group', fingerprint, 'hour ' || hour, kept + noted, real",
        right=f"""
            INSERT INTO {schema}.group_hours (key, place, hour, count) SELECT key, place, hour, real - noted FROM wrong
            ON CONFLICT (key, place, hour) DO UPDATE SET count = excluded.count
        """,
    )


def _spans(schema: str) -> _Check:
    """When groups were first and last seen. Those that something is noted of are looked up by whoever asks."""
    return _Check(
        wrong=f"""
            spans AS (
                SELECT p.namespace, k.fingerprint, min(k.first) AS first, max(k.last) AS last FROM (
                    SELECT namespace, fingerprint, min(dead_lettered_at) AS first, max(dead_lettered_at) AS last
                    FROM {schema}.letters GROUP BY namespace, fingerprint
                ) k {_PLACES} GROUP BY p.namespace, k.fingerprint
            ),
            wrong AS (
                SELECT g.key, g.place, g.namespace, g.fingerprint, s.first, s.last, t.which, t.kept, t.real
                FROM {schema}.groups g
                JOIN spans s ON s.fingerprint = g.fingerprint AND s.namespace IS NOT DISTINCT FROM g.namespace
                CROSS JOIN LATERAL (
                    VALUES ('first seen', g.first_seen, s.first), ('last seen', g.last_seen, s.last)
                ) AS t (which, kept, real)
                WHERE t.kept IS DISTINCT FROM t.real AND NOT EXISTS (
                    SELECT 1 FROM {schema}.noted n
                    WHERE n.fingerprint = g.fingerprint AND (g.namespace IS NULL OR n.namespace = g.namespace)
                )
            )
        """,
        shown="namespace, 'group', fingerprint, which, kept, real",
        right=f"""
            UPDATE {schema}.groups g SET first_seen = wrong.first, last_seen = wrong.last FROM wrong
            WHERE g.key = wrong.key AND g.place = wrong.place
        """,
    )
