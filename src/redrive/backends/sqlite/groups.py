"""Letters that failed in the same way: from the counts that are kept, or from the letters themselves where those do not answer."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import islice, starmap
from operator import add
from typing import Any, NamedTuple

from redrive.backends.sqlite import counts
from redrive.backends.sqlite.connections import snapshot
from redrive.backends.sqlite.plan import planned
from redrive.backends.sqlite.query import DATA, Condition, compiled_for_few
from redrive.backends.sqlite.rows import filled, marks, pieces
from redrive.model.census import STORED, GroupChange, Scope, scope_of
from redrive.model.hours import HOUR, SHOWN, growth
from redrive.model.instant import instant, micros
from redrive.model.paging import LastGroup, group, group_page, last_hour
from redrive.model.query import Field, GroupOrder, GroupPage, Query
from redrive.model.recent import unpacked
from redrive.model.status import Status
from redrive.model.stored import headline

_AT_ONCE = 500

_KEPT = ", ".join(("fingerprint", "count", "first_seen", "last_seen", *STORED))

_OF_GROUP = "letters l INDEXED BY letters_by_group"
_LISTED_BY = {GroupOrder.LAST_SEEN: "last_seen", GroupOrder.COUNT: "count", GroupOrder.GROWTH: "growth"}


def listed(
    connection: sqlite3.Connection, query: Query, order: GroupOrder, limit: int, last: LastGroup | None, now: datetime
) -> GroupPage:
    """A page of the groups among the letters that match."""
    hour = last_hour(last, now)
    scope = scope_of(query)
    with snapshot(connection):
        if scope is not None and scope.is_of_groups:
            found: _Kept | _Scanned = _Kept(connection, scope, hour, micros(now))
        else:
            found = _Scanned(connection, query, hour, now)
        rows = found.page(order, limit + 1, last)
        statuses: dict[str, Counter[str]] = {}
        hours: dict[str, list[int]] = {}
        for some in pieces(rows):
            statuses |= found.statuses(some)
            hours |= found.hours([row.name for row in some])
        latest = found.latest(rows)
    groups = [
        group(headline(data), row.letters, instant(row.first), statuses[row.name], hours[row.name])
        for row, data in zip(rows, latest, strict=True)
    ]
    return group_page(groups, limit, order, hour)


class Row(NamedTuple):
    """A group to be listed."""

    key: int
    """What it is listed by."""
    name: str
    letters: int
    first: int
    last: int
    statuses: tuple[int, ...] = ()
    """How many letters there are of each status that is stored, where the counts tell."""

    @classmethod
    def read(cls, key: int, name: str, letters: int, first: int, last: int, *statuses: int) -> Row:
        return cls(key, name, letters, first, last, statuses)


class _Kept:
    """Groups as the counts have them, with what was noted and not summed up yet."""

    def __init__(self, connection: sqlite3.Connection, scope: Scope, hour: int, moment: int) -> None:
        self._connection = connection
        self._hour = hour
        self._moment = moment
        self._namespace = namespace = scope.namespace
        self._is_of_one = scope.facet is Field.GROUP
        """A single group is meant, which is looked up like those of which something was noted."""
        self._noted: dict[str, dict[str, GroupChange]] = {scope.value: {}} if self._is_of_one else {}
        """By the group and its namespace. One that is looked up stands here too, though nothing may have been noted of it."""
        for (known, name), change in counts.noted_groups(connection).items():
            if namespace in (None, known) and (name in self._noted or not self._is_of_one):
                self._noted.setdefault(name, {})[known] = change
        self._only = _only_namespace(connection) if namespace is None else namespace
        """The one namespace that all of them are of, those that were noted included; None: of several."""
        if any(noted.keys() - {self._only} for noted in self._noted.values()):
            self._only = None

    def page(self, order: GroupOrder, limit: int, last: LastGroup | None) -> list[Row]:
        rows = [] if self._is_of_one else [row for row in self._next(order, limit, last) if row.name not in self._noted]
        for names in pieces(list(self._noted)):
            known = self._rows(names)
            hours = self.hours(names) if order is GroupOrder.GROWTH else {}
            corrected = (self._corrected(name, known.get(name), order, hours.get(name, ())) for name in names)
            rows += [row for row in corrected if row is not None and _is_behind(row.key, row.name, last)]
        return sorted(rows, reverse=True)[:limit]

    def _next(self, order: GroupOrder, limit: int, last: LastGroup | None) -> list[Row]:
        """The rows that come next. Groups of which something was noted are listed elsewhere than the table has them, so that there are as many more."""
        if order is GroupOrder.GROWTH:
            return self._grown(limit, last)
        source, parameters = self._source()
        found = _cut(self._connection, source, parameters, _KEPT, _LISTED_BY[order], limit + len(self._noted), last)
        return list(starmap(Row.read, found))

    def _rows(self, names: Sequence[str]) -> dict[str, Row]:
        """These groups, as the table has them."""
        source, parameters = self._source()
        sql = f"SELECT 0, {_KEPT} FROM ({source}) WHERE fingerprint IN ({marks(len(names))})"
        return {row.name: row for row in starmap(Row.read, self._connection.execute(sql, [*parameters, *filled(names)]))}

    def _grown(self, limit: int, last: LastGroup | None) -> list[Row]:
        """The rows that come next by their growth, of groups of which nothing was noted."""
        # Only groups to which letters came in the last two hours grow; mostly these are enough.
        windows = ((2, 0), (4, 2)) if self._only is not None else ((4, 0),)
        grown: dict[str, int] = {}
        for window in windows:
            grown |= self._growth(*window)
            moving = _most(grown, limit, last)
            if len(moving) == limit and moving[-1][0] > 0:
                break
        rows = [row._replace(key=grown[name]) for name, row in self._rows([name for _, name in moving]).items()]
        if len(moving) < limit or moving[-1][0] < 0:
            # Behind those that grow come those that stay as they are.
            rows += self._still(limit, last, grown.keys() | self._noted.keys())
        return rows

    def _still(self, limit: int, last: LastGroup | None, others: Collection[str]) -> list[Row]:
        """The groups that come next of those that have not grown, by their names; the others are passed over."""
        if last is not None and last.value < 0:
            return []
        source, parameters = self._source()
        beyond, behind = ("WHERE fingerprint < ?", [last.fingerprint]) if last is not None and last.value == 0 else ("", [])
        sql = f"SELECT 0, {_KEPT} FROM ({source}) {beyond} ORDER BY fingerprint DESC"
        found = starmap(Row.read, self._connection.execute(sql, [*parameters, *behind]))
        return list(islice((row for row in found if row.name not in others), limit))

    def _growth(self, first: int, last: int) -> dict[str, int]:
        """By how much groups have grown whose last letter came that many hours ago; by nothing, or if something was noted: left out."""
        where, parameters = ("", []) if self._only is None else ("AND namespace = ?", [self._only])
        since, until = ((self._hour + 1 - number) * HOUR for number in (first, last))
        within = f"last_seen >= {since}" + (f" AND last_seen < {until}" if last else "")
        sql = f"SELECT fingerprint, hours FROM groups WHERE {within} {where}"
        grown: dict[str, int] = {}
        alike: dict[bytes | None, int | None] = {}
        unknown: set[str] = set()
        for name, hours in self._connection.execute(sql, parameters).fetchall():
            # Most groups are small, and many have the same hours.
            if hours not in alike:
                alike[hours] = hours and unpacked(hours).growth(self._hour)
            by = alike[hours]
            if by is None:
                unknown.add(name)
            elif by:
                grown[name] = grown.get(name, 0) + by
        # Of these the letters are counted, in every namespace they are in.
        for names in pieces(list(unknown - self._noted.keys())):
            grown |= {name: growth(hours) for name, hours in self.hours(names).items()}
        return {name: by for name, by in grown.items() if by and name not in self._noted}

    def _source(self) -> Condition:
        """A statement that gives all groups."""
        if self._only is not None:
            return f"SELECT {_KEPT} FROM groups WHERE namespace = ?", [self._only]
        summed = f"""
            SELECT fingerprint, sum(count) AS count, min(first_seen) AS first_seen, max(last_seen) AS last_seen,
                {", ".join(f"sum({status}) AS {status}" for status in STORED)}
            FROM groups GROUP BY fingerprint
        """
        return summed, []

    def _corrected(self, name: str, known: Row | None, order: GroupOrder, hours: Sequence[int]) -> Row | None:
        """A group with what was noted of it; None when none of its letters is left. Its hours count where it is listed by them."""
        notes = self._noted[name].values()
        count = sum(sum(note.statuses.values()) for note in notes) + (known.letters if known else 0)
        if not count:
            return None
        firsts = [note.first for note in notes if note.first is not None] + ([known.first] if known else [])
        lasts = [note.last for note in notes if note.last is not None] + ([known.last] if known else [])
        ends = self._ends(name) if any(note.is_shaken for note in notes) else (min(firsts), max(lasts))
        if ends is None:
            return None
        first, last = ends
        key = {GroupOrder.LAST_SEEN: last, GroupOrder.COUNT: count, GroupOrder.GROWTH: growth(hours)}[order]
        return Row(key, name, count, first, last, known.statuses if known else (0,) * len(STORED))

    def _ends(self, name: str) -> tuple[int, int] | None:
        """When the first and the last of a group's letters came; None: there is none, whatever the counts say."""
        within, parameters = self._within()
        # Two looks at an end of the index: both at once would go through all of the group.
        ends = (
            f"(SELECT l.dead_lettered_at FROM {_OF_GROUP} WHERE l.fingerprint = ? AND {within} ORDER BY l.dead_lettered_at {way} LIMIT 1)"
            for way in ("ASC", "DESC")
        )
        first, last = self._connection.execute(f"SELECT {', '.join(ends)}", [name, *parameters] * 2).fetchone()
        return None if first is None else (first, last)

    def statuses(self, rows: Sequence[Row]) -> dict[str, Counter[str]]:
        found = _stored(rows)
        for name in self._noted.keys() & found.keys():
            for note in self._noted[name].values():
                found[name].update(note.statuses)
        for values, status in counts.leased(self._connection, self._moment):
            if self._namespace in (None, values[Field.NAMESPACE]):
                _retried(found, values[Field.GROUP], status, 1)
        return found

    def hours(self, names: Sequence[str]) -> dict[str, list[int]]:
        found, start = {name: [0] * SHOWN for name in names}, self._hour - SHOWN + 1
        counted: set[tuple[str, str]] = set()
        among, parameters = self._among(names)
        sql = f"SELECT namespace, fingerprint, hours FROM groups {among}"
        for namespace, name, known in self._connection.execute(sql, parameters).fetchall():
            shown = known and unpacked(known).until(self._hour)
            if shown is None:
                counted.add((namespace, name))
                shown = self._counted(namespace, name)
            found[name] = list(map(add, found[name], shown)) if any(found[name]) else shown
        for name in self._noted.keys() & found.keys():
            # Who counted letters has those already that are noted.
            notes = [note for namespace, note in self._noted[name].items() if (namespace, name) not in counted]
            for hour, count in (one for note in notes for one in note.hours.items()):
                if 0 <= hour - start < SHOWN:
                    found[name][hour - start] += count
        return found

    def _counted(self, namespace: str, name: str) -> list[int]:
        """The hours of a group of which more is asked than is known: those of a past in which nobody looks usually."""
        start, found = self._hour - SHOWN + 1, [0] * SHOWN
        sql = f"""
            SELECT {hour_in("dead_lettered_at")}, count(*) FROM letters
            WHERE fingerprint = ? AND namespace = ? AND dead_lettered_at >= {start * HOUR} AND dead_lettered_at < {(self._hour + 1) * HOUR}
            GROUP BY 1
        """
        for hour, count in self._connection.execute(sql, [name, namespace]).fetchall():
            found[hour - start] = count
        return found

    def latest(self, rows: Sequence[Row]) -> list[bytes]:
        return _latest(self._connection, rows, *self._within())

    def _within(self) -> Condition:
        return ("true", []) if self._only is None else ("l.namespace = ?", [self._only])

    def _among(self, names: Sequence[str]) -> tuple[str, list[Any]]:
        among = f"WHERE fingerprint IN ({marks(len(names))})"
        if self._only is None:
            return among, filled(names)
        return f"{among} AND namespace = ?", [*filled(names), self._only]


class _Scanned:
    """Groups as the letters that match have them: all of these are gone through once."""

    def __init__(self, connection: sqlite3.Connection, query: Query, hour: int, now: datetime) -> None:
        self._connection = connection
        self._plan = planned(connection, query, now, None)
        self._each = compiled_for_few(query, now)
        self._hour = hour
        self._moment = micros(now)
        self._hours: dict[str, list[int]] = {}
        """Of the groups that are listed."""

    def page(self, order: GroupOrder, limit: int, last: LastGroup | None) -> list[Row]:
        early, middle, late = ((self._hour + 1 - number) * HOUR for number in (4, 2, 0))
        grown = f"sum((l.dead_lettered_at >= {middle} AND l.dead_lettered_at < {late})"
        grown += f" - (l.dead_lettered_at >= {early} AND l.dead_lettered_at < {middle}))"
        first = (self._hour - SHOWN + 1) * HOUR
        # Statuses and hours too: to go through all letters of the groups that are listed once more can take as long again, or far longer.
        statuses = ", ".join(f"sum(l.status = '{status}') AS {status}" for status in STORED)
        lately = f"l.dead_lettered_at >= {first} AND l.dead_lettered_at < {late}"
        # With a plus, for SQLite would else go through all letters, group by group, to spare itself the sorting of those that match.
        source = f"""
            SELECT l.fingerprint AS fingerprint, count(*) AS count, min(l.dead_lettered_at) AS first_seen,
                max(l.dead_lettered_at) AS last_seen, {statuses}, {grown} AS growth,
                group_concat(CASE WHEN {lately} THEN (l.dead_lettered_at - {first}) / {HOUR} END) AS hours
            FROM {self._plan.source} WHERE {self._plan.condition} GROUP BY +l.fingerprint
        """
        rows = []
        found = _cut(self._connection, source, self._plan.parameters, f"hours, {_KEPT}", _LISTED_BY[order], limit, last)
        for key, hours, name, *known in found:
            rows.append(Row.read(key, name, *known))
            came = Counter((hours or "").split(","))
            self._hours[name] = [came[str(number)] for number in range(SHOWN)]
        return rows

    def statuses(self, rows: Sequence[Row]) -> dict[str, Counter[str]]:
        found = _stored(rows)
        condition, parameters = self._each
        sql = f"""
            SELECT l.fingerprint, l.status, count(*) FROM claims h CROSS JOIN letters l ON l.seq = h.seq
            WHERE h.until > ? AND {condition} GROUP BY 1, 2
        """
        for held in self._connection.execute(sql, [self._moment, *parameters]):
            _retried(found, *held)
        return found

    def hours(self, names: Sequence[str]) -> dict[str, list[int]]:
        return {name: self._hours[name] for name in names}

    def latest(self, rows: Sequence[Row]) -> list[bytes]:
        return _latest(self._connection, rows, *self._each)


def _most(grown: Mapping[str, int], limit: int, last: LastGroup | None) -> list[tuple[int, str]]:
    """The groups that have grown most, of those that come next: by how much, and their names. Few of many: so first only numbers are sorted."""
    behind = grown if last is None else {name: by for name, by in grown.items() if _is_behind(by, name, last)}
    least = min(sorted(behind.values(), reverse=True)[:limit], default=0)
    return sorted(((by, name) for name, by in behind.items() if by >= least), reverse=True)[:limit]


def _stored(rows: Sequence[Row]) -> dict[str, Counter[str]]:
    """How many letters of each group there are of each status that is stored."""
    return {row.name: Counter(dict(zip(STORED, row.statuses, strict=True))) for row in rows}


def _retried(statuses: dict[str, Counter[str]], name: str, status: str, number: int) -> None:
    """So many letters of a group, counted with the status that they are stored with, are under a live lease."""
    if name in statuses:
        statuses[name][status] -= number
        statuses[name][Status.RETRYING.value] += number


def _is_behind(key: int, name: str, last: LastGroup | None) -> bool:
    """Does a group come behind the last one of the page before?"""
    return last is None or (key, name) < (last.value, last.fingerprint)


def _only_namespace(connection: sqlite3.Connection) -> str | None:
    """The namespace that all groups are of, which is the usual case: then nothing has to be summed over several."""
    first, last = connection.execute("SELECT (SELECT min(namespace) FROM groups), (SELECT max(namespace) FROM groups)").fetchone()
    return str(first) if first is not None and first == last else None


def hour_in(column: str) -> str:
    """The hour that an instant lies in, as SQL: division that rounds down, also before 1970."""
    return f"(({column} - ((({column} % {HOUR}) + {HOUR}) % {HOUR})) / {HOUR})"


def _cut(
    connection: sqlite3.Connection,
    source: str,
    parameters: Sequence[Any],
    columns: str,
    by: str,
    limit: int,
    last: LastGroup | None,
) -> list[tuple[Any, ...]]:
    """The rows of the source that come next, behind what they are listed by."""
    beyond, behind = ("", []) if last is None else (f"WHERE ({by}, fingerprint) < (?, ?)", [last.value, last.fingerprint])
    sql = f"""
        SELECT {by}, {columns} FROM ({source}) {beyond}
        ORDER BY {by} DESC, fingerprint DESC LIMIT {limit}
    """
    return connection.execute(sql, [*parameters, *behind]).fetchall()


def _latest(connection: sqlite3.Connection, rows: Sequence[Row], condition: str, parameters: Sequence[Any]) -> list[bytes]:
    """The last letter of each group, of those that meet the condition."""
    found: list[bytes] = []
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        sql = f"""
            SELECT (
                SELECT {DATA} FROM {_OF_GROUP} WHERE l.fingerprint = g.column1 AND l.dead_lettered_at = g.column2 AND {condition}
                ORDER BY l.id DESC LIMIT 1
            ) FROM (VALUES {", ".join(["(?, ?)"] * len(some))}) g
        """
        # What stands first in the text comes first.
        values = [*parameters, *(value for row in some for value in (row.name, row.last))]
        found += [data for (data,) in connection.execute(sql, values).fetchall()]
    return found
