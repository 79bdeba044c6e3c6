"""The inside of `redrive.testing.proxy`: connections and what befalls them. All of it happens in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from enum import StrEnum

from msgspec import Struct

HOST = "127.0.0.1"

_CHUNK = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Counts(Struct, frozen=True, kw_only=True):
    """What has come by so far."""

    connections: int
    open: int
    request_bytes: int
    """From clients, and passed to the server."""
    answer_bytes: int
    dropped_bytes: int
    waiting_bytes: int
    """Taken in and not yet passed or dropped, because of a delay or a stall."""


class Way(StrEnum):
    REQUESTS = "requests"
    ANSWERS = "answers"


class Link:
    """One client's connection and the one made to the server for it."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server = socket.socket()
        self.ended: set[Way] = set()
        """Ways whose end was announced: what still comes there is dropped."""
        self.waiting = 0
        for side in (self.client, self.server):
            side.setblocking(False)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def announce_ends(self) -> None:
        for way in self.ended:
            finish(self.client if way is Way.ANSWERS else self.server)


class Links:
    """Every connection, and the faults in force."""

    def __init__(self, server: tuple[str, int], port: int) -> None:
        self._server = server
        self._port = port
        self._listening: socket.socket | None = None
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._partings: set[asyncio.Task[None]] = set()
        self._limits: dict[Way, int | None] = dict.fromkeys(Way)
        self._passed: dict[Way, int] = dict.fromkeys(Way, 0)
        self._connections = self._dropped = 0
        self._delay_seconds = 0.0
        self._delay_ended = asyncio.Event()
        self.is_swallowing = False
        self.flowing = asyncio.Event()
        self.flowing.set()

    async def close(self) -> None:
        self.stop_listening()
        self.cut()
        for parting in self._partings:
            parting.cancel()
        await asyncio.gather(*self._tasks, *self._partings, return_exceptions=True)

    async def parted(self) -> None:
        """Wait until the server has let go of every connection that was cut after so many bytes."""
        while self._partings:
            await asyncio.wait(self._partings)

    def listen(self) -> None:
        if self._listening is None:
            self._listening = bound(self._port)
            self._listening.listen()
            asyncio.get_running_loop().add_reader(self._listening, self._take)

    def stop_listening(self) -> None:
        self._take()
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def cut(self, *, is_awaited: bool = False) -> None:
        """Reset all; where it is to be known when the server has let go of them, it is told of an end instead."""
        self._take()
        for link in list(self._links):
            self._end(link, is_reset=True, is_awaited=is_awaited)

    def limit(self, limits: dict[Way, int | None]) -> None:
        self._limits.update(limits)

    def half_close(self, way: Way) -> None:
        self._take()
        for link in self._links:
            link.ended.add(way)
            link.announce_ends()

    def delay(self, seconds: float) -> None:
        self._delay_seconds = seconds
        self._delay_ended.set()
        self._delay_ended = asyncio.Event()

    def counts(self) -> Counts:
        self._take()
        return Counts(
            connections=self._connections,
            open=len(self._links),
            request_bytes=self._passed[Way.REQUESTS],
            answer_bytes=self._passed[Way.ANSWERS],
            dropped_bytes=self._dropped,
            waiting_bytes=sum(link.waiting for link in self._links),
        )

    def _take(self) -> None:
        """Take all that have connected: for them the connection stands already, so that a fault must meet them too."""
        while self._listening is not None:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            link = Link(client)
            self._connections += 1
            task = self._links[link] = asyncio.get_running_loop().create_task(self._carry(link))
            self._note(task, self._tasks)

    def _end(self, link: Link, *, is_reset: bool = False, is_awaited: bool = False) -> None:
        if (task := self._links.pop(link, None)) is None:
            return
        loop = asyncio.get_running_loop()
        for side in (link.client, link.server):
            # Before the number of the file can belong to another connection.
            loop.remove_reader(side)
            loop.remove_writer(side)
            if is_awaited and side is link.server:
                finish(side)
                self._note(loop.create_task(_let_go(side)), self._partings)
                continue
            if is_reset:
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            side.close()
        task.cancel()

    @staticmethod
    def _note(task: asyncio.Task[None], among: set[asyncio.Task[None]]) -> None:
        among.add(task)
        task.add_done_callback(among.discard)

    async def _carry(self, link: Link) -> None:
        try:
            await asyncio.get_running_loop().sock_connect(link.server, self._server)
            link.announce_ends()
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(link, link.client, link.server, Way.REQUESTS))
                both.create_task(self._pump(link, link.server, link.client, Way.ANSWERS))
        except* OSError:
            self._end(link, is_reset=True)
        else:
            self._end(link)

    async def _pump(self, link: Link, source: socket.socket, sink: socket.socket, way: Way) -> None:
        loop = asyncio.get_running_loop()
        while chunk := await loop.sock_recv(source, _CHUNK):
            link.waiting += len(chunk)
            await self._held_up()
            link.waiting -= len(chunk)
            if way in link.ended or (way is Way.ANSWERS and self.is_swallowing):
                self._dropped += len(chunk)
                continue
            piece, is_last = self._within_limit(chunk, way)
            await loop.sock_sendall(sink, piece)
            self._passed[way] += len(piece)
            if is_last:
                self.cut(is_awaited=True)
                return
        await self._held_up()
        finish(sink)

    def _within_limit(self, chunk: bytes, way: Way) -> tuple[bytes, bool]:
        """What of a chunk may pass, and whether everything is cut then."""
        limit = self._limits[way]
        if limit is None or len(chunk) < limit:
            self._limits[way] = None if limit is None else limit - len(chunk)
            return chunk, False
        self._limits = dict.fromkeys(Way)
        return chunk[:limit], True

    async def _held_up(self) -> None:
        """Wait as long as the faults say."""
        if self._delay_seconds:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._delay_ended.wait(), self._delay_seconds)
        await self.flowing.wait()


def bound(port: int) -> socket.socket:
    """A socket that has the port and does not listen on it, so that whoever connects is refused."""
    found = socket.socket()
    try:
        found.setblocking(False)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((HOST, port))
    except BaseException:
        found.close()
        raise
    return found


async def _let_go(server: socket.socket) -> None:
    """Drop what the server still says, until it has heard that nobody is there any more."""
    with contextlib.closing(server), contextlib.suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(server, _CHUNK):
            pass


def finish(side: socket.socket) -> None:
    """Say that no more will come; who has gone already needs not hear it."""
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_WR)
