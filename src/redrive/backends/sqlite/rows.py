"""Statements over many rows at once: one step of SQLite, and one release of the GIL, for hundreds of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from redrive.model.letter import Letter

Key = TypeVar("Key")

_MOST = 512
_MOST_KEYS = 8192


class Numbered(NamedTuple):
    """A letter as it is stored, with the number of its rows."""

    seq: int
    letter: Letter


def write_rows(
    connection: sqlite3.Connection, table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]], conflict: str
) -> int:
    """Insert rows whose first value is never NULL; `conflict` says what becomes of those that are there already.

    Answers with how many rows were changed.
    """
    changed = 0
    for piece, count in _padded(rows, len(columns)):
        size = len(piece) // len(columns)
        changed += connection.execute(_inserts(table, columns, size, size > count, conflict), piece).rowcount
    return changed


def update_rows(connection: sqlite3.Connection, table: str, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    """Set `columns` where `seq` is the first value of a row."""
    for piece, _ in _padded(rows, 1 + len(columns)):
        connection.execute(_changes(table, columns, len(piece) // (1 + len(columns))), piece)


def count_rows(connection: sqlite3.Connection, query: str, rows: Sequence[tuple[Any, ...]], parameters: Sequence[Any]) -> int:
    """How many of these rows, which the query has as `{values}` before its own parameters, it counts."""
    count = 0
    for piece, _ in _padded(rows, width := len(rows[0]) if rows else 1):
        (some,) = connection.execute(_counts(query, width, len(piece) // width), [*piece, *parameters]).fetchone()
        count += some
    return count


def _padded(rows: Sequence[tuple[Any, ...]], width: int) -> Iterator[tuple[list[Any], int]]:
    """The rows' values in pieces of a few sizes, so that few statements are prepared; what is missing is NULL.

    With each piece, how many rows it really has.
    """
    for start in range(0, len(rows), _MOST):
        piece = rows[start : start + _MOST]
        values = [value for row in piece for value in row]
        yield values + [None] * (width * (rounded(len(piece)) - len(piece))), len(piece)


def read_all(connection: sqlite3.Connection, query: str, parameters: Sequence[Any]) -> list[tuple[str, bytes]]:
    """What `query` gives as columns `note` (text without commas) and `data` (a blob), in its order, in one step.

    The blobs are joined inside SQLite (as text, which SQLite neither checks nor changes in a UTF-8 database) and cut here.
    """
    try:
        notes, joined = connection.execute(
            f"SELECT group_concat(length(data) || ' ' || note), CAST(group_concat(CAST(data AS TEXT), '') AS BLOB) FROM ({query})",
            parameters,
        ).fetchone()
    except sqlite3.DataError:
        # Together they are larger than SQLite's largest blob: then row by row.
        return [(str(note), data) for note, data in connection.execute(query, parameters)]
    if notes is None:
        return []
    rows, start = [], 0
    for entry in notes.split(","):
        size, _, note = entry.partition(" ")
        end = start + int(size)
        rows.append((note, joined[start:end]))
        start = end
    return rows


def pieces(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    """The keys in lists that one statement can take."""
    for start in range(0, len(keys), _MOST_KEYS):
        yield keys[start : start + _MOST_KEYS]


def listed(numbers: Collection[int]) -> str:
    """Numbers as one value, for `json_each`."""
    return f"[{','.join(map(str, numbers))}]"


def marks(count: int) -> str:
    """Placeholders for a list of `count` values, rounded up so that few statements are prepared; see `filled`."""
    return _marks(rounded(count))


def filled(values: Collection[Any]) -> list[Any]:
    """The values, with NULLs (which equal nothing) up to the number of `marks`."""
    return [*values, *[None] * (rounded(len(values)) - len(values))]


def rounded(count: int) -> int:
    """The next power of two, or of the seven steps on the way there: at most an eighth too many."""
    step = max(1, (1 << max(count - 1, 0).bit_length()) >> 4)
    return max(1, -(-count // step) * step)


@lru_cache(maxsize=32)
def _marks(count: int) -> str:
    return ",".join("?" * count)


@lru_cache(maxsize=512)
def _inserts(table: str, columns: tuple[str, ...], size: int, is_padded: bool, conflict: str) -> str:
    row = "(" + ",".join("?" * len(columns)) + ")"
    values = f"VALUES {','.join([row] * size)}"
    if is_padded:
        values = f"SELECT * FROM ({values}) WHERE column1 IS NOT NULL"
    return f"INSERT INTO {table} ({', '.join(columns)}) {values} {conflict}"


@lru_cache(maxsize=512)
def _counts(query: str, width: int, size: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return query.format(values=f"VALUES {','.join([row] * size)}")


@lru_cache(maxsize=512)
def _changes(table: str, columns: tuple[str, ...], size: int) -> str:
    row = "(" + ",".join("?" * (1 + len(columns))) + ")"
    changes = ", ".join(f"{name} = v.column{number}" for number, name in enumerate(columns, 2))
    # OR FAIL: a failing statement need not be undone by itself, for its whole transaction is; so SQLite keeps no copies.
    return f"UPDATE OR FAIL {table} SET {changes} FROM (VALUES {','.join([row] * size)}) v WHERE {table}.seq = v.column1"
