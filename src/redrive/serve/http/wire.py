"""HTTP/1.1 on a socket: requests are parsed, answered in their order, and connections kept.

Written here because what stands between a socket and a leased queue is most of its cost: a general server and framework take
several times as long for a request as the queue does. It knows what our surfaces need and no more; whoever wants another server
in front serves `redrive.serve.http.asgi`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, cast

from redrive.model.errors import MissingExtra
from redrive.serve.http.queues import TEXTS
from redrive.serve.http.surface import Reply, Request, Surface

try:
    import httptools
except ImportError as error:
    raise MissingExtra("serving HTTP needs httptools; install it with: pip install 'redrive[http]'") from error

_HEADERS_LIMIT = 65_536
_TOO_LONG = "its headers are too long"
_PIPELINED = 32
"""So many requests of one connection are taken on before their answers are sent."""
_DROPPED_LIMIT = 256 * 1024 * 1024
"""So much of a body that is too large is read and dropped, so that its sender hears why; then the line is cut."""
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {code: text for code, text in TEXTS.items() if code > 449}


class _Stamp:
    """The date of answers, written once a second."""

    second = 0
    line = b""

    def now(self) -> bytes:
        second = int(time.time())
        if second != self.second:
            self.second, self.line = second, f"Date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self.line


_stamp = _Stamp()
_heads: dict[tuple[int, str], bytes] = {}


def _head(status: int, content_type: str) -> bytes:
    known = _heads.get((status, content_type))
    if known is None:
        reason = _REASONS.get(status, "Unknown")
        known = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n".encode()
        _heads[status, content_type] = known
    return known


def _encoded(reply: Reply, *, is_head: bool, is_last: bool) -> bytes:
    parts = [_head(reply.status, reply.content_type), _stamp.now(), b"Content-Length: %d\r\n" % len(reply.body)]
    if reply.allow is not None:
        parts.append(f"Allow: {reply.allow}\r\n".encode())
    if is_last:
        parts.append(b"Connection: close\r\n")
    parts.append(b"\r\n")
    if not is_head:
        parts.append(reply.body)
    return b"".join(parts)


class Connections:
    """All lines that are open."""

    def __init__(self) -> None:
        self.open: set[Line] = set()
        self.is_closing = False

    @property
    def busy(self) -> bool:
        return any(line.is_busy for line in self.open)

    def close(self, *, quietly: bool = True) -> None:
        """Close the lines on which nothing is under way (`quietly`), or all."""
        for line in list(self.open):
            if not (quietly and line.is_busy):
                line.cut()


class Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, surface: Surface, connections: Connections) -> None:
        self._surface = surface
        self._loop = asyncio.get_running_loop()  # asked once: to find out costs a system call
        self._connections = connections
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._answering: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[str, str, Request, bool]] = deque()
        self._is_reading = True
        self._refusal = b""
        """What is said last, behind all answers; then the line is cut."""
        self._again = b""
        """A request that would rather be upgraded, without that wish."""
        self._heads = 0
        self._head_bytes = 0
        self._is_in_head = False
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._begin()

    def _begin(self) -> None:
        """Before each request."""
        self._url = b""
        self._format = ""
        self._accept = ""
        self._framing = b""
        self._body: list[bytes] = []
        self._size = 0
        self._header_bytes = 0
        self._limit = 0
        self._is_too_large = False
        self._is_asked = False

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._answering or self._url)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its bases
        self._connections.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.open.discard(self)
        self._waiting.clear()
        self._may_write.set()
        if self._answering is not None:
            # Nobody is left to hear it: who waits for an item gives up its place.
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        if self._refusal:
            return
        head = self._heads if self._is_in_head else None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            again, self._again = self._again, b""
            if not again:
                self._refuse("this server speaks HTTP/1.1 only")
                return
            self._parser = httptools.HttpRequestParser(self)
            self.data_received(again + data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(str(error.__context__ or error))
        else:
            if self._is_in_head and head == self._heads:
                # The parser keeps a header that does not end, and tells of none.
                self._head_bytes += len(data)
                if self._head_bytes > _HEADERS_LIMIT:
                    self._refuse(_TOO_LONG)

    def _refuse(self, why: str) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        reply = Reply.of({"code": 400, "code_text": "Bad Request", "message": f"this is no HTTP request; {why}"}, status=400)
        self._refusal = _encoded(reply, is_head=False, is_last=True)
        if self._answering is None:
            self._end()

    def _end(self) -> None:
        """Say what is said last."""
        assert self._transport is not None
        self._transport.write(self._refusal)
        self._transport.close()

    def on_message_begin(self) -> None:
        self._heads += 1
        self._head_bytes = 0
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _HEADERS_LIMIT:
            raise ValueError(_TOO_LONG)
        lowered = name.lower()
        if lowered == b"content-type":
            self._format = value.decode("latin-1")
        elif lowered == b"accept":
            self._accept = value.decode("latin-1")
        elif lowered in (b"content-length", b"transfer-encoding"):
            self._framing = b"%b: %b\r\n" % (name, value)
        elif lowered == b"expect" and value.lower() == b"100-continue":
            assert self._transport is not None
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._path = httptools.parse_url(self._url).path.decode("latin-1")
        self._limit = self._surface.limit_of(self._path)

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._limit:
            if not self._is_too_large:
                self._is_too_large = True
                self._body.clear()
                if self._parser.should_keep_alive():
                    # Its sender may never come to an end, and is told at once.
                    self._is_asked = True
                    self._ask(b"")
            if self._size > _DROPPED_LIMIT:
                self.cut()
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        method: bytes = self._parser.get_method()
        is_upgrade = self._parser.should_upgrade()
        if is_upgrade and method != b"CONNECT":
            # The parser has left the body out. Upgrades are an offer, which we do not take: it is read as if there were none.
            line = f"{method.decode()} {self._url.decode('latin-1')} HTTP/{self._parser.get_http_version()}\r\n"
            given = f"{line}Content-Type: {self._format}\r\nAccept: {self._accept}\r\n"
            self._again = given.encode("latin-1") + self._framing + b"\r\n"
        elif not (is_upgrade or self._is_asked):
            self._ask(self._body[0] if len(self._body) == 1 else b"".join(self._body))
        self._begin()

    def _ask(self, body: bytes) -> None:
        """Have a request answered, behind those that came before it."""
        request = Request(format=self._format, body=body, accept=self._accept, is_too_large=self._is_too_large)
        asked = (self._parser.get_method().decode(), self._path, request, self._parser.should_keep_alive())
        if self._answering is None:
            self._answering = self._loop.create_task(self._answer(asked))
            return
        self._waiting.append(asked)
        if len(self._waiting) >= _PIPELINED and self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    async def _answer(self, asked: tuple[str, str, Request, bool]) -> None:
        """Answer this request and all that came behind it, in their order."""
        transport = self._transport
        assert transport is not None
        while True:
            method, path, request, is_kept = asked
            reply = await self._surface.handle(method, path, request)
            is_last = not is_kept or (self._connections.is_closing and not self._waiting)
            transport.write(_encoded(reply, is_head=method == "HEAD", is_last=is_last))
            if is_last:
                self._answering = None
                transport.close()
                return
            if not self._may_write.is_set():
                await self._may_write.wait()
            if not self._waiting:
                self._answering = None
                if self._refusal:
                    self._end()
                return
            asked = self._waiting.popleft()
            if not self._is_reading and len(self._waiting) < _PIPELINED // 2:
                self._is_reading = True
                transport.resume_reading()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.close()
