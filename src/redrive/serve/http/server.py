"""Serving a surface on an address until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator

from redrive.model.errors import BadSettings, MissingExtra
from redrive.serve.http.asgi import asgi
from redrive.serve.http.surface import Surface

try:
    import uvicorn
except ImportError as error:
    raise MissingExtra("serving HTTP needs uvicorn; install it with: pip install 'redrive[http]'") from error

_GRACE_SECONDS = 3


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again when it is done, and the process would not end with 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bound(listen: str) -> socket.socket:
    """A listening socket for `host:port` (port 0: a free one)."""
    host, _, port = listen.rpartition(":")
    try:
        return socket.create_server((host.strip("[]"), int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, ValueError, OverflowError) as error:
        raise BadSettings(f"cannot listen on {listen}: {error}; choose another address with --listen 127.0.0.1:PORT") from error


async def serve(surface: Surface, listening: socket.socket, *, when_up: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM, then finish what is under way, within a few seconds."""
    server = _Server(
        uvicorn.Config(
            asgi(surface),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
    )

    # It reports the requests that a shutdown cuts off as errors of ours; what goes wrong here, the surface logs itself.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    def stop() -> None:
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        when_up()
        await server.serve(sockets=[listening])
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
