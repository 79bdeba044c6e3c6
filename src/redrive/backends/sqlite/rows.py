"""Statements over many rows at once: one step of SQLite, and one release of the GIL, for up to 128 of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

_MOST = 128


def write_rows(connection: sqlite3.Connection, head: str, rows: Sequence[tuple[Any, ...]], tail: str = "") -> None:
    """`head VALUES (…), (…) … tail` for all rows, in pieces of powers of two so that few statements are prepared."""
    start = 0
    while start < len(rows):
        size = min(_MOST, 1 << ((len(rows) - start).bit_length() - 1))
        piece = rows[start : start + size]
        connection.execute(_values(head, len(piece[0]), size, tail), [value for row in piece for value in row])
        start += size


def read_all(connection: sqlite3.Connection, query: str, parameters: Sequence[Any]) -> list[tuple[str, bytes]]:
    """What `query` gives as columns `note` (text without commas) and `data` (a blob), in its order, in one step.

    The blobs are joined inside SQLite (as text, which SQLite neither checks nor changes in a UTF-8 database) and cut here.
    """
    notes, joined = connection.execute(
        f"SELECT group_concat(length(data) || ' ' || note), CAST(group_concat(CAST(data AS TEXT), '') AS BLOB) FROM ({query})",
        parameters,
    ).fetchone()
    if notes is None:
        return []
    rows, start = [], 0
    for entry in notes.split(","):
        size, _, note = entry.partition(" ")
        end = start + int(size)
        rows.append((note, joined[start:end]))
        start = end
    return rows


def marks(count: int) -> str:
    """Placeholders for a list of `count` values, rounded up so that few statements are prepared; see `filled`."""
    return ",".join("?" * _rounded(count))


def filled(values: Sequence[Any]) -> list[Any]:
    """The values, with NULLs (which equal nothing) up to the number of `marks`."""
    return [*values, *[None] * (_rounded(len(values)) - len(values))]


def _rounded(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()


@lru_cache(maxsize=512)
def _values(head: str, width: int, size: int, tail: str) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return f"{head} VALUES {','.join([row] * size)} {tail}"
