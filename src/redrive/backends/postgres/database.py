"""One PostgreSQL database, shared by letters and desk: a pool of connections for each event loop, opened on first use.

Every verb is one statement, which is one round trip and a transaction of its own, or a short transaction where letters
must be read before it can be decided what becomes of them. Nothing is kept in a session, so that a pooler in transaction
mode may stand in between; then statements are sent unprepared, which takes a second round trip.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

import asyncpg

from redrive.backends.postgres.address import Address
from redrive.backends.postgres.connection import remembering
from redrive.backends.postgres.errors import translated
from redrive.backends.postgres.pool import FAILURES, GIVING_UP_SECONDS, Pool
from redrive.backends.postgres.schema import ensure_current, ensure_queues
from redrive.backends.postgres.tables import Tables
from redrive.backends.remote.clock import ServerClock
from redrive.backends.remote.loops import PerLoop
from redrive.model.errors import StoreNotWritable
from redrive.model.instant import instant

CLOCK = "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint"
"""The server's clock, once a statement."""

IS_READ_ONLY = "pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"
MAY_WRITE = "(SELECT bool_and(has_table_privilege(t, p)) FROM unnest($1::text[]) t, unnest('{INSERT,UPDATE,DELETE}'::text[]) p)"
"""Of the tables that are given. In one call, `has_table_privilege` would be content with any one of several rights."""

_ARRAYS = "SELECT NULL::bytea[], NULL::uuid[], NULL::bigint[], NULL::text[], NULL::bool[], NULL::int[], NULL::smallint[], NULL::float8[]"
"""Of what statements are given many at a time."""
_SETTINGS = {
    # Statements are short: to compile one takes longer than to run it.
    "jit": "off",
    # Pages that a session has to write out itself go to the disk soon, not all at once when the server's checkpoint asks for it: everybody's
    # commits wait for that.
    "backend_flush_after": "256kB",
}
_CONNECT_SECONDS = 10.0

Connection: TypeAlias = asyncpg.Connection


class Database:
    """Where statements go. Safe from several event loops; a forked child connects anew."""

    def __init__(self, address: Address, *, has_queues: bool = False) -> None:
        self.address = address
        self._has_queues = has_queues
        self.schema = address.schema
        self.tables = Tables(address.schema, address.is_parted)
        self.clock = ServerClock()
        self._connect_seconds = min(_CONNECT_SECONDS, address.timeout_seconds)
        self._pools = PerLoop(f"PostgreSQL at {address.name}", open=self._opened, close=Pool.close)
        self._rehearsals: list[tuple[str, Sequence[Any]]] = []

    async def now(self, given: datetime | None) -> datetime:
        """The given instant, else about what the server's clock says: for stamps, never to decide about leases."""
        if given is None:
            await self._pools.get()
        return self.clock.now(given)

    def rehearse(self, sql: str, *args: Any) -> None:
        """Have each connection that is made beside others run this before it is used: a statement of those who must not wait, with arguments
        with which it changes nothing."""
        self._rehearsals.append((sql, args))

    async def read(self, sql: str, *args: Any, is_of_texts: bool = False) -> list[asyncpg.Record]:
        """The rows of a statement that changes nothing. `is_of_texts`: it goes through all texts that have some words. To unpack each text and look
        into it takes ten times as long as to believe the index, and the planner takes both for the same."""
        if not is_of_texts:
            return await self._fetched(sql, args, may_be_done=False)
        async with self.transaction(is_reading=True) as connection:
            await connection.execute("SET LOCAL enable_seqscan = off")
            rows: list[asyncpg.Record] = await connection.fetch(sql, *args)
            return rows

    async def write(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """The rows of a statement that is durable when this returns; `AnswerLost` when nobody can tell."""
        return await self._fetched(sql, args, may_be_done=True)

    @asynccontextmanager
    async def transaction(self, *, is_reading: bool = False) -> AsyncIterator[Connection]:
        """Several statements as one: durable when the block was left, undone when it raises. `is_reading`: there is nothing to undo."""
        async with self._connection() as connection:
            is_ending = False
            try:
                # Not by the driver's transactions: one that is given up while it begins makes those that follow parts of it, and is never ended.
                await connection.execute("BEGIN")
                try:
                    yield connection
                except BaseException:
                    await _undone(connection)
                    raise
                is_ending = True
                await connection.execute("COMMIT")
            except FAILURES as error:
                # Before the commit was sent, a broken connection means that the server undoes it all.
                raise translated(error, self.address.name, may_be_done=is_ending and not is_reading) from error

    async def check(self) -> None:
        """Raise unless the server answers and can be written; changes nothing."""
        ((may_write, is_standby),) = await self.read(f"SELECT {MAY_WRITE}, {IS_READ_ONLY}", written_tables(self.tables))
        if is_standby:
            raise StoreNotWritable(f"{self.address.name} may only be read (a standby?); use the primary")
        if not may_write:
            raise StoreNotWritable(f"the user may not write the letters at {self.address.name}; grant the rights")

    async def connected(self, kind: type[asyncpg.Connection] = asyncpg.Connection) -> asyncpg.Connection:
        """A connection outside the pool, for what is done once. It makes nothing."""
        try:
            return await asyncpg.connect(
                self.address.dsn,
                timeout=self._connect_seconds,
                command_timeout=self.address.timeout_seconds,
                statement_cache_size=0,
                connection_class=kind,
                server_settings={"application_name": "redrive"},
            )
        except FAILURES as error:
            raise translated(error, self.address.name, may_be_done=False) from error

    async def close(self) -> None:
        await self._pools.close()

    async def _fetched(self, sql: str, args: Sequence[Any], *, may_be_done: bool) -> list[asyncpg.Record]:
        async with self._connection() as connection:
            try:
                rows: list[asyncpg.Record] = await connection.fetch(sql, *args)
            except FAILURES as error:
                raise translated(error, self.address.name, may_be_done=may_be_done) from error
            return rows

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        pool = await self._pools.get()
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(pool.connection())
            except FAILURES as error:
                raise translated(error, self.address.name, may_be_done=False) from error
            yield connection

    async def _opened(self) -> Pool:
        kind = remembering()
        try:
            is_pooled, settings = await self._greeted(kind)
        except FAILURES as error:
            raise translated(error, self.address.name, may_be_done=False) from error
        return Pool(
            self.address.pool,
            open=partial(
                asyncpg.connect,
                self.address.dsn,
                timeout=self._connect_seconds,
                command_timeout=self.address.timeout_seconds,
                statement_cache_size=0 if is_pooled else 1000,
                connection_class=kind,
                server_settings={"application_name": "redrive", **settings},
            ),
            rehearse=self._rehearsed,
            patience_seconds=_CONNECT_SECONDS,
        )

    async def _rehearsed(self, connection: Connection) -> None:
        for sql, args in self._rehearsals:
            # What the server refuses, whoever does it in earnest hears of.
            with suppress(asyncpg.PostgresError):
                await connection.fetch(sql, *args)

    async def _greeted(self, kind: type[asyncpg.Connection]) -> tuple[bool, dict[str, str]]:
        """Bring the schema up to date, hear the clock and what arrays are called. Is there a pooler in between? And which settings to ask for:
        a pooler would refuse any, and a server those that it does not know."""
        first = await self.connected(kind)
        try:
            await first.fetch(_ARRAYS)
            known = "ARRAY(SELECT name FROM pg_settings WHERE name = ANY ($1::text[]) AND context = 'user')"
            pid, now, names = await first.fetchrow(f"SELECT pg_backend_pid(), {CLOCK}, {known}", list(_SETTINGS))
            self.clock.heard(instant(now))
            await ensure_current(first, self.tables, self.address.name)
            if self._has_queues:
                await ensure_queues(first, self.tables, self.address.name)
            # A pooler answers the login with a number of its own making.
            is_pooled = bool(pid != first.get_server_pid())
            return is_pooled, {} if is_pooled else {name: _SETTINGS[name] for name in names}
        finally:
            await first.close(timeout=_CONNECT_SECONDS)


_WRITTEN = ("letters", "claims", "changes", "counts", "groups", "group_hours", "texts", "unread")


def written_tables(tables: Tables) -> list[str]:
    """What a user who puts letters must be allowed to write."""
    return [f"{tables.schema}.{name}" for name in (*_WRITTEN, *(("keys",) if tables.is_parted else ()))]


async def _undone(connection: Connection) -> None:
    try:
        async with asyncio.timeout(GIVING_UP_SECONDS):
            await connection.execute("ROLLBACK")
    except FAILURES:
        # A connection that broke is not the pool's any more, and cannot be dropped once more.
        with suppress(asyncpg.InterfaceError):
            connection.terminate()
