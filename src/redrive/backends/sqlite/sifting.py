"""Words of tracebacks and bodies that many letters have: letters are gone through in their order, many at a time, and the index of texts is
asked once for all of these. To ask it for one letter alone takes as long as for a thousand, and a page may be of those that have a word not."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from redrive.backends.sqlite import texts
from redrive.backends.sqlite.plan import Along, Key
from redrive.backends.sqlite.query import SEARCHED, compiled_for_few, in_texts
from redrive.backends.sqlite.rows import listed
from redrive.model.query import And, Not, Or, Query, Text, conjuncts, looks_behind
from redrive.model.texts import Where
from redrive.model.words import needle

_TIMES = 4
"""So many times as many letters as are wanted are looked at first."""
_LEAST = 256
_MOST = 8192
_GAP = 2000
"""Letters in a row that are not meant, and yet are passed over more quickly than the index is asked anew behind them."""


def parted(connection: sqlite3.Connection, query: Query) -> tuple[Query, list[Query]]:
    """What a question asks besides, and its parts that have phrases in texts that many letters have: all of them must hold."""
    if not looks_behind(query):
        return query, []
    most = texts.few(connection)
    common = [
        part for part in conjuncts(query) if any(not texts.has_at_most(connection, text, most) for text in texts.behind(part))
    ]
    return (And(tuple(part for part in conjuncts(query) if part not in common)), common) if common else (query, [])


def sifted(
    connection: sqlite3.Connection, parts: Sequence[Query], along: Along, last: Key | None, limit: int, now: datetime
) -> list[int]:
    """The numbers of those that come next behind the last one and meet all parts."""
    if any(isinstance(part, Text) and part.where is not Where.ANYWHERE for part in parts):
        along = along._replace(plan=along.plan._replace(condition=f"{along.plan.condition} AND {SEARCHED}"))
    found: list[int] = []
    size = max(_LEAST, _TIMES * limit)
    while True:
        numbers, parameters = along.numbers(last, size)
        some = _numbers(connection, f"SELECT group_concat(seq) FROM ({numbers})", parameters)
        meant = _meeting(connection, And(tuple(parts)), frozenset(some), now)
        found += [number for number in some if number in meant]
        if len(found) >= limit or len(some) < size:
            return found[:limit]
        last = along.key(connection, some[-1])
        size = min(2 * size, _MOST)


def _meeting(connection: sqlite3.Connection, query: Query, numbers: frozenset[int], now: datetime) -> frozenset[int]:
    """Those of these letters that a question means."""
    if not numbers:
        return numbers
    if not looks_behind(query):
        condition, parameters = compiled_for_few(query, now)
        sql = f"SELECT group_concat(l.seq) FROM json_each(?) CROSS JOIN letters l ON l.seq = value WHERE {condition}"
        return frozenset(_numbers(connection, sql, [listed(numbers), *parameters]))
    match query:
        case Text():
            return numbers & _having(connection, query, numbers)
        case Not(part=part):
            return numbers - _meeting(connection, part, numbers, now)
        case And(parts=parts):
            for part in parts:
                numbers = _meeting(connection, part, numbers, now)
            return numbers
        case Or(parts=parts):
            found: frozenset[int] = frozenset()
            for part in parts:
                found |= _meeting(connection, part, numbers - found, now)
            return found
        case _:
            raise AssertionError(query)


def _having(connection: sqlite3.Connection, text: Text, numbers: Collection[int]) -> set[int]:
    """The letters that have a phrase: those of these numbers, and perhaps others."""
    sql, parameters = in_texts(text)
    within = f"SELECT group_concat(rowid) FROM ({sql}) WHERE rowid BETWEEN ? AND ?"
    found = {one for ends in _runs(numbers) for one in _numbers(connection, within, [*parameters, *ends])}
    if text.where is Where.ANYWHERE:
        sql = "SELECT group_concat(l.seq) FROM json_each(?) CROSS JOIN letters l ON l.seq = value WHERE instr(l.words, ?)"
        found.update(_numbers(connection, sql, [listed(numbers), needle(text.phrase)]))
    return found


def _runs(numbers: Collection[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of numbers that lie close to each other."""
    first = last = None
    for number in sorted(numbers):
        if first is None or last is None:
            first = number
        elif number - last > _GAP:
            yield first, last
            first = number
        last = number
    if first is not None and last is not None:
        yield first, last


def _numbers(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> list[int]:
    """Numbers that come in one step of SQLite, separated by commas."""
    (told,) = connection.execute(sql, parameters).fetchone()
    return [int(number) for number in str(told).split(",")] if told is not None else []
