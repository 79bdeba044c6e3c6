"""A line to an endpoint: one connection, over which requests go one after another.

What matters is what can be said when it fails: that nothing was sent, or that nobody knows.
"""

from __future__ import annotations

import http.client
import io
import selectors
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from redrive.backends.posting import Endpoint

_KEPT = 4_096
"""Of an answer's body. More of a refusal is not even read."""


class Answer(Struct, frozen=True, kw_only=True):
    """What the endpoint said."""

    status: int
    reason: str = ""
    location: str = ""
    body: bytes = b""
    """Its beginning."""
    is_whole: bool = False
    """The body came to its end. Where it did not, a status that says yes may have been said too early."""


class NotReached(Struct, frozen=True):
    """There was no connection, so nothing was sent."""

    error: Exception


class Lost(Struct, frozen=True):
    """The request had begun, and no answer came; this is what happened instead."""

    how: str


Heard = Answer | NotReached | Lost


class Line:
    """Asks in whatever thread it is called from; `cut` ends that from any other, and says what was heard until then."""

    def __init__(self, endpoint: Endpoint, seconds: float, context: ssl.SSLContext | None) -> None:
        if endpoint.is_tls:
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                endpoint.host, endpoint.port, timeout=seconds, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=seconds)
        self._connection.response_class = _WholeHead
        self._path = endpoint.path
        self._too_late = f"within {seconds:g} s"
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_busy = False
        self._has_begun = False
        self._heard: Answer | None = None
        self.is_cut = False

    def forget(self) -> None:
        """The last request is over. Said before the next one is given to a thread, which may be slow to begin."""
        self._has_begun, self._heard = False, None

    def ask(self, headers: Sequence[tuple[str, str]], body: bytes) -> Heard:
        """Post once, and hear the answer out."""
        with self._lock:
            self._is_busy = True
        try:
            return self._asked(headers, body)
        finally:
            with self._lock:
                self._is_busy = False
                if self.is_cut:
                    self._connection.close()

    def cut(self) -> Heard:
        """End it, whatever is under way; from here on it sends nothing more."""
        with self._lock:
            self.is_cut = True
            if not self._is_busy:
                self._connection.close()
            elif self._socket is not None:
                with suppress(OSError):
                    # Past the encryption, which would wait for the other side.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            if not self._has_begun:
                return self._unconnected()
            return self._heard or Lost(f"did not answer {self._too_late}")

    def _asked(self, headers: Sequence[tuple[str, str]], body: bytes) -> Heard:
        try:
            self._connect()
        except (OSError, UnicodeError) as error:
            self._connection.close()
            return NotReached(error)
        if not self._begins():
            return self._unconnected()
        try:
            self._send(headers, body)
            return self._answer()
        except TimeoutError:
            how = f"did not answer {self._too_late}"
        except Exception as error:
            # Whatever it was, the request had begun.
            how = f"broke off without an answer: {_reason(error)}"
        self._connection.close()
        return Lost(how)

    def _unconnected(self) -> NotReached:
        return NotReached(TimeoutError(f"no connection {self._too_late}"))

    def _connect(self) -> None:
        """Connect, unless there is a connection that the other side has not ended while nobody spoke."""
        if self._connection.sock is not None and _is_quiet(self._connection.sock):
            return
        self._connection.close()
        self._connection.connect()
        self._socket = self._connection.sock

    def _begins(self) -> bool:
        with self._lock:
            self._has_begun = not self.is_cut
            return self._has_begun

    def _send(self, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self._connection.putrequest("POST", self._path, skip_accept_encoding=True)
        for name, value in headers:
            self._connection.putheader(name, value)
        # Who will not read a body through may say so, and close, while it is still being sent: then there is an answer to read.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.endheaders(body)

    def _answer(self) -> Answer:
        response = self._connection.getresponse()
        answer = Answer(status=response.status, reason=response.reason, location=response.getheader("Location") or "")
        self._heard = answer
        is_yes = 200 <= answer.status < 300
        kept, is_whole = b"", False
        try:
            while piece := response.read(_KEPT):
                kept += piece[: _KEPT - len(kept)]
                if not is_yes and len(kept) == _KEPT:
                    break
            is_whole = response.isclosed() and not response.length
        except (OSError, http.client.HTTPException):
            # What was said of it so far is judged by whoever asked.
            is_whole = False
        if not is_whole:
            response.close()
            self._connection.close()
        self._heard = replace(answer, body=kept, is_whole=is_whole)
        return self._heard


class _WholeHead(http.client.HTTPResponse):
    """A response whose head came to its end. The standard library takes the end of a connection for that end, too: so a status
    would stand for an answer that was cut, and its missing length for one that has none."""

    def begin(self) -> None:
        reader = _Reader(self.fp)
        self.fp = cast("io.BufferedReader", reader)
        try:
            super().begin()
        finally:
            self.fp = reader.inner
        if not reader.last_line:
            self.close()
            raise http.client.HTTPException("its head was cut")


class _Reader:
    """Reads for a response, and remembers the last line."""

    last_line = b""

    def __init__(self, inner: io.BufferedReader) -> None:
        self.inner = inner

    def readline(self, limit: int = -1) -> bytes:
        self.last_line = self.inner.readline(limit)
        return self.last_line


def _is_quiet(sock: socket.socket) -> bool:
    """Nothing came while nobody had asked: neither an end nor words for somebody else."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return not selector.select(0)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
