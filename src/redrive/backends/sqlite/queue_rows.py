"""Rows of items: many are read, written or deleted in one step."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import msgpack

from redrive.backends.sqlite.rows import filled, marks, pieces, rounded, write_rows
from redrive.model.item import PRIORITIES, Item, Place
from redrive.model.ksuid import LENGTH

SCHEDULED, BEHIND, DYING = PRIORITIES, PRIORITIES + 1, PRIORITIES + 2
_PLACES = [Place.READY] * PRIORITIES + [Place.SCHEDULED, Place.BEHIND, Place.DYING]
_COLUMNS = ("part", "lane", "id", "created_us", "data", "due_us", "source", "key")
_MOST = 512

encoded = msgpack.Encoder().encode
"""What a row holds as `data`: an item's values from `message_id` to `story`, `why` and `failure`. No `message_id`: the row's own id."""
Values = tuple[str, str, int, int, int, int, int, bytes, str, str, str, str, int, bytes, str, bytes]
_decoded = msgpack.Decoder(list[Values]).decode

_RANGE = "part = ? AND lane = ? AND id BETWEEN ? AND ?"


class Inserts:
    """Rows that are written together, before anybody reads."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._plain: dict[tuple[int, int, int], list[Any]] = {}
        self._rows: list[tuple[Any, ...]] = []

    def plain(self, part: int, lane: int, created_us: int) -> list[Any]:
        """Where to add id and data, in turns, of items about which nothing else is asked for."""
        key = (part, lane, created_us)
        found = self._plain.get(key)
        if found is None:
            found = self._plain[key] = []
        return found

    def add(self, part: int, lane: int, item: Item, due_us: int = 0) -> None:
        key = item.key if lane == BEHIND else None
        self._rows.append((part, lane, item.id, item.created_us, stored(item), due_us or None, item.source_id or None, key))

    def flush(self) -> None:
        if self._plain:
            for shared, values in self._plain.items():
                for start in range(0, len(values), 2 * _MOST):
                    piece = values[start : start + 2 * _MOST]
                    size = rounded(len(piece) // 2)
                    self._connection.execute(_inserts(size), [*shared, *piece, *[None] * (2 * size - len(piece))])
            self._plain = {}
        if self._rows:
            write_rows(self._connection, "queue_items", _COLUMNS, self._rows, "")
            self._rows = []


@lru_cache(maxsize=64)
def _inserts(size: int) -> str:
    values = ",".join(["(?,?)"] * size)
    return (
        "INSERT INTO queue_items (part, lane, created_us, id, data)"
        f" SELECT ?1, ?2, ?3, column1, column2 FROM (VALUES {values}) WHERE column1 IS NOT NULL"
    )


def stored(item: Item) -> bytes:
    return encoded((
        item.message_id, item.source_id, item.attempts, item.created_us, item.updated_us, item.enqueue_us, item.expire_us,
        item.payload, item.reference, item.encoding, item.kind, item.key, item.priority, item.story, item.why,
        item.failure,
    ))  # fmt: skip


def read_values(
    connection: sqlite3.Connection, condition: str, parameters: Sequence[Any], lanes: str = "''"
) -> tuple[list[str], list[Values], str]:
    """Ids and values of the rows that meet the condition, in its order, in one step; and what `lanes` makes of all their lanes."""
    query = f"SELECT id, lane, data FROM queue_items WHERE {condition}"
    try:
        ids, numbers, joined = connection.execute(
            f"SELECT group_concat(id, ''), {lanes}, CAST(group_concat(CAST(data AS TEXT), '') AS BLOB) FROM ({query})",
            parameters,
        ).fetchone()
    except sqlite3.DataError:
        # Together they are larger than SQLite's largest blob: then row by row.
        rows = connection.execute(query, parameters).fetchall()
        values = [_decoded(_header(1) + row[2])[0] for row in rows]
        return [row[0] for row in rows], values, ",".join(str(row[1]) for row in rows)
    if ids is None:
        return [], [], ""
    cut = [ids[start : start + LENGTH] for start in range(0, len(ids), LENGTH)]
    # Each is whole in itself, so together they are a list without its head.
    return cut, _decoded(_header(len(cut)) + joined), numbers


def _header(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def read(connection: sqlite3.Connection, condition: str, parameters: Sequence[Any]) -> list[tuple[int, Item]]:
    """The items that meet the condition, with their lanes. What is leased is not known here: it is as it was before."""
    ids, values, joined = read_values(connection, condition, parameters, "group_concat(lane)")
    lanes = map(int, joined.split(",") if ids else ())
    return [(lane, item_of(id, row, _PLACES[lane])) for id, row, lane in zip(ids, values, lanes, strict=True)]


def item_of(id: str, row: Values, place: Place) -> Item:
    *values, why, failure = row
    values[0] = values[0] or id
    return Item(id, *values, place, 0, why, failure)  # type: ignore[arg-type, call-arg]  # a list forgets what is where


def read_listed(connection: sqlite3.Connection, part: int, lanes: Sequence[int], ids: Sequence[str]) -> list[tuple[int, Item]]:
    """Those of these ids that are there."""
    found = []
    for some in pieces(ids):
        condition = f"part = ? AND lane IN ({','.join(map(str, lanes))}) AND id IN ({marks(len(some))})"
        found += read(connection, condition, [part, *filled(some)])
    return found


class Sum(NamedTuple):
    """Ids that are there, in order, and when they were created: seconds and microseconds, each summed up."""

    ids: str
    seconds: int
    micros: int


_CREATED = "coalesce(sum(created_us / 1000000), 0), coalesce(sum(created_us % 1000000), 0)"
_SUM = f"SELECT coalesce(group_concat(id, ''), ''), {_CREATED}"


def count_range(connection: sqlite3.Connection, part: int, lane: int, first: str, last: str) -> tuple[int, int, int]:
    """How many there are, and when they were created: seconds and microseconds, each summed up."""
    sql = f"SELECT count(*), {_CREATED} FROM queue_items WHERE {_RANGE}"
    count, seconds, micros = connection.execute(sql, [part, lane, first, last]).fetchone()
    return count, seconds, micros


def sum_range(connection: sqlite3.Connection, part: int, lane: int, first: str, last: str) -> Sum:
    sql = f"{_SUM} FROM (SELECT id, created_us FROM queue_items WHERE {_RANGE} ORDER BY id)"
    return Sum(*connection.execute(sql, [part, lane, first, last]).fetchone())


def sum_listed(connection: sqlite3.Connection, part: int, lane: int, ids: Sequence[str]) -> Sum:
    """The ids must be sorted."""
    found, seconds, micros = "", 0, 0
    for some in pieces(ids):
        condition = f"part = ? AND lane = ? AND id IN ({marks(len(some))})"
        sql = f"{_SUM} FROM (SELECT id, created_us FROM queue_items WHERE {condition} ORDER BY id)"
        piece = Sum(*connection.execute(sql, [part, lane, *filled(some)]).fetchone())
        found, seconds, micros = found + piece.ids, seconds + piece.seconds, micros + piece.micros
    return Sum(found, seconds, micros)


def delete_range(connection: sqlite3.Connection, part: int, lane: int, first: str, last: str) -> None:
    connection.execute(f"DELETE FROM queue_items WHERE {_RANGE}", [part, lane, first, last])


def delete_listed(connection: sqlite3.Connection, part: int, lane: int, ids: Sequence[str]) -> None:
    for some in pieces(ids):
        sql = f"DELETE FROM queue_items WHERE part = ? AND lane = ? AND id IN ({marks(len(some))})"
        connection.execute(sql, [part, lane, *filled(some)])
