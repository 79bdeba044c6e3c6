"""Counts that every transaction keeps: written in one statement, and read instead of the letters where they answer a question."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import msgpack

from redrive.backends.sqlite.rows import pieces, read_all, rounded, write_rows
from redrive.model.census import ALL, HOURS, STORED, Cell, Change, Group, GroupChange, Scope, hour_number, hour_text, summed
from redrive.model.hours import HOUR
from redrive.model.query import Field
from redrive.model.recent import packed, recent
from redrive.model.status import Status

_CENSUS = ("kind", "facet", "namespace", "value", "status", "count", "first", "last", "hours")
_NEVER = 2**63 - 1, -(2**63)
"""The first and the last of no letters."""

_LEASED = """
    SELECT l.namespace, l.source, l.category, l.error, l.policy, l.fingerprint, l.status, l.dead_lettered_at
    FROM claims c INDEXED BY claims_held CROSS JOIN letters l ON l.seq = c.seq WHERE c.until > ?
"""


_encode = msgpack.Encoder().encode
_decode_groups = msgpack.Decoder(dict[Group, GroupChange]).decode
_decode_cells = msgpack.Decoder(dict[Cell, int]).decode
_MOST = 64
"""Changes that may wait to be summed up: readers add them to what they read."""
MOST_GROUPS = 16
"""Groups that one of them may speak of."""


def write(connection: sqlite3.Connection, change: Change) -> None:
    """Note what a transaction has changed; now and then sum up what was noted. Much is not noted first."""
    if len(change.groups) > MOST_GROUPS:
        fold(connection, change)
    elif note(connection, change) >= _MOST:
        fold(connection)


def note(connection: sqlite3.Connection, change: Change) -> int:
    """Note what a transaction has changed, however much it is; how many notes are there then?"""
    if not change:
        return 0
    values = [_encode(change.cells), _encode(change.groups)]
    return connection.execute("INSERT INTO changes (cells, groups) VALUES (?, ?)", values).lastrowid or 0


def fold(connection: sqlite3.Connection, change: Change = Change()) -> None:
    """Sum up what was noted, and this change. Never one without the other: a group may have come in one and left in the other."""
    _sum_up(connection, summed([noted(connection), change]))
    connection.execute("DELETE FROM changes")


def folded(connection: sqlite3.Connection, requests: list[None]) -> list[None]:
    """Sum up what was noted, within a transaction that others may share."""
    fold(connection)
    return requests


def _sum_up(connection: sqlite3.Connection, change: Change) -> None:
    rows: list[tuple[Any, ...]] = []
    for (namespace, facet, value, status), count in change.cells.items():
        rows.append(("cell", facet, namespace, value, status, count, None, None, None))
        if count < 0:
            rows.append(("cell gone", facet, namespace, value, status, None, None, None, None))
    hours = _hours(connection, change.groups)
    for (namespace, name), group in change.groups.items():
        first, last = _NEVER if group.first is None else (group.first, group.last)
        # When as many came as left, the counts stay, and the ends may not.
        statuses = [one for one in group.statuses.items() if one[1]] or [(Status.PENDING.value, 0)]
        known = hours.get((namespace, name))
        rows += [("group", "", namespace, name, status, count, first, last, known) for status, count in statuses]
        if group.is_shaken:
            rows.append(("shaken", "", namespace, name, "", None, None, None, None))
    write_rows(connection, "census", _CENSUS, rows, "")


def _hours(connection: sqlite3.Connection, groups: Mapping[Group, GroupChange]) -> dict[Group, bytes]:
    """The hours of those groups to which more or fewer letters came."""
    changes = {group: {hour: by for hour, by in change.hours.items() if by} for group, change in groups.items()}
    changed = [group for group, change in changes.items() if change]
    known: dict[Group, bytes] = {}
    for some in pieces(changed):
        values = ", ".join(["(?, ?, ?)"] * rounded(len(some)))
        sql = f"""
            SELECT v.column1 AS note, g.hours AS data FROM (VALUES {values}) v
            CROSS JOIN groups g ON g.namespace = v.column2 AND g.fingerprint = v.column3
        """
        wanted = [value for number, group in enumerate(some) for value in (number, *group)]
        missing = [None] * (3 * rounded(len(some)) - len(wanted))
        known |= {some[int(number)]: hours for number, hours in read_all(connection, sql, [*wanted, *missing])}
    return {group: packed(recent(known.get(group), changes[group])) for group in changed}


def noted(connection: sqlite3.Connection) -> Change:
    """The sum of what was noted and not summed up yet."""
    return summed([Change(noted_cells(connection)), Change(groups=noted_groups(connection))])


def noted_cells(connection: sqlite3.Connection) -> dict[Cell, int]:
    """Of the counts."""
    return summed(Change(_decode_cells(data)) for (data,) in connection.execute("SELECT cells FROM changes")).cells


def noted_groups(connection: sqlite3.Connection) -> dict[Group, GroupChange]:
    """Of the groups."""
    return summed(Change(groups=_decode_groups(data)) for (data,) in connection.execute("SELECT groups FROM changes")).groups


def waiting(connection: sqlite3.Connection) -> int:
    """How many changes are not summed up yet."""
    (count,) = connection.execute("SELECT count(*) FROM changes").fetchone()
    return int(count)


def counted(connection: sqlite3.Connection, scope: Scope, moment: int) -> int:
    """How many letters there are of what the question is about."""
    return sum(_found(connection, scope.facet or ALL, scope, moment, by_status=scope.status is not None).values())


def tallied(connection: sqlite3.Connection, by: Field, scope: Scope, moment: int) -> dict[str, int] | None:
    """How many there are for each value of a field; None when the counts do not tell."""
    facet = scope.facet or ALL
    if by not in (Field.STATUS, Field.NAMESPACE):
        if scope.facet not in (None, by):
            return None
        facet = by
    by_status = by is Field.STATUS or scope.status is not None
    totals: Counter[str] = Counter()
    for (namespace, value, status), count in _found(connection, facet, scope, moment, by_status=by_status).items():
        totals[status if by is Field.STATUS else namespace if by is Field.NAMESPACE else value] += count
    return {value: count for value, count in totals.items() if count}


def hours(connection: sqlite3.Connection, since: int, until: int, scope: Scope, moment: int) -> dict[int, int] | None:
    """How many there are of each hour; None when the counts do not tell."""
    if scope.facet is not None:
        return None
    totals: Counter[int] = Counter()
    span = hour_text(since), hour_text(until)
    found = _found(connection, HOURS, scope, moment, by_status=scope.status is not None, span=span)
    for (_, value, _), count in found.items():
        totals[hour_number(value)] += count
    return {hour: count for hour, count in totals.items() if count}


def leased(connection: sqlite3.Connection, moment: int) -> Iterator[tuple[dict[str, str], str]]:
    """The letters under a live lease: what they are counted by, and the status they are counted with. There are few."""
    for namespace, source, category, error, policy, group, status, at in connection.execute(_LEASED, [moment]):
        values = {
            Field.NAMESPACE: namespace,
            Field.SOURCE: source,
            Field.CATEGORY: category,
            Field.ERROR: error,
            Field.POLICY: policy,
            Field.GROUP: group,
            HOURS: hour_text(at // HOUR),
            ALL: "",
        }
        yield values, status


Counts = Counter[tuple[str, str, str]]
"""By namespace, value and status; the status is empty where it does not matter."""


def _found(
    connection: sqlite3.Connection,
    facet: str,
    scope: Scope,
    moment: int,
    *,
    by_status: bool,
    span: tuple[str, str] | None = None,
) -> Counts:
    """The counts of a facet within the scope, by the statuses that people see if these matter."""
    found: Counts = Counter()
    for namespace, value, status, count in connection.execute(*_query(facet, scope, by_status=by_status, span=span)):
        found[namespace, value, status] += count
    for namespace, value, status, count in _noted(connection, facet, scope, span):
        found[namespace, value, status if by_status else ""] += count
    if not by_status:
        return found
    for values, status in leased(connection, moment):
        if scope.holds(values) and (span is None or span[0] <= values[facet] <= span[1]):
            found[values[Field.NAMESPACE], values[facet], status] -= 1
            found[values[Field.NAMESPACE], values[facet], Status.RETRYING.value] += 1
    return Counter({key: count for key, count in found.items() if scope.status in (None, key[2])})


def _noted(
    connection: sqlite3.Connection, facet: str, scope: Scope, span: tuple[str, str] | None
) -> Iterator[tuple[str, str, str, int]]:
    """What was noted and not summed up yet of this facet within the scope."""
    if facet == Field.GROUP:
        groups = noted_groups(connection)
        cells = [((*group, status), count) for group, one in groups.items() for status, count in one.statuses.items()]
    else:
        cells = [
            ((cell.namespace, cell.value, cell.status), count)
            for cell, count in noted_cells(connection).items()
            if cell.facet == facet
        ]
    for (namespace, value, status), count in cells:
        is_meant = scope.namespace in (None, namespace) and (scope.facet is None or value == scope.value)
        if is_meant and (span is None or span[0] <= value <= span[1]):
            yield namespace, value, status, count


def _query(facet: str, scope: Scope, *, by_status: bool, span: tuple[str, str] | None) -> tuple[str, list[str]]:
    """Rows of namespace, value, status and count."""
    conditions, parameters = ["true"], []
    if scope.namespace is not None:
        conditions.append("namespace = ?")
        parameters.append(scope.namespace)
    if facet == Field.GROUP:
        if scope.facet is not None:
            conditions.append("fingerprint = ?")
            parameters.append(scope.value)
        where = " AND ".join(conditions)
        if not by_status:
            return f"SELECT namespace, fingerprint, '', count FROM groups WHERE {where}", parameters
        parts = [f"SELECT namespace, fingerprint, '{one}', {one} FROM groups WHERE {where} AND {one}" for one in STORED]
        return " UNION ALL ".join(parts), parameters * len(STORED)
    conditions.append("facet = ?")
    parameters.append(facet)
    if scope.facet is not None:
        conditions.append("value = ?")
        parameters.append(scope.value)
    if span is not None:
        conditions.append("value BETWEEN ? AND ?")
        parameters += span
    where = " AND ".join(conditions)
    if by_status:
        return f"SELECT namespace, value, status, count FROM counts WHERE {where}", parameters
    return f"SELECT namespace, value, '', sum(count) FROM counts WHERE {where} GROUP BY namespace, value", parameters
