"""Letters that failed in the same way: from the counts that are kept, or from the letters themselves where those do not answer."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redrive.backends.sqlite import counts
from redrive.backends.sqlite.connections import snapshot
from redrive.backends.sqlite.query import IS_LEASED, Condition, compiled
from redrive.backends.sqlite.rows import filled, marks, pieces
from redrive.model.census import STORED, scope_of
from redrive.model.hours import HOUR, SHOWN
from redrive.model.instant import instant, micros
from redrive.model.paging import LastGroup, group, group_page, last_hour
from redrive.model.query import Field, GroupOrder, GroupPage, Query
from redrive.model.status import Status
from redrive.model.stored import restored

_LISTED_BY = {GroupOrder.LAST_SEEN: "last_seen", GroupOrder.COUNT: "count", GroupOrder.GROWTH: "growth"}


def listed(
    connection: sqlite3.Connection, query: Query, order: GroupOrder, limit: int, last: LastGroup | None, now: datetime
) -> GroupPage:
    """A page of the groups among the letters that match."""
    hour = last_hour(last, now)
    scope = scope_of(query)
    with snapshot(connection):
        if scope is not None and scope.facet is None and scope.status is None:
            found: _Kept | _Scanned = _Kept(connection, scope.namespace, hour, micros(now))
        else:
            found = _Scanned(connection, compiled(query, now), hour, micros(now))
        rows = found.page(order, limit + 1, last)
        statuses: dict[str, Counter[str]] = {}
        hours: dict[str, Counter[int]] = {}
        for names in pieces([name for name, *_ in rows]):
            statuses |= found.statuses(names)
            hours |= found.hours(names)
        latest = found.latest([(name, end) for name, _, _, end in rows])
    groups = [
        group(
            restored(data),
            count,
            instant(first),
            statuses[name],
            [hours[name][hour - SHOWN + 1 + number] for number in range(SHOWN)],
        )
        for (name, count, first, _), data in zip(rows, latest, strict=True)
    ]
    return group_page(groups, limit, order, hour)


Row = tuple[str, int, int, int]
"""A fingerprint, its count, and when it was first and last seen."""


class _Kept:
    """Groups as the counts have them."""

    def __init__(self, connection: sqlite3.Connection, namespace: str | None, hour: int, moment: int) -> None:
        self._connection = connection
        self._hour = hour
        self._moment = moment
        if namespace is None:
            names = connection.execute("SELECT DISTINCT namespace FROM counts WHERE facet = 'all' LIMIT 2").fetchall()
            # One namespace is the usual case; then nothing has to be summed over several.
            namespace = names[0][0] if len(names) == 1 else None
        self._namespace = namespace

    def page(self, order: GroupOrder, limit: int, last: LastGroup | None) -> list[Row]:
        by = _LISTED_BY[order]
        grown, parameters = "", []
        if order is GroupOrder.GROWTH:
            hour = self._hour
            grown = f"""
                LEFT JOIN (
                    SELECT h.number, sum(CASE WHEN h.hour > {hour - 2} THEN h.count ELSE -h.count END) AS growth
                    FROM group_hours h WHERE h.hour BETWEEN {hour - 3} AND {hour} GROUP BY h.number
                ) h ON h.number = g.number
            """
        growth = "coalesce(h.growth, 0)" if grown else "0"
        if self._namespace is not None:
            source = (
                f"SELECT fingerprint, count, first_seen, last_seen, {growth} AS growth FROM groups g {grown} WHERE namespace = ?"
            )
            parameters.append(self._namespace)
        else:
            source = f"""
                SELECT fingerprint, sum(count) AS count, min(first_seen) AS first_seen, max(last_seen) AS last_seen,
                    sum({growth}) AS growth FROM groups g {grown} GROUP BY fingerprint
            """
        return _cut(self._connection, source, parameters, by, limit, last)

    def statuses(self, names: Sequence[str]) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {name: Counter() for name in names}
        among, parameters = self._among(names)
        for name, *numbers in self._connection.execute(
            f"SELECT fingerprint, {', '.join(STORED)} FROM groups {among}", parameters
        ):
            found[name].update(dict(zip((status.value for status in STORED), numbers, strict=True)))
        for values, status in counts.leased(self._connection, self._moment):
            name = values[Field.GROUP]
            if name in found and self._namespace in (None, values[Field.NAMESPACE]):
                found[name][status] -= 1
                found[name][Status.RETRYING.value] += 1
        return found

    def hours(self, names: Sequence[str]) -> dict[str, Counter[int]]:
        found: dict[str, Counter[int]] = {name: Counter() for name in names}
        among, parameters = self._among(names)
        shown = ", ".join(str(self._hour - number) for number in range(SHOWN))
        sql = f"""
            SELECT g.fingerprint, h.hour, h.count FROM (SELECT fingerprint, number FROM groups {among}) g
            CROSS JOIN group_hours h ON h.hour IN ({shown}) AND h.number = g.number
        """
        for name, hour, count in self._connection.execute(sql, parameters):
            found[name][hour] += count
        return found

    def latest(self, ends: Sequence[tuple[str, int]]) -> list[bytes]:
        condition, parameters = ("l.namespace = ?", [self._namespace]) if self._namespace is not None else ("true", [])
        return _latest(self._connection, ends, condition, parameters)

    def _among(self, names: Sequence[str]) -> tuple[str, list[Any]]:
        among = f"WHERE fingerprint IN ({marks(len(names))})"
        if self._namespace is None:
            return among, filled(names)
        return f"{among} AND namespace = ?", [*filled(names), self._namespace]


class _Scanned:
    """Groups as the letters that match have them."""

    def __init__(self, connection: sqlite3.Connection, condition: Condition, hour: int, moment: int) -> None:
        self._connection = connection
        self._condition, self._parameters = condition
        self._hour = hour
        self._moment = moment

    def page(self, order: GroupOrder, limit: int, last: LastGroup | None) -> list[Row]:
        early, middle, late = ((self._hour + 1 - number) * HOUR for number in (4, 2, 0))
        growth = f"sum((l.dead_lettered_at >= {middle} AND l.dead_lettered_at < {late})"
        growth += f" - (l.dead_lettered_at >= {early} AND l.dead_lettered_at < {middle}))"
        source = f"""
            SELECT l.fingerprint AS fingerprint, count(*) AS count, min(l.dead_lettered_at) AS first_seen,
                max(l.dead_lettered_at) AS last_seen, {growth} AS growth
            FROM letters l WHERE {self._condition} GROUP BY l.fingerprint
        """
        return _cut(self._connection, source, self._parameters, _LISTED_BY[order], limit, last)

    def statuses(self, names: Sequence[str]) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {name: Counter() for name in names}
        sql = f"""
            SELECT l.fingerprint, CASE WHEN {IS_LEASED} THEN 'retrying' ELSE l.status END, count(*)
            FROM letters l WHERE l.fingerprint IN ({marks(len(names))}) AND {self._condition} GROUP BY 1, 2
        """
        for name, status, count in self._connection.execute(sql, [self._moment, *filled(names), *self._parameters]):
            found[name][status] += count
        return found

    def hours(self, names: Sequence[str]) -> dict[str, Counter[int]]:
        found: dict[str, Counter[int]] = {name: Counter() for name in names}
        start, end = (self._hour - SHOWN + 1) * HOUR, (self._hour + 1) * HOUR
        sql = f"""
            SELECT l.fingerprint, {hour_in("l.dead_lettered_at")}, count(*) FROM letters l
            WHERE l.fingerprint IN ({marks(len(names))}) AND l.dead_lettered_at >= {start} AND l.dead_lettered_at < {end}
                AND {self._condition} GROUP BY 1, 2
        """
        for name, hour, count in self._connection.execute(sql, [*filled(names), *self._parameters]):
            found[name][hour] += count
        return found

    def latest(self, ends: Sequence[tuple[str, int]]) -> list[bytes]:
        return _latest(self._connection, ends, self._condition, self._parameters)


def hour_in(column: str) -> str:
    """The hour that an instant lies in, as SQL: division that rounds down, also before 1970."""
    return f"(({column} - ((({column} % {HOUR}) + {HOUR}) % {HOUR})) / {HOUR})"


def _cut(
    connection: sqlite3.Connection, source: str, parameters: Sequence[Any], by: str, limit: int, last: LastGroup | None
) -> list[Row]:
    """The rows of the source that come next."""
    beyond, behind = ("", []) if last is None else (f"WHERE ({by}, fingerprint) < (?, ?)", [last.value, last.fingerprint])
    sql = f"""
        SELECT fingerprint, count, first_seen, last_seen FROM ({source}) {beyond}
        ORDER BY {by} DESC, fingerprint DESC LIMIT {limit}
    """
    return connection.execute(sql, [*parameters, *behind]).fetchall()


def _latest(
    connection: sqlite3.Connection, ends: Sequence[tuple[str, int]], condition: str, parameters: Sequence[Any]
) -> list[bytes]:
    """The last letter of each group, of those that meet the condition."""
    sql = f"SELECT l.data FROM letters l WHERE l.fingerprint = ? AND l.dead_lettered_at = ? AND {condition} ORDER BY l.id DESC LIMIT 1"
    return [connection.execute(sql, [name, end, *parameters]).fetchone()[0] for name, end in ends]
