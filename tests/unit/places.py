"""Where real errors come from: a small HTTP server, ports that refuse, keep silent or talk nonsense, and a folder."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    http: str
    """`{http}/503/SomeCode/…` answers with that status and code; `/200/nonsense`, `/200/cut`, `/302/loop` as they say."""
    port: int
    """Of the same server."""
    refusing: int
    silent: int
    babbling: int
    folder: Path


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # head and body in one piece: else each answer waits for an acknowledgement

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, code = ([*self.path.split("?")[0].split("/"), "", ""])[1:3]
        body = json.dumps({"__type": code, "message": "told", "error": {"code": code or None, "message": "told"}}).encode()
        if code == "nonsense":
            body = b"{nonsense"
        elif code == "html":
            body = b"<h1>sorry</h1>"
        self.send_response(int(status))
        self.send_header("Content-Type", "text/html" if code == "html" else "application/json")
        self.send_header("Content-Length", str(len(body) + 1000 * (code == "cut")))
        if code == "gzip":
            self.send_header("Content-Encoding", "gzip")
        if code == "loop":
            self.send_header("Location", self.path)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = code == "cut"

    do_POST = do_PUT = do_GET  # noqa: N815  # the names that http.server asks for

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Visitors that break off are wanted here."""


def _babble(listener: socket.socket) -> None:
    while True:
        try:
            visitor, _ = listener.accept()
        except OSError:
            return
        with visitor, suppress(OSError):
            visitor.sendall(b"\x00what?\r\n\r\n")
            visitor.recv(1000)


@contextmanager
def _serving() -> Iterator[ThreadingHTTPServer]:
    server = _Server(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened(folder: Path) -> Iterator[Place]:
    """The place, until the block ends."""
    with ExitStack() as stack:
        server = stack.enter_context(_serving())
        silent, babbling = (stack.enter_context(closing(socket.create_server(("127.0.0.1", 0)))) for _ in range(2))
        threading.Thread(target=_babble, args=(babbling,), daemon=True).start()
        stack.callback(babbling.shutdown, socket.SHUT_RDWR)
        # Bound, and nobody listens: it is nobody else's meanwhile.
        refusing = stack.enter_context(closing(socket.socket()))
        refusing.bind(("127.0.0.1", 0))
        port = server.server_address[1]
        yield Place(
            http=f"http://127.0.0.1:{port}",
            port=port,
            refusing=refusing.getsockname()[1],
            silent=silent.getsockname()[1],
            babbling=babbling.getsockname()[1],
            folder=folder,
        )
