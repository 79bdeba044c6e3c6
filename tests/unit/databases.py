"""Databases that handlers write to, by each driver: what `redrive.once` is given, and what is there afterwards."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import sql

from redrive import Message

DRIVERS = ("sqlite", "psycopg")
ASYNC_DRIVERS = ("sqlite", "psycopg", "asyncpg", "asyncpg-pool")
POSTGRES = pytest.mark.engine("postgres")

BLOCKING = [pytest.param(name, id=name, marks=() if name == "sqlite" else POSTGRES) for name in DRIVERS]
ASYNC = [pytest.param(name, id=name, marks=() if name == "sqlite" else POSTGRES) for name in ASYNC_DRIVERS]


def message(id: str | None = "1", **more: Any) -> Message:
    return Message(body=b"x", id=id, **more)


class Shop:
    """A database with a table of effects, and how each driver writes one."""

    def __init__(self, driver: str, folder: Path) -> None:
        self.driver = driver
        self._path = str(folder / "shop.db")
        self._schema = f"once_{os.getpid()}_{abs(hash(str(folder)))}"
        self.pool: Any = None
        if driver == "sqlite":
            with closing(self.sqlite()) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("CREATE TABLE effects (id TEXT)")
        else:
            with closing(psycopg.connect(self.url, autocommit=True)) as db:
                db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
                db.execute(sql.SQL("CREATE TABLE {}.effects (id text)").format(sql.Identifier(self._schema)))

    @property
    def url(self) -> str:
        return os.environ["REDRIVE_TEST_POSTGRES"]

    @property
    def _options(self) -> str:
        return f"-c search_path={self._schema}"

    def sqlite(self, **more: Any) -> sqlite3.Connection:
        return sqlite3.connect(self._path, **more)

    def connection(self, **more: Any) -> Any:
        """A connection for blocking code."""
        return self.sqlite(**more) if self.driver == "sqlite" else psycopg.connect(self.url, options=self._options, **more)

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """For `redrive.once`, in blocking code."""
        with closing(self.connection()) as db:
            yield db

    async def async_connection(self) -> Any:
        if self.driver == "sqlite":
            return self.sqlite()
        if self.driver == "psycopg":
            return await psycopg.AsyncConnection.connect(self.url, options=self._options)
        return await asyncpg.connect(self.url, server_settings={"search_path": self._schema})

    @asynccontextmanager
    async def _opened_async(self) -> AsyncIterator[Any]:
        db = await self.async_connection()
        try:
            yield db
        finally:
            closed = db.close()
            if closed is not None:
                await closed

    @asynccontextmanager
    async def where(self) -> AsyncIterator[Callable[[], Any]]:
        """For `redrive.once`, in async code."""
        if self.driver != "asyncpg-pool":
            yield self._opened_async
            return
        async with asyncpg.create_pool(self.url, min_size=0, server_settings={"search_path": self._schema}) as pool:
            yield pool.acquire

    def write(self, db: Any, id: str) -> None:
        db.execute(f"INSERT INTO effects VALUES ({'?' if self.driver == 'sqlite' else '%s'})", (id,))

    async def write_async(self, db: Any, id: str) -> None:
        if self.driver == "sqlite":
            self.write(db, id)
        elif self.driver == "psycopg":
            await db.execute("INSERT INTO effects VALUES (%s)", (id,))
        else:
            await db.execute("INSERT INTO effects VALUES ($1)", id)

    def rows(self, table: str = "effects", columns: str = "id") -> list[Any]:
        """What is committed; nothing where there is no such table."""
        with closing(self.connection()) as db:
            try:
                found = db.execute(f"SELECT {columns} FROM {table} ORDER BY 1, {columns}").fetchall()
            except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
                return []
        return [row[0] if len(row) == 1 else tuple(row) for row in found]

    def do(self, statement: str) -> None:
        with closing(self.connection()) as db:
            db.execute(statement)
            db.commit()

    @property
    def receipts(self) -> list[Any]:
        return self.rows("redrive_receipts", "handler, key")

    def drop(self) -> None:
        if self.driver != "sqlite":
            with closing(psycopg.connect(self.url, autocommit=True)) as db:
                db.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self._schema)))
