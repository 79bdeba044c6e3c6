"""The transactions that a handler and its receipt share, for each driver. Receipts are in a table of their own, `redrive_receipts`.

- SQLite has one writer: whoever has begun is alone, so that the receipt is looked for first and written last.
- PostgreSQL has many: the receipt is written first, and whoever comes with the same waits for the end of that transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from inspect import isawaitable
from typing import Any, NamedTuple, Protocol

from redrive.model.errors import BadSettings
from redrive.model.evidence import names_of
from redrive.ports.inline import is_inline, pause

_SQLITE_TABLE = """
    CREATE TABLE IF NOT EXISTS redrive_receipts (
        handler TEXT NOT NULL, key TEXT NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (handler, key)
    )
"""
_POSTGRES_TABLE = """
    CREATE TABLE IF NOT EXISTS redrive_receipts (
        handler text NOT NULL, key text NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (handler, key)
    )
"""
_INDEX = "CREATE INDEX IF NOT EXISTS redrive_receipts_by_time ON redrive_receipts (handler, at)"

_LOOK_SECONDS = 0.005
_MISSING_TABLE = "42P01"
_MADE_MEANWHILE = ("42P07", "42710", "23505")
"""Whoever makes the same table at the same instant is told one of these."""

IN_USE = (
    "the connection is in a transaction already, and a receipt needs one of its own; end that before, or give redrive.once"
    " a function that gives a connection for each call"
)

_ENDED = "'{handler}' ended the transaction that its receipt belongs to; leave commit and rollback to redrive.once"


class Transaction(Protocol):
    """On one connection, for one delivery. Errors are the driver's own: it is the handler's database."""

    async def begin(self, handler: str, key: str) -> bool:
        """Begin, with the receipt; False: there is one already, and nothing was begun."""
        ...

    async def commit(self) -> None: ...

    async def rollback(self, error: BaseException) -> None: ...

    async def sweep(self, handler: str, keep: timedelta) -> None:
        """Forget some of a handler's receipts that are older, in a transaction of its own."""
        ...


class SqliteTransaction:
    """On a connection of `sqlite3`, in any of its modes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._receipt: tuple[str, str] = ("", "")
        self._is_always_open = getattr(connection, "autocommit", None) is False
        """Since Python 3.12 a connection may be one that is never outside of a transaction."""

    async def begin(self, handler: str, key: str) -> bool:
        self._receipt = handler, key
        await self._lock()
        try:
            self._do(_SQLITE_TABLE)
            self._do(_INDEX)
            if self._do("SELECT 1 FROM redrive_receipts WHERE handler = ? AND key = ?", self._receipt).fetchone() is not None:
                self._undo()
                return False
            # Gone when the handler ends the transaction, even if another is open then.
            self._do("SAVEPOINT redrive_once")
        except BaseException:
            self._undo()
            raise
        return True

    async def commit(self) -> None:
        try:
            self._do("RELEASE redrive_once")
        except Exception as error:
            raise BadSettings(_ENDED.format(handler=self._receipt[0])) from error
        self._do("INSERT INTO redrive_receipts (handler, key) VALUES (?, ?)", self._receipt)
        self._end()

    async def rollback(self, error: BaseException) -> None:
        self._undo()

    async def sweep(self, handler: str, keep: timedelta) -> None:
        await self._lock()
        try:
            self._do(
                "DELETE FROM redrive_receipts WHERE rowid IN"
                " (SELECT rowid FROM redrive_receipts WHERE handler = ? AND at < datetime('now', ?) LIMIT 1000)",
                (handler, f"-{keep.total_seconds():.0f} seconds"),
            )
            self._end()
        except BaseException:
            self._undo()
            raise

    async def _lock(self) -> None:
        """Begin as the one writer. No event loop waits for others: whoever has the lock may need that very loop to go on."""
        if self._connection.in_transaction and not self._is_always_open:
            raise BadSettings(IN_USE)
        if is_inline():
            self._take_lock()
            return
        (patience,) = self._do("PRAGMA busy_timeout").fetchone()
        deadline = time.monotonic() + patience / 1000
        self._do("PRAGMA busy_timeout = 0")
        try:
            while not self._is_locked(is_last=time.monotonic() > deadline):
                await pause(_LOOK_SECONDS)
        finally:
            self._do(f"PRAGMA busy_timeout = {int(patience)}")

    def _is_locked(self, *, is_last: bool) -> bool:
        try:
            self._take_lock()
        except Exception as error:
            if is_last or getattr(error, "sqlite_errorname", "") not in ("SQLITE_BUSY", "SQLITE_LOCKED"):
                raise
            return False
        return True

    def _take_lock(self) -> None:
        if not self._is_always_open:
            self._do("BEGIN IMMEDIATE")
            return
        # Its transaction has begun without the lock, which any statement takes that may write.
        try:
            self._do("DELETE FROM redrive_receipts WHERE 0")
        except Exception as error:
            if "no such table" not in str(error):
                raise
            self._do(_SQLITE_TABLE)

    def _do(self, statement: str, values: tuple[str, ...] = ()) -> Any:
        cursor = self._connection.cursor()
        # The user's own would give rows of another kind.
        cursor.row_factory = None
        return cursor.execute(statement, values)

    def _end(self) -> None:
        if self._is_always_open:
            self._connection.commit()
        else:
            self._do("COMMIT")

    def _undo(self) -> None:
        if self._is_always_open:
            self._connection.rollback()
        elif self._connection.in_transaction:
            self._do("ROLLBACK")


class _Driver(Protocol):
    """What differs between the drivers of PostgreSQL."""

    @property
    def marks(self) -> tuple[str, str]:
        """Its placeholders."""
        ...

    @property
    def is_in_transaction(self) -> bool: ...

    async def begin(self) -> None: ...

    async def end(self, error: BaseException | None) -> None:
        """Commit, or with an error roll back; once, whatever comes of it."""
        ...

    async def do(self, statement: str, *values: Any) -> int:
        """How many rows it changed."""
        ...


class Psycopg:
    """psycopg 3, whose blocking and async connections have the same verbs."""

    marks = ("%s", "%s")

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transaction: Any = None

    @property
    def is_in_transaction(self) -> bool:
        return bool(self._connection.info.transaction_status)

    async def begin(self) -> None:
        self._transaction = self._connection.transaction()
        enter = getattr(self._transaction, "__aenter__", None) or self._transaction.__enter__
        await _awaited(enter())

    async def end(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            return
        leave = getattr(transaction, "__aexit__", None) or transaction.__exit__
        await _awaited(leave(*((type(error), error, error.__traceback__) if error is not None else (None, None, None))))

    async def do(self, statement: str, *values: Any) -> int:
        cursor = await _awaited(self._connection.execute(statement, values))
        return int(cursor.rowcount)


class Asyncpg:
    """asyncpg, with or without its pool."""

    marks = ("$1", "$2")

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transaction: Any = None

    @property
    def is_in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def begin(self) -> None:
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    async def end(self, error: BaseException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            await (transaction.commit() if error is None else transaction.rollback())

    async def do(self, statement: str, *values: Any) -> int:
        told = await self._connection.execute(statement, *values)
        last = told.rpartition(" ")[2]
        return int(last) if last.isdecimal() else 0


class PostgresTransaction:
    """On a connection to PostgreSQL, of either driver."""

    def __init__(self, driver: _Driver) -> None:
        self._driver = driver
        self._handler = ""

    async def begin(self, handler: str, key: str) -> bool:
        if self._driver.is_in_transaction:
            raise BadSettings(IN_USE)
        self._handler = handler
        try:
            return await self._begun(handler, key)
        except Exception as error:
            if getattr(error, "sqlstate", None) != _MISSING_TABLE:
                raise
        await self._make()
        return await self._begun(handler, key)

    async def commit(self) -> None:
        if not self._driver.is_in_transaction:
            raise BadSettings(_ENDED.format(handler=self._handler))
        await self._driver.end(None)

    async def rollback(self, error: BaseException) -> None:
        await self._driver.end(error)

    async def sweep(self, handler: str, keep: timedelta) -> None:
        first, second = self._driver.marks
        await self._alone(
            "DELETE FROM redrive_receipts WHERE (handler, key) IN (SELECT handler, key FROM redrive_receipts"
            f" WHERE handler = {first} AND at < now() - make_interval(secs => {second}) LIMIT 1000 FOR UPDATE SKIP LOCKED)",
            handler,
            keep.total_seconds(),
        )

    async def _begun(self, handler: str, key: str) -> bool:
        first, second = self._driver.marks
        await self._driver.begin()
        try:
            is_ours = await self._driver.do(
                f"INSERT INTO redrive_receipts (handler, key) VALUES ({first}, {second}) ON CONFLICT DO NOTHING", handler, key
            )
        except BaseException as error:
            await self.rollback(error)
            raise
        if not is_ours:
            await self._driver.end(None)
        return bool(is_ours)

    async def _make(self) -> None:
        try:
            await self._alone(_POSTGRES_TABLE)
            await self._alone(_INDEX)
        except Exception as error:
            if getattr(error, "sqlstate", None) not in _MADE_MEANWHILE:
                raise

    async def _alone(self, statement: str, *values: Any) -> None:
        """One statement in a transaction of its own."""
        await self._driver.begin()
        try:
            await self._driver.do(statement, *values)
        except BaseException as error:
            await self.rollback(error)
            raise
        await self._driver.end(None)


class Kind(NamedTuple):
    """How a driver's connections are used."""

    transaction: Callable[[Any], Transaction]
    is_async: bool | None
    """None: by plain and by coroutine functions."""


def _psycopg(connection: Any) -> Transaction:
    return PostgresTransaction(Psycopg(connection))


def _asyncpg(connection: Any) -> Transaction:
    return PostgresTransaction(Asyncpg(connection))


KINDS = {
    "sqlite3.Connection": Kind(SqliteTransaction, None),
    "psycopg.Connection": Kind(_psycopg, False),
    "psycopg.AsyncConnection": Kind(_psycopg, True),
    "asyncpg.connection.Connection": Kind(_asyncpg, True),
    "asyncpg.pool.PoolConnectionProxy": Kind(_asyncpg, True),
}
"""By the qualified name of the connection's type, or of one that it is made from."""


def kind_of(connection: Any) -> Kind | None:
    """How this connection is used; None: it is none that is known."""
    return next((KINDS[name] for name in names_of(type(connection)) if name in KINDS), None)


async def _awaited(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer
