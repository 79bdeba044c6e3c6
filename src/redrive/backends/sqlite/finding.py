"""Reading: pages of letters, how many there are, and of what."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from redrive.backends.columns import COLUMN
from redrive.backends.sqlite import counts, sifting, table, texts
from redrive.backends.sqlite.connections import snapshot
from redrive.backends.sqlite.groups import hour_in
from redrive.backends.sqlite.plan import Along, planned
from redrive.backends.sqlite.query import IS_LEASED, compiled, distance
from redrive.backends.sqlite.rows import listed
from redrive.model.census import scopes_of
from redrive.model.hours import HOUR
from redrive.model.instant import micros
from redrive.model.letter import Letter
from redrive.model.paging import is_newest_first, last_letter, last_nearest, listed_by
from redrive.model.paging import page as page_of
from redrive.model.query import Field, Order, Page, Query, looks_behind

T = TypeVar("T")


def page(connection: sqlite3.Connection, query: Query, order: Order, limit: int, after: str | None, now: datetime) -> Page:
    """A page of the letters that match."""
    with snapshot(connection):
        if order is Order.NEAREST:
            numbers, parameters = _nearest(connection, query, limit + 1, after, now)
        else:
            numbers, parameters = _along(connection, query, order, limit + 1, after, now)
        found = table.seen(connection, numbers, parameters, now)
        unsearched = texts.unsearched(connection) if looks_behind(query) else 0
        far = partial(_distance, connection, query) if order is Order.NEAREST else None
        return page_of(found, limit, order, far=far, unsearched=unsearched)


def _along(
    connection: sqlite3.Connection, query: Query, order: Order, limit: int, after: str | None, now: datetime
) -> tuple[str, list[Any]]:
    """A statement that gives the numbers of the letters of a page in an order that there is an index of."""
    rest, parts = sifting.parted(connection, query)
    by = listed_by(order)
    along = Along(planned(connection, rest, now, Field(by)), f"l.{by}", "DESC" if is_newest_first(order) else "ASC")
    last = None if (one := last_letter(after, order)) is None else (one[0], one[1].bytes)
    if not parts:
        return along.numbers(last, limit)
    return "SELECT value AS seq FROM json_each(?) LIMIT -1", [listed(sifting.sifted(connection, parts, along, last, limit, now))]


def _nearest(connection: sqlite3.Connection, query: Query, limit: int, after: str | None, now: datetime) -> tuple[str, list[Any]]:
    """The same for the letters that are nearest to the question's phrases."""
    plan = planned(connection, query, now, None)
    far, more = distance(query)
    beyond, last = _beyond_nearest(far, more, after)
    ordered = f"{far}, l.dead_lettered_at DESC, l.id DESC"
    numbers = f"SELECT l.seq AS seq FROM {plan.source} WHERE {plan.condition}{beyond} ORDER BY {ordered} LIMIT {limit}"
    return numbers, [*plan.parameters, *last, *more]


def _distance(connection: sqlite3.Connection, query: Query, letter: Letter) -> int:
    """How far a letter is from the question's phrases."""
    far, parameters = distance(query)
    (found,) = connection.execute(f"SELECT {far} FROM letters l WHERE l.id = ?", [*parameters, letter.id.bytes]).fetchone()
    return int(found)


def _beyond_nearest(far: str, parameters: list[Any], after: str | None) -> tuple[str, list[Any]]:
    """What comes behind the last letter of the page before."""
    if (last := last_nearest(after)) is None:
        return "", []
    distance, at, id = last
    condition = f" AND ({far} > ? OR ({far} = ? AND (l.dead_lettered_at, l.id) < (?, ?)))"
    return condition, [*parameters, distance, *parameters, distance, at, id.bytes]


def count(connection: sqlite3.Connection, query: Query, now: datetime) -> int:
    """How many letters match."""
    if (scopes := scopes_of(query)) is not None:
        with snapshot(connection):
            return sum(counts.counted(connection, scope, micros(now)) for scope in scopes)
    condition, parameters = compiled(query, now)
    (found,) = connection.execute(f"SELECT count(*) FROM letters l WHERE {condition}", parameters).fetchone()
    return int(found)


def tally(connection: sqlite3.Connection, by: Field, query: Query, now: datetime) -> dict[str, int]:
    """How many letters match for each value of a field."""
    if (scopes := scopes_of(query)) is not None:
        with snapshot(connection):
            if (found := _together(counts.tallied(connection, by, scope, micros(now)) for scope in scopes)) is not None:
                return found
    condition, parameters = compiled(query, now)
    column, leading = COLUMN[by], []
    if by is Field.STATUS:
        column, leading = f"CASE WHEN {IS_LEASED} THEN 'retrying' ELSE l.status END", [micros(now)]
    sql = f"SELECT {column}, count(*) FROM letters l WHERE {condition} GROUP BY 1"
    return dict(connection.execute(sql, [*leading, *parameters]).fetchall())


def hours(connection: sqlite3.Connection, since: int, until: int, query: Query, now: datetime) -> dict[int, int]:
    """How many letters that match came in each hour."""
    if (scopes := scopes_of(query)) is not None:
        with snapshot(connection):
            if (found := _together(counts.hours(connection, since, until, scope, micros(now)) for scope in scopes)) is not None:
                return found
    condition, parameters = compiled(query, now)
    sql = f"""
        SELECT {hour_in("l.dead_lettered_at")}, count(*) FROM letters l
        WHERE l.dead_lettered_at >= {since * HOUR} AND l.dead_lettered_at < {(until + 1) * HOUR} AND {condition} GROUP BY 1
    """
    return dict(connection.execute(sql, parameters).fetchall())


def _together(counted: Iterable[dict[T, int] | None]) -> dict[T, int] | None:
    """What was counted, added up; None when one of them does not tell."""
    totals: Counter[T] = Counter()
    for one in counted:
        if one is None:
            return None
        totals.update(one)
    return dict(totals)
