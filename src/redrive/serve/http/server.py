"""Serving a surface on an address until told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable

from redrive.model.errors import BadSettings
from redrive.serve.http.surface import Surface
from redrive.serve.http.wire import Connections, Line

_GRACE_SECONDS = 3.0
_LOOK_SECONDS = 0.02
_BACKLOG = 4096


def bound(listen: str) -> socket.socket:
    """A listening socket for `host:port` (port 0: a free one)."""
    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        raise BadSettings(f"cannot listen on {listen}: {error}; choose another address with --listen 127.0.0.1:PORT") from error


async def serve(
    surface: Surface, listening: socket.socket, *, when_up: Callable[[], None], when_down: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what is under way, within a few seconds. `when_down` is called before that."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    try:
        await serving(surface, listening, stopping, when_up=when_up, when_down=when_down)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def serving(
    surface: Surface,
    listening: socket.socket,
    stopping: asyncio.Event,
    *,
    when_up: Callable[[], None] = lambda: None,
    when_down: Callable[[], None] = lambda: None,
) -> None:
    """Serve until told to stop."""
    connections = Connections()
    server = await asyncio.get_running_loop().create_server(lambda: Line(surface, connections), sock=listening, backlog=_BACKLOG)
    try:
        when_up()
        await stopping.wait()
    finally:
        server.close()
        connections.is_closing = True
        when_down()
        deadline = time.monotonic() + _GRACE_SECONDS
        connections.close()
        while connections.busy and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
            connections.close()
        connections.close(quietly=False)
