"""Requests to OpenSearch and their answers, and what it means when there is none.

Below the transport of opensearch-py, on its connections: the transport repeats by itself what it thinks has failed, and does
not tell whether a request had been sent. Here it is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import timedelta
from io import BytesIO
from typing import Any

import aiohttp
from msgspec import DecodeError, json
from opensearchpy import AIOHttpConnection, AsyncOpenSearch
from opensearchpy.exceptions import ConnectionError as DriverError

from redrive.backends.opensearch.address import Address
from redrive.backends.opensearch.errors import error_in, reason_of, refused, unreachable
from redrive.model.errors import AnswerLost, StoreError, StoreUnavailable

_MOST_AT_ONCE = 32
_MOST_AT_A_TIME = 2**20
_EVERY_STATUS = range(300, 600)
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_JSON = {"content-type": "application/json"}
_LINES = {"content-type": "application/x-ndjson"}
_was_sent: ContextVar[list[bool] | None] = ContextVar("was_sent", default=None)
"""A list of one that says whether the request of this task has got a connection; in it, since it is set from within."""


class _Connection(AIOHttpConnection):
    """A connection that tells when a request is about to be sent, and leaves it to us to say what went wrong."""

    def log_request_fail(self, *_: Any, **__: Any) -> None:
        """What failed is raised in redrive's words."""

    def _raise_warnings(self, *_: Any) -> None:
        """A server's advice to its administrator must not turn what was done into a failure."""

    async def _create_aiohttp_session(self) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_sent)
        trace.on_connection_reuseconn.append(_sent)
        connector = aiohttp.TCPConnector(limit=_MOST_AT_ONCE, ssl=self._ssl_context or False)
        self.session = aiohttp.ClientSession(
            headers=self.headers,
            skip_auto_headers=("accept", "accept-encoding"),
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=connector,
            trace_configs=[trace],
        )
        self.loop = asyncio.get_running_loop()


async def _sent(*_: object) -> None:
    if (sent := _was_sent.get()) is not None:
        sent[0] = True


class Client:
    """The nodes of a cluster as one event loop sees them."""

    def __init__(self, driver: AsyncOpenSearch, name: str, timeout: timedelta, *, is_ours: bool) -> None:
        self.name = name
        self.seconds = timeout.total_seconds()
        self._driver = driver
        self._is_ours = is_ours
        self._used: set[Any] = set()
        """Connections; the driver forgets to close those that it takes to be dead."""

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        writes: bool = False,
        seconds: float | None = None,
    ) -> Any:
        """The answer, decoded; what the server refuses is raised. `body` as bytes is taken to be lines of JSON.

        `writes`: without an answer, something may have been done.
        """
        status, answer = await self.ask(method, path, body, params=params, writes=writes, seconds=seconds)
        if status >= 300:
            raise refused(status, error_in(answer), self.name)
        return answer

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        writes: bool = False,
        seconds: float | None = None,
    ) -> tuple[int, Any]:
        """The status and the answer, whatever the server says."""
        sent = [False]
        token = _was_sent.set(sent)
        try:
            status, text = await self._asked(method, path, body, params, seconds or self.seconds)
        except DriverError as error:
            cause = error.info if isinstance(error.info, BaseException) else error
            raise self._lost(
                cause, was_sent=sent[0] if self._is_ours else not isinstance(cause, _UNSENT), writes=writes
            ) from error
        finally:
            _was_sent.reset(token)
        try:
            return status, json.decode(text) if text else None
        except DecodeError as error:
            if status < 300:
                raise self._lost(error, was_sent=True, writes=writes) from error
            return status, text

    async def close(self) -> None:
        if self._is_ours:
            for connection in self._used:
                await connection.close()
            await self._driver.close()

    async def _asked(
        self, method: str, path: str, body: Any, params: Mapping[str, Any] | None, seconds: float
    ) -> tuple[int, str]:
        transport = self._driver.transport
        # What its own requests begin with; there is no other way past its retries.
        await transport._async_call()  # type: ignore[attr-defined]  # noqa: SLF001 - it is an AsyncTransport
        headers = None if body is None else _LINES if isinstance(body, bytes) else _JSON
        data: Any = body if body is None or isinstance(body, bytes) else json.encode(body)
        if self._is_ours and data is not None and len(data) > _MOST_AT_A_TIME:
            data = BytesIO(data)  # is sent piece by piece, and others get their turn in between
        for _ in range(len(transport.hosts or ()) or 1):
            connection = transport.get_connection()
            self._used.add(connection)
            try:
                status, _, text = await connection.perform_request(
                    method, path, params, data, timeout=seconds, ignore=_EVERY_STATUS, headers=headers
                )
            except DriverError as error:
                failure = error
                transport.mark_dead(connection)
                if not isinstance(error.info, _UNSENT):
                    break
                # Nothing was sent, so that the next node may be asked.
            else:
                transport.connection_pool.mark_live(connection)
                return status, text
        raise failure

    def _lost(self, error: BaseException, *, was_sent: bool, writes: bool) -> StoreError:
        if not was_sent:
            return unreachable(error, self.name)
        if writes:
            return AnswerLost(f"the answer of {self.name} was lost ({reason_of(error)}); it may have been done or not")
        return StoreUnavailable(f"{self.name} did not answer ({reason_of(error)}); try again")


def connected(address: Address) -> Client:
    """A client for this address. Nothing is sent yet."""
    driver = AsyncOpenSearch(
        hosts=[{"host": host, "port": port} for host, port in address.hosts],
        http_auth=(address.username, address.password or "") if address.username else None,
        use_ssl=address.is_tls,
        ca_certs=address.ca if address.is_tls else None,
        connection_class=_Connection,
        max_retries=0,
        retry_on_timeout=False,
        timeout=address.timeout.total_seconds(),
    )
    return Client(driver, address.name, address.timeout, is_ours=True)
