"""One Redis server: a command and its answer, and what it means when there is none.

Below redis-py's clients, on its connections: a client repeats by itself what it thinks has failed, and does not tell whether
a command had been sent. Here it is known, for a letter must neither be lost nor be reported as held when nobody knows.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hiredis import pack_command
from redis import exceptions
from redis.asyncio import Connection, ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from redrive.backends.redis.address import Address
from redrive.backends.redis.errors import refused, unreachable
from redrive.backends.remote.options import named
from redrive.model.errors import AnswerLost, StoreUnavailable

_MOST_AT_ONCE = 64
"""Connections to a server. Those that write in the same instant share its fsync."""


class _Telling:
    """A connection that tells when it was reset, so that nothing is sent on it of which nobody knows what became."""

    _writer: asyncio.StreamWriter | None

    @property
    def is_lost(self) -> bool:
        return self._writer is None or self._writer.transport.is_closing()


class _Connection(_Telling, Connection):
    pass


class _TlsConnection(_Telling, SSLConnection):
    pass


class Node:
    """A server as one event loop sees it."""

    def __init__(self, address: Address, host: str, port: int) -> None:
        self.name = f"redis at {named(host, port)}"
        self._seconds = address.timeout.total_seconds()
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)
        options: dict[str, Any] = {"ssl_ca_certs": address.ca} if address.is_tls else {}
        self._pool = ConnectionPool(
            connection_class=_TlsConnection if address.is_tls else _Connection,
            max_connections=2 * _MOST_AT_ONCE,
            host=host,
            port=port,
            db=address.db,
            username=address.username,
            password=address.password,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=None,
            socket_connect_timeout=self._seconds,
            **options,
        )

    async def call(self, *command: bytes | str | int, writes: bool = False, asking: bool = False) -> Any:
        """The server's answer. What it refuses is raised as the driver does; the rest in redrive's words.

        `writes`: without an answer, something may have been done. `asking`: it is in the midst of taking this slot over.
        """
        packed = pack_command(command)  # type: ignore[arg-type]  # its stub forgets that a command has many parts
        was_sent = False
        try:
            async with asyncio.timeout(self._seconds), self._slots:
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]  # of the driver
                try:
                    if connection.is_lost:
                        await connection.disconnect()
                        await connection.connect()
                    if asking:
                        await connection.send_command("ASKING")
                        await connection.read_response()
                    was_sent = True
                    # Not its own `send_command`: that packs thousands of arguments one by one in Python.
                    await connection.send_packed_command(packed)
                    return await connection.read_response()
                finally:
                    await self._pool.release(connection)
        except (exceptions.AuthenticationError, exceptions.BusyLoadingError) as error:
            raise refused(error, self.name) from error
        except exceptions.InvalidResponse as error:
            if writes:
                raise AnswerLost(f"the answer of {self.name} cannot be read ({error}); it may have been done or not") from error
            raise refused(error, self.name) from error
        except (exceptions.ConnectionError, exceptions.TimeoutError, TimeoutError, OSError) as error:
            if not was_sent:
                raise unreachable(error, self.name) from error
            reason = str(error) or f"none came in {self._seconds:g} s"
            if writes:
                raise AnswerLost(f"the answer of {self.name} was lost ({reason}); it may have been done or not") from error
            raise StoreUnavailable(f"{self.name} did not answer ({reason}); try again") from error

    async def close(self) -> None:
        await self._pool.aclose()
