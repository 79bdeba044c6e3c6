"""Talking HTTP/1.1 to a server of queues, over a few connections that are kept."""

from __future__ import annotations

import asyncio
import os
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import Struct

from redrive.model.errors import AnswerLost, BadSettings, StoreUnavailable

_KEPT = 16
_LINE_LIMIT = 64 * 1024 * 1024


class Heard(Struct, frozen=True):
    status: int
    body: bytes


class _Wire(Struct):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Talk:
    """Posts to one server. Each request has a connection to itself while it waits."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSettings(f"'{endpoint}' is no address of a server of queues; it looks like http://127.0.0.1:2319")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._named = f"{parts.hostname}:{self._port}"
        self._idle: list[_Wire] = []

    async def post(self, path: str, body: bytes, *, seconds: float) -> Heard:
        """Ask, and hear the answer. `AnswerLost` when it may have been done, `StoreUnavailable` when nobody was reached."""
        try:
            async with asyncio.timeout(seconds):
                return await self._post(path, body)
        except TimeoutError:
            raise AnswerLost(f"{self._named} did not answer within {seconds:g} s") from None

    async def _post(self, path: str, body: bytes) -> Heard:
        wire = await self._wire()
        head = (
            f"POST {self._path}{path} HTTP/1.1\r\nHost: {self._named}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        is_kept = False
        try:
            wire.writer.write(head.encode() + body)
            await wire.writer.drain()
            heard, is_kept = await _answer(wire.reader)
        except (OSError, EOFError, ValueError) as error:
            raise AnswerLost(f"{self._named} broke off without an answer: {type(error).__name__}") from error
        finally:
            if is_kept and len(self._idle) < _KEPT:
                self._idle.append(wire)
            else:
                wire.writer.close()
        return heard

    async def _wire(self) -> _Wire:
        while self._idle:
            wire = self._idle.pop()
            if not wire.reader.at_eof() and not wire.writer.is_closing():
                return wire
            wire.writer.close()
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=_LINE_LIMIT)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise StoreUnavailable(f"{self._named} cannot be reached: {why}") from error
        return _Wire(reader, writer)

    async def close(self) -> None:
        for wire in self._idle:
            wire.writer.close()
            with suppress(OSError):
                await wire.writer.wait_closed()
        self._idle.clear()


async def _answer(reader: asyncio.StreamReader) -> tuple[Heard, bool]:
    """The answer, and whether the connection stays."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    version, status, *_ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    else:
        return Heard(int(status), await reader.read()), False
    return Heard(int(status), body), version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        continue
    return bytes(body)
