"""Those who are told: an HTTP receiver that answers as a test says, and a notifier that remembers."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct

from redrive.engine.metrics import Metric, NullMeter
from redrive.model.alert import Alert, alerts_of
from redrive.model.errors import NotNotified
from redrive.testing.kit.samples import START, letter

PATIENCE_SECONDS = 30


class Answer(Struct, frozen=True, kw_only=True):
    """What the receiver does with one request."""

    status: int = 202
    headers: Mapping[str, str] = {}
    body: bytes = b""
    hangs: bool = False
    closes: bool = False
    drips: bool = False
    """Begins an answer and never ends it."""


class Request(Struct, frozen=True, kw_only=True):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Who goes away early is no news."""


class Receiver:
    """Listens on 127.0.0.1; gives its answers one after another, the last one for ever."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answers = list(answers) or [Answer()]
        self.requests: list[Request] = []
        self._released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = _Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def url(self, path: str = "/hook", *, login: str = "") -> str:
        return f"http://{login}127.0.0.1:{self.port}{path}"

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append(Request(method=handler.command, path=handler.path, headers=headers, body=body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.hangs:
            self._released.wait(PATIENCE_SECONDS)
            return
        if answer.closes:
            return
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body) + (1000 if answer.drips else 0)))
        handler.end_headers()
        handler.wfile.write(answer.body)
        if answer.drips:
            handler.wfile.flush()
            self._released.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def receiving(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    receiver = Receiver(*answers, tls=tls)
    try:
        yield receiver
    finally:
        receiver.close()


class Memory:
    """A `Notifier` that remembers every call; raises what it is told to, one error after another."""

    def __init__(self, *errors: Exception | None, name: str = "memory") -> None:
        self.name = name
        self.calls: list[list[Alert]] = []
        self.times: list[float] = []
        self.delivered: list[Alert] = []
        self.is_closed = False
        self._errors = list(errors)

    async def notify(self, alerts: Sequence[Alert]) -> None:
        self.calls.append(list(alerts))
        self.times.append(asyncio.get_running_loop().time())
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            named = error.alerts if isinstance(error, NotNotified) and error.alerts else {alert.id for alert in alerts}
            self.delivered += [alert for alert in alerts if alert.id not in named]
            raise error
        self.delivered += alerts

    async def close(self) -> None:
        self.is_closed = True

    def has_told(self, number: int) -> bool:
        return len(self.delivered) == number


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self, at: datetime = START) -> None:
        self.now = at

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by


class Counts(NullMeter):
    """Remembers what was counted, by outcome."""

    def __init__(self) -> None:
        self.outcomes: dict[str, float] = {}

    def add(self, metric: Metric, amount: float, /, **labels: str) -> None:
        assert metric.name == "redrive_alerts_total"
        self.outcomes[labels["outcome"]] = self.outcomes.get(labels["outcome"], 0) + amount


def an_alert(name: str = "1", *, at: datetime | None = None, **changes: Any) -> Alert:
    (alert,) = alerts_of([letter(name, **changes)], at=at or datetime(2025, 1, 1, tzinfo=UTC))
    return alert
