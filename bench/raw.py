"""The limit on SQLite: the same schema, made by redrive's own migrations, under bare statements as durable as ours.

Rows are encoded in advance and nothing is checked, decoded or answered: this is what a transaction costs by itself.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import redrive
from redrive.backends.sqlite import table as package
from redrive.model.letter import Letter
from redrive.model.stored import content

_INSERT = f"INSERT INTO letters ({', '.join(package._COLUMNS)}) VALUES ({', '.join('?' * len(package._COLUMNS))})"

Encoded = tuple[tuple[Any, ...], bytes]
"""What stands in a letter's first row, but for its number; and its content."""


def encoded(letters: Iterable[Letter]) -> list[Encoded]:
    """The rows as the package writes them."""
    return [(package._row(0, letter)[1:], content(letter)) for letter in letters]


def write(connection: sqlite3.Connection, rows: Sequence[Encoded]) -> int:
    """Both rows of each letter, within a transaction; the number of the first."""
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'letters'").fetchone()
    connection.executemany(_INSERT, [(seq, *row) for seq, (row, _) in enumerate(rows, last + 1)])
    contents = [(seq, data) for seq, (_, data) in enumerate(rows, last + 1)]
    connection.executemany("INSERT INTO contents (seq, data) VALUES (?, ?)", contents)
    return int(last) + 1


def install(path: Path) -> None:
    """An empty store."""
    asyncio.run(_open_and_close(path))


def connect(path: Path) -> sqlite3.Connection:
    """A connection as durable as the package's own, to a store that exists."""
    connection = sqlite3.connect(path, isolation_level=None)
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    assert mode == "wal", mode
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def insert(connection: sqlite3.Connection, rows: Sequence[Encoded], *, batch: int) -> None:
    """All rows, so many in each transaction."""
    for start in range(0, len(rows), batch):
        connection.execute("BEGIN IMMEDIATE")
        write(connection, rows[start : start + batch])
        connection.execute("COMMIT")


async def _open_and_close(path: Path) -> None:
    async with redrive.open(f"sqlite:{path}") as dlq:
        await dlq.letters.check()
