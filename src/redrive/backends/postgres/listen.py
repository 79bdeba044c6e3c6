"""Hearing from others that letters were planned: LISTEN and NOTIFY, on a connection that no pooler may take away."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg

from redrive.backends.postgres.database import Database
from redrive.backends.postgres.errors import LOST
from redrive.backends.remote.loops import PerLoop
from redrive.model.errors import RedriveError
from redrive.ports.waiting import LOOK_EVERY

_CONNECT_SECONDS = 10.0


class _Ear:
    """One connection that listens, and what it heard last."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.heard = asyncio.Event()

    def note(self, *_: object) -> None:
        self.heard.set()


class Bell:
    """Wakes those who wait on any host. A notice may be missed: whoever waits looks for itself from time to time."""

    def __init__(self, database: Database, listen: str) -> None:
        self._database = database
        self._listen = listen
        self._channel = f"redrive_{database.schema}"
        self._ears = PerLoop(f"PostgreSQL at {database.address.name}", open=self._opened, close=_closed)

    async def ring(self) -> None:
        """Say that letters were planned. They are, so nobody need hear that this failed."""
        with suppress(RedriveError):
            await self._database.read("SELECT pg_notify($1, '')", self._channel)

    async def rest(self, seconds: float) -> None:
        """Pass the time until it rings, at most so long; by the clock alone where nothing can be heard."""
        try:
            ear = await self._ears.get()
            if ear.connection.is_closed():
                await self._ears.renew()
                ear = await self._ears.get()
        except (asyncpg.PostgresError, *LOST):
            await asyncio.sleep(min(seconds, LOOK_EVERY.total_seconds()))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ear.heard.wait()
        ear.heard.clear()

    async def close(self) -> None:
        await self._ears.close()

    async def _opened(self) -> _Ear:
        connection = await asyncpg.connect(
            self._listen,
            timeout=_CONNECT_SECONDS,
            command_timeout=_CONNECT_SECONDS,
            statement_cache_size=0,
            server_settings={"application_name": "redrive"},
        )
        ear = _Ear(connection)
        connection.add_termination_listener(ear.note)
        await connection.add_listener(self._channel, ear.note)
        return ear


async def _closed(ear: _Ear) -> None:
    with suppress(asyncpg.PostgresError, *LOST):
        await ear.connection.close(timeout=_CONNECT_SECONDS)
