"""The connections of one event loop to a server. Whoever finds none free takes the first that there is: one that comes free, or a new one.

A new connection is slow at first. The server starts a process for it, which knows neither the tables nor a statement yet: 20 to 50 ms on a busy
machine, where a put takes two. The driver's own pool has whoever finds no connection free wait for all of this, though others come free
every millisecond, and it ends connections that have had many queries. Here they are made aside, and rehearse before anybody is given one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from redrive.backends.postgres.errors import LOST

FAILURES = (asyncpg.PostgresError, *LOST)
_IDLE_SECONDS = 300.0
"""What nobody has used for so long is closed."""
_OPENING_SECONDS = 0.1
"""What takes longer to open, on a line that loses packets, does not keep others from being opened."""
GIVING_UP_SECONDS = 1.0
"""How long a server may take to end what was given up; then the connection is dropped, and the server ends it by itself."""


class Pool:
    """Lends out connections, the one that was used last first. They are opened when they are needed, and closed when they no longer are."""

    def __init__(
        self,
        most: int,
        *,
        open: Callable[[], Awaitable[asyncpg.Connection]],
        rehearse: Callable[[asyncpg.Connection], Awaitable[None]],
        patience_seconds: float,
    ) -> None:
        """At most so many at a time. `rehearse` has a connection do what it will have to do, without changing anything; the first of all is
        needed at once, and does without. `patience_seconds`: how long anybody waits for a connection."""
        self._most = most
        self._open = open
        self._rehearse = rehearse
        self._patience = patience_seconds
        self._loop = asyncio.get_running_loop()
        self._free: deque[tuple[float, asyncpg.Connection]] = deque()
        """Since when; the one that came free last is the last."""
        self._lent: set[asyncpg.Connection] = set()
        self._waiting: deque[tuple[float, asyncio.Future[asyncpg.Connection]]] = deque()
        """Since when; who has waited the longest is the first."""
        self._openings: set[asyncio.Task[None]] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._is_quiet = asyncio.Event()
        """Set when one comes back or an ending is through: for who closes."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._hurrying: asyncio.TimerHandle | None = None
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """Have a connection for a while. Raises one of `FAILURES` when none is to be had."""
        connection = await self._taken()
        try:
            yield connection
        except BaseException:
            # What was asked may have been given up, and still be under way.
            await asyncio.shield(_begun(self._ended(connection), self._endings))
            raise
        else:
            self._back(connection)

    async def close(self) -> None:
        """Let nobody in any more, wait for those who are at work, and close all connections."""
        self._is_closed = True
        for timer in (self._sweeping, self._hurrying):
            if timer is not None:
                timer.cancel()
        for opening in self._openings:
            opening.cancel()
        while (wanted := self._next()) is not None:
            wanted.set_exception(_closed_error())
        while self._lent or self._openings or self._endings:
            self._is_quiet.clear()
            if tasks := self._openings | self._endings:
                await asyncio.wait(tasks)
            elif self._lent:
                await self._is_quiet.wait()
        while self._free:
            await _closed(self._free.pop()[1])

    async def _taken(self) -> asyncpg.Connection:
        if self._is_closed:
            raise _closed_error()
        while self._free:
            _, connection = self._free.pop()
            if not connection.is_closed():
                self._lent.add(connection)
                return connection
        wanted: asyncio.Future[asyncpg.Connection] = self._loop.create_future()
        place = (self._loop.time(), wanted)
        self._waiting.append(place)
        self._grow()
        try:
            async with asyncio.timeout(self._patience):
                return await wanted
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
            elif not wanted.cancelled() and wanted.exception() is None:
                # It came in the very instant in which nobody wanted it any more.
                self._back(wanted.result())
            raise

    def _back(self, connection: asyncpg.Connection) -> None:
        """It is free again, or broken; or within a transaction that was given up, into which all that the next one writes would go."""
        self._lent.discard(connection)
        self._is_quiet.set()
        if connection.is_closed() or connection.is_in_transaction():
            # Of one that is closed, the driver only lets go of all that belongs to it by this.
            connection.terminate()
            self._grow()
        elif (wanted := self._next()) is not None:
            self._lent.add(connection)
            wanted.set_result(connection)
        else:
            self._free.append((self._loop.time(), connection))
            self._sweep_later()

    def _next(self) -> asyncio.Future[asyncpg.Connection] | None:
        """Whoever has waited the longest."""
        while self._waiting:
            _, wanted = self._waiting.popleft()
            if not wanted.done():
                return wanted
        return None

    def _fail(self, error: Exception, began: float) -> None:
        """None could be made. One who has waited since it was begun hears of it, so that all do in the end when nothing comes; who came later
        may well be served, for what failed may be over."""
        while self._waiting and self._waiting[0][0] <= began:
            _, wanted = self._waiting.popleft()
            if not wanted.done():
                wanted.set_exception(error)
                return

    def _grow(self) -> None:
        """Have a connection made while anybody waits, as far as there may be more. One after another: each keeps the server busy for as long as
        ten puts, and made all at once they would hold up those for whom they are made. One that takes long is not waited for."""
        is_at_it = bool(self._openings) and self._hurrying is not None
        if not self._waiting or is_at_it or self._count >= self._most:
            return
        if self._hurrying is not None:
            self._hurrying.cancel()
        self._hurrying = self._loop.call_later(_OPENING_SECONDS, self._hurry)
        opening = _begun(self._opened(is_first=self._count == 0), self._openings)
        opening.add_done_callback(lambda _: self._grow())

    def _hurry(self) -> None:
        """The one that was begun last takes long."""
        self._hurrying = None
        self._grow()

    @property
    def _count(self) -> int:
        return len(self._lent) + len(self._free) + len(self._openings)

    async def _opened(self, *, is_first: bool) -> None:
        began = self._loop.time()
        try:
            connection = await self._open()
            try:
                if not is_first:
                    await self._rehearse(connection)
            except BaseException:
                connection.terminate()
                raise
        except Exception as error:
            self._fail(error, began)
        else:
            self._back(connection)

    async def _ended(self, connection: asyncpg.Connection) -> None:
        """Have the server end what was given up: the driver has asked for that, and any other query waits for it."""
        try:
            async with asyncio.timeout(GIVING_UP_SECONDS):
                await connection.execute("SELECT")
        except FAILURES:
            connection.terminate()
        except BaseException:
            connection.terminate()
            raise
        finally:
            self._back(connection)

    def _sweep_later(self) -> None:
        if self._sweeping is None and self._free and not self._is_closed:
            self._sweeping = self._loop.call_at(self._free[0][0] + _IDLE_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close what nobody has used for long."""
        self._sweeping = None
        while self._free and self._free[0][0] + _IDLE_SECONDS <= self._loop.time():
            _begun(_closed(self._free.popleft()[1]), self._endings)
        self._sweep_later()


def _begun(work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> asyncio.Task[None]:
    """Something that is done aside, and belongs to these until it is done."""
    task = asyncio.get_running_loop().create_task(work)
    among.add(task)
    task.add_done_callback(among.discard)
    return task


async def _closed(connection: asyncpg.Connection) -> None:
    try:
        with suppress(*FAILURES):
            await connection.close(timeout=GIVING_UP_SECONDS)
    finally:
        connection.terminate()


def _closed_error() -> asyncpg.InterfaceError:
    return asyncpg.InterfaceError("the connections were closed")
