"""`HttpTransport`: each message is a POST, and the status of its answer says what became of it.

2xx: the work is done. 202: it was taken, and how it ends is open. Any other status: it was refused. No connection: nothing was
sent, so the letter stays as it was. A request that began and has no whole answer: nobody knows.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
import weakref
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NoReturn, assert_never

from redrive.backends.http.address import endpoint_of, login_of, without_secrets
from redrive.backends.http.headers import headers_of
from redrive.backends.http.line import Answer, Heard, Line, Lost, NotReached
from redrive.backends.posting import Endpoint
from redrive.model.category import Category
from redrive.model.classify import classify
from redrive.model.errors import BadSettings, Unsupported
from redrive.model.evidence import read
from redrive.model.known_codes import by_http
from redrive.model.letter import Failure
from redrive.model.message import Message
from redrive.model.operation import Delivered, Delivery, Refused, Unknown
from redrive.model.told import failure
from redrive.ports.aside import aside
from redrive.ports.transport import Parcel

_SAID_LIMIT = 500
_IDLE_SECONDS = 1.0
_ACCEPTED = 202
_REPR = "text/x-python-repr"
"""What `redrive.engine.extract` calls a body that is evidence only."""


class HttpTransport:
    """Posts messages, `concurrency` of a batch at a time, over connections that the next batch takes over if it comes soon.

    Redirects are not followed, and proxies are not used: what is sent is meant for one place.
    """

    def __init__(self, url: str, *, timeout: timedelta | None = None, concurrency: int = 10) -> None:
        """`timeout` is for each request as a whole, from the connection to the end of its answer; without one, the URL's."""
        self._endpoint = endpoint = endpoint_of(url)
        self.name = endpoint.name
        self._seconds = (timeout or endpoint.timeout).total_seconds()
        self._concurrency = concurrency
        self._context: ssl.SSLContext | None = None
        self._idle: list[tuple[Line, float, int]] = []
        """Lines that nobody uses, since when, and of which process."""
        # A transport has no end of its own: its connections end with it.
        weakref.finalize(self, _end, self._idle)
        self._authorization = None if endpoint.user is None else f"Basic {login_of(endpoint.user, endpoint.password)}"

    def __repr__(self) -> str:
        return f"<HttpTransport {self.name}>"

    async def send(self, messages: Sequence[Message]) -> list[Delivery]:
        if self._endpoint.is_tls and self._context is None:
            self._context = await aside(_trusting, self._endpoint)
        answers: dict[int, Delivery] = {}
        waiting = iter(enumerate(messages))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(messages))):
                group.create_task(self._work(waiting, answers))
        return [answers[number] for number in range(len(messages))]

    async def receive(self, *, limit: int = 10, lease: timedelta = timedelta(seconds=30)) -> list[Parcel]:
        self._cannot("received from")

    async def settle(self, handles: Sequence[str], *, done: bool) -> list[bool]:
        self._cannot("settled")

    async def peek(self, *, limit: int = 10) -> list[Message]:
        self._cannot("peeked into")

    def _cannot(self, verb: str) -> NoReturn:
        raise Unsupported(f"an HTTP endpoint can be sent to, but not {verb}: {self.name}")

    async def _work(self, waiting: Iterator[tuple[int, Message]], answers: dict[int, Delivery]) -> None:
        """Take message after message, as long as there are any, over one connection."""
        line = self._line()
        try:
            for number, message in waiting:
                if line.is_cut:
                    line = self._line()
                answers[number] = await self._posted(message, line)
        except BaseException:
            line.cut()
            raise
        if not line.is_cut:
            self._idle.append((line, time.monotonic(), os.getpid()))

    def _line(self) -> Line:
        while self._idle:
            line, since, process = self._idle.pop()
            # One that is old may be ended by the other side at any moment, and one of a parent is the parent's.
            if time.monotonic() - since < _IDLE_SECONDS and process == os.getpid():
                return line
            line.cut()
        return Line(self._endpoint, self._seconds, self._context)

    async def _posted(self, message: Message, line: Line) -> Delivery:
        if message.content_type == _REPR:
            why = "only the repr of this message was kept, so it cannot be sent back as it was; repair its body first"
            return Refused(failure=failure("redrive.Unsupported", why, Category.PERMANENT), was_reached=False)
        line.forget()
        try:
            async with asyncio.timeout(self._seconds):
                heard = await aside(line.ask, headers_of(message, self._authorization), message.body)
        except TimeoutError:
            heard = line.cut()
        return self._delivery(heard)

    def _delivery(self, heard: Heard) -> Delivery:
        match heard:
            case NotReached(error=error):
                return Refused(failure=self._unreachable(error), was_reached=False)
            case Lost(how=how):
                return Unknown(reason=f"{self.name} {self._legible(how)}; it may have worked")
            case Answer(status=status) if status < 200:
                return Unknown(reason=f"{self.name} answered {status} and nothing after it; it may have worked")
            case Answer(status=status) if status >= 300:
                told = failure(f"http.{status}", self._refusal(heard), by_http(status) or Category.PERMANENT)
                return Refused(failure=told)
            case Answer(is_whole=False, status=status):
                return Unknown(reason=f"{self.name} answered {status}, but its answer broke off; it may have worked")
            case Answer(status=status):
                return Delivered(confirmed=status != _ACCEPTED, result=status)
            case _:
                assert_never(heard)

    def _refusal(self, answer: Answer) -> str:
        sentence = f"{self.name} answered {answer.status} {self._legible(answer.reason)}".rstrip()
        if answer.status < 400:
            place = f" and pointed to {self._legible(without_secrets(answer.location))}" if answer.location else ""
            return f"{sentence}{place}; redirects are not followed, so name the place itself"
        said = self._legible(answer.body.decode("utf-8", "replace"))
        return f"{sentence}: {said}" if said else sentence

    def _unreachable(self, error: Exception) -> Failure:
        kind = type(error)
        reason = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error) or kind.__name__
        message = f"{self.name} cannot be reached: {self._legible(reason)}; nothing was sent"
        return failure(f"{kind.__module__}.{kind.__qualname__}", message, classify(read(error)).category)

    def _legible(self, said: str) -> str:
        """What the endpoint said, on one line, short, and without what it may have repeated."""
        for secret in sorted(self._endpoint.secrets, key=len, reverse=True):
            said = said.replace(secret, "***")
        line = "".join(sign if sign.isprintable() else "�" for sign in " ".join(said.split()))
        return line if len(line) <= _SAID_LIMIT else line[: _SAID_LIMIT - 1] + "…"


def _end(idle: list[tuple[Line, float, int]]) -> None:
    while idle:
        idle.pop()[0].cut()


def _trusting(endpoint: Endpoint) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=endpoint.ca)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadSettings(f"cannot read the certificates {endpoint.ca} for {endpoint.name}: {reason}") from error
