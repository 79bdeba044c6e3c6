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

INSERT = f"INSERT INTO letters ({', '.join(package._COLUMNS)}) VALUES ({', '.join('?' * len(package._COLUMNS))})"


def encoded(letters: Iterable[Letter]) -> list[tuple[Any, ...]]:
    """The rows as the package writes them."""
    return [package._row(letter) for letter in letters]


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


def insert(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], *, batch: int) -> None:
    """All rows, so many in each transaction."""
    for start in range(0, len(rows), batch):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, rows[start : start + batch])
        connection.execute("COMMIT")


async def _open_and_close(path: Path) -> None:
    async with redrive.open(f"sqlite:{path}") as dlq:
        await dlq.letters.check()
