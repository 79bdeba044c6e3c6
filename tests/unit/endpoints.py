"""Endpoints that letters are posted to, which answer, hang, cut and go away as a test says; and what came of it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID

from redrive import Message
from redrive.backends.http import HttpTransport
from redrive.model.operation import Delivery, Refused, Unknown
from redrive.ports.transport import Transport
from redrive.wiring import transport
from tests.unit.receivers import PATIENCE_SECONDS

ID = UUID("771f0b35-31f5-8a7f-b05b-7a4b9079a70d")
MARKS = (("redrive-id", str(ID).encode()), ("redrive-generation", b"3"), ("redrive-source-id", b"order-17"))
ONE = Message(body=b'{"order": 17}', content_type="application/json", id="order-17", headers=MARKS)


def sent(to: str | Transport, *messages: Message) -> list[Delivery]:
    target = transport(to) if isinstance(to, str) else to
    return asyncio.run(target.send(messages or (ONE,)))


def refused(to: str | Transport, *messages: Message) -> Refused:
    (delivery,) = sent(to, *messages)
    assert isinstance(delivery, Refused)
    assert "\n" not in delivery.failure.message
    return delivery


def unknown(to: str | Transport) -> str:
    (delivery,) = sent(to)
    assert isinstance(delivery, Unknown)
    return delivery.reason


def impatient(url: str, seconds: float = 1) -> HttpTransport:
    return HttpTransport(url, timeout=timedelta(seconds=seconds))


@contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does with each connection what it is told, and then ends it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE_SECONDS)
                talk(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/orders"
    finally:
        # A listener that is only closed leaves whoever waits on it asleep.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE_SECONDS)


def read_request(connection: socket.socket) -> bytes:
    """One request whole; empty when there is none."""
    taken = b""
    while b"\r\n\r\n" not in taken:
        if not (piece := connection.recv(65_536)):
            return taken
        taken += piece
    head, _, body = taken.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def answering(answer: bytes) -> Callable[[socket.socket], None]:
    def talk(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    return talk


class Keeping(ThreadingHTTPServer):
    """Keeps connections, counts them, and how many requests are there at a time."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, gather: int = 1) -> None:
        """Answers each request once `gather` of them are there at the same time, or were."""
        self.connections = 0
        self.bodies: list[bytes] = []
        self.most = self._now = 0
        self._gather = gather
        self._lock = threading.Condition()
        super().__init__(("127.0.0.1", 0), self._handler())

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = server.taken(body)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, format: str, *args: object) -> None: ...

        return Handler

    def taken(self, body: bytes) -> int:
        with self._lock:
            self.bodies.append(body)
            self._now += 1
            self.most = max(self.most, self._now)
            self._lock.notify_all()
            assert self._lock.wait_for(lambda: self.most >= self._gather, PATIENCE_SECONDS)
            self._now -= 1
        return 500 if body == b"bad" else 200


@contextmanager
def keeping(gather: int = 1) -> Iterator[tuple[Keeping, str]]:
    with Keeping(gather) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}/orders"
        finally:
            server.shutdown()
            thread.join()
