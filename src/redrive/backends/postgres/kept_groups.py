"""A page of groups as they are kept, as one statement: those of which nothing was noted as they are, the few others worked out first."""

from __future__ import annotations

from redrive.backends.postgres.counts import leased
from redrive.backends.postgres.query import Condition
from redrive.backends.postgres.rows import plain
from redrive.backends.postgres.tables import Tables
from redrive.model.census import STORED, Scope
from redrive.model.hours import SHOWN
from redrive.model.paging import LastGroup
from redrive.model.query import EVERYTHING, GroupOrder

COLUMNS = tuple(status.value for status in STORED)
HELD = "ARRAY(SELECT ARRAY[h.status, h.count::text] FROM held h WHERE h.fingerprint = g.fingerprint) AS held"
"""How many letters of a group somebody holds, by the status that they are stored with."""

_VALUE = {GroupOrder.LAST_SEEN: "last_seen", GroupOrder.COUNT: "count", GroupOrder.GROWTH: "growth"}


def latest(schema: str, condition: str) -> str:
    """The latest letter of `g`, of those that meet the condition: what a group tells of it, and the letter itself only where its message is long."""
    return f"""
        SELECT l.error, l.category, l.message, CASE WHEN l.message IS NULL THEN l.data END AS data FROM {schema}.letters l
        WHERE left(l.fingerprint, 64) = left(g.fingerprint, 64) AND l.fingerprint = g.fingerprint
            AND l.dead_lettered_at = g.last_seen AND {condition}
        ORDER BY l.id DESC LIMIT 1
    """


def columns(table: str) -> str:
    """How many letters of a group there are of each status."""
    return ", ".join(f"{table}.{status}" for status in COLUMNS)


class KeptGroups:
    """Writes the statement."""

    def __init__(
        self,
        tables: Tables,
        scope: Scope,
        order: GroupOrder,
        limit: int,
        last: LastGroup | None,
        hour: int,
        now: int | None,
    ) -> None:
        """`limit`: how many are found at most. `hour`: the last that is shown."""
        self._tables = tables
        self._schema = tables.schema
        self._order = order
        self._limit = limit
        self._last = last
        # In the text and not behind it: so the plan of an hour is made once.
        self._hour = f"{hour}::bigint"
        self._condition = Condition(self._schema, EVERYTHING, now)
        is_all = scope.namespace is None
        self._space = "NULL::text" if scope.namespace is None else self._condition.text(scope.namespace)
        self._place = "''::bytea" if is_all else f"{self._schema}.key_of({self._space})"
        self._is_noted = "true" if is_all else f"n.namespace = {self._space}"
        self._is_meant = "true" if is_all else f"l.namespace = {self._space}"
        self._alone = ""
        """The key of the only group that is meant."""
        if scope.facet is not None:
            name = self._condition.text(scope.value)
            self._alone = f"{self._schema}.key_of({name})"
            self._is_noted += f" AND n.fingerprint = {name}"
        self._at = self._name = ""
        if last is not None:
            self._at = f"{self._condition.parameter(last.value)}::bigint"
            self._name = f'{self._condition.parameter(plain(last.fingerprint))}::text COLLATE "C"'

    def statement(self) -> tuple[str, list[object]]:
        """The statement, and its parameters."""
        kept = self._grown_or_not() if self._order is GroupOrder.GROWTH else self._kept()
        sql = f"""
            WITH grown AS ({self._growth()}), touched AS MATERIALIZED ({self._touched()}), settled AS ({kept}),
            moving AS ({self._moving()}),
            listed AS (SELECT * FROM (SELECT * FROM settled UNION ALL SELECT * FROM moving) u {self._first()}),
            held AS MATERIALIZED (
                SELECT l.fingerprint, l.status, count(*) AS count FROM {leased(self._tables, self._condition)}
                WHERE {self._is_meant} GROUP BY 1, 2
            )
            SELECT {columns("g")}, t.hours || w.hours AS hours, t.counts || w.counts AS counts, {HELD}, g.fingerprint, g.first_seen, g.last_seen, l.*
            FROM listed g LEFT JOIN touched w ON w.key = g.key CROSS JOIN LATERAL ({self._timed()}) t CROSS JOIN LATERAL ({latest(self._schema, self._is_meant)}) l
            ORDER BY g.value DESC, g.fingerprint DESC
        """
        return sql, self._condition.arguments

    def _first(self) -> str:
        return f"ORDER BY value DESC, fingerprint DESC LIMIT {self._limit}"

    def _beyond(self, value: str, name: str) -> str:
        """Does a group come behind the last one of the page before?"""
        return "true" if self._last is None else f"({value}, {name}) < ({self._at}, {self._name})"

    def _within(self, table: str) -> str:
        """The rows of a table that are about what is meant."""
        return f"{table}.place = {self._place}" + (f" AND {table}.key = {self._alone}" if self._alone else "")

    def _signed(self, table: str) -> str:
        return f"CASE WHEN {table}.hour > {self._hour} - 2 THEN {table}.count ELSE -{table}.count END"

    def _growth(self) -> str:
        """By how much groups have grown to which letters came lately. Summed up as what is quickest, and exact for all that can be counted."""
        return f"""
            SELECT h.key, sum(({self._signed("h")})::float8)::bigint AS growth FROM {self._schema}.group_hours h
            WHERE {self._within("h")} AND h.hour BETWEEN {self._hour} - 3 AND {self._hour} GROUP BY h.key
        """

    def _touched(self) -> str:
        """What was noted of groups."""
        statuses = [f"coalesce(sum(n.count) FILTER (WHERE n.status = '{one}'), 0)::bigint AS {one}" for one in COLUMNS]
        is_recent = f"n.hour BETWEEN {self._hour} - 3 AND {self._hour}"
        return f"""
            SELECT n.fingerprint, {self._schema}.key_of(n.fingerprint) AS key, sum(n.count)::bigint AS count, {", ".join(statuses)},
                coalesce(sum({self._signed("n")}) FILTER (WHERE {is_recent}), 0)::bigint AS growth,
                min(n.first) AS first, max(n.last) AS last, bool_or(n.is_shaken) AS is_shaken,
                array_agg(n.hour) AS hours, array_agg(n.count) AS counts
            FROM {self._schema}.noted n WHERE {self._is_noted} GROUP BY n.fingerprint
        """

    def _rows(self, value: str, source: str, condition: str) -> str:
        """Groups of which nothing was noted."""
        return f"""
            SELECT g.key, g.fingerprint, {columns("g")}, g.first_seen, g.last_seen, {value} AS value FROM {source}
            WHERE {self._within("g")} AND g.key NOT IN (SELECT key FROM touched) AND {condition}
        """

    def _kept(self) -> str:
        """By when they were last seen, or by their number: there is an index of each."""
        value = f"g.{_VALUE[self._order]}"
        return f"{self._rows(value, f'{self._schema}.groups g', self._beyond(value, 'g.fingerprint'))} {self._first()}"

    def _grown_or_not(self) -> str:
        """By their growth: of those that have changed, as many as may be wanted; and of all others, by their names."""
        groups = f"{self._schema}.groups g"
        lower = f"AND growth < {self._at}" if self._last is not None else ""
        # Those of which something was noted have grown otherwise by now, and must take nobody's place here.
        known = "SELECT * FROM grown WHERE growth <> 0 AND key NOT IN (SELECT key FROM touched)"
        most = f"{known} {lower} ORDER BY growth DESC FETCH FIRST {self._limit} ROWS WITH TIES"
        if self._last is not None:
            most = f"({most}) UNION ALL {known} AND growth = {self._at}"
        changed = self._rows("w.growth", f"({most}) w JOIN {groups} ON g.key = w.key", self._beyond("w.growth", "g.fingerprint"))
        if self._last is not None and self._last.value < 0:
            return changed
        beyond = "true"
        if self._last is not None and self._last.value == 0:
            beyond = f"left(g.fingerprint, 64) <= left({self._name}, 64) AND g.fingerprint < {self._name}"
        # Where enough have grown, nobody asks for those that stand still.
        are_asked_for = f"(SELECT count(*) FROM changed WHERE value > 0) < {self._limit}"
        still = self._rows(
            "0", groups, f"{are_asked_for} AND g.key NOT IN (SELECT key FROM grown WHERE growth <> 0) AND {beyond}"
        )
        return f"""
            WITH changed AS MATERIALIZED ({changed})
            SELECT * FROM changed
            UNION ALL ({still} ORDER BY left(g.fingerprint, 64) DESC, g.fingerprint DESC LIMIT {self._limit})
        """

    def _moving(self) -> str:
        """Groups of which something was noted, with that."""
        schema, value = self._schema, _VALUE[self._order]
        sums = ", ".join(f"coalesce(g.{one}, 0) + t.{one} AS {one}" for one in ("count", *COLUMNS))
        ends = ", ".join(
            f"CASE WHEN t.is_shaken THEN {schema}.{end}_seen(t.fingerprint, {self._space}) ELSE {of}(g.{end}_seen, t.{end}) END AS {end}_seen"
            for end, of in (("first", "least"), ("last", "greatest"))
        )
        return f"""
            SELECT m.key, m.fingerprint, {columns("m")}, m.first_seen, m.last_seen, m.{value} AS value FROM (
                SELECT t.key, t.fingerprint, {sums}, coalesce(w.growth, 0) + t.growth AS growth, {ends}
                FROM touched t LEFT JOIN LATERAL (
                    SELECT * FROM {schema}.groups g WHERE g.key = t.key AND g.place = {self._place} LIMIT 1
                ) g ON true LEFT JOIN grown w ON w.key = t.key
            ) m WHERE m.count > 0 AND {self._beyond(f"m.{value}", "m.fingerprint")}
        """

    def _timed(self) -> str:
        """How many letters of a group came in each of the hours that are shown, without those that were noted."""
        return f"""
            SELECT array_agg(h.hour) AS hours, array_agg(h.count) AS counts FROM {self._schema}.group_hours h
            WHERE h.key = g.key AND h.place = {self._place} AND h.hour BETWEEN {self._hour} - {SHOWN - 1} AND {self._hour}
        """
