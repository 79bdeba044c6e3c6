"""JSON to an HTTP endpoint: one request, one judgement. Shared by the backends that notify.

The standard library is enough for that. Redirects are not followed, since what is signed or keyed is meant for one place;
and the answer is read only as far as a person would read it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from msgspec import Struct
from msgspec.structs import replace

from redrive.model.alert import Alert
from redrive.model.errors import BadSettings, NotifierUnavailable, NotNotified
from redrive.model.hint import hint
from redrive.ports.aside import aside
from redrive.version import __version__

_ANSWER_LIMIT = 65_536
_SAID_LIMIT = 300
_LONGEST_WAIT = timedelta(minutes=5)
"""However long a target asks for."""
_TRANSIENT = {408, 425, 429}
_PLACE = re.compile(
    r"(?:\[(?P<inner>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]*))"
    r"(?::(?P<port>[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])?)?"
)


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where to post, and how."""

    host: str
    port: int | None
    path: str
    """With its query, as it goes over the wire."""
    is_tls: bool
    name: str
    """For people: nothing secret in it."""
    user: str | None = None
    password: str | None = None
    timeout: timedelta = timedelta(seconds=10)
    """For the whole request."""
    ca: str | None = None
    """A file of certificates to trust, instead of the system's."""
    secrets: tuple[str, ...] = ()
    """What must not be told, should the target repeat it."""

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def hiding(self, *secrets: str) -> Endpoint:
        """This endpoint, which will not tell these either."""
        return replace(self, secrets=(*self.secrets, *secrets))


async def post_each(
    endpoint: Endpoint,
    alerts: Sequence[Alert],
    request: Callable[[Alert], tuple[bytes, Mapping[str, str]]],
    told: Callable[[bytes], str] = lambda answer: answer.decode("utf-8", "replace"),
) -> None:
    """One request an alert. One that is refused keeps no other back; once the target cannot be reached, no more are tried.

    `request` makes body and headers; `told` reads from an answer that refuses why it does.
    """
    refused: dict[Any, NotNotified] = {}
    for number, alert in enumerate(alerts):
        try:
            await post(endpoint, *request(alert), told=told)
        except NotifierUnavailable as error:
            left = [*refused, *(one.id for one in alerts[number:])]
            raise NotifierUnavailable(str(error), alerts=left, after=error.after) from error
        except NotNotified as error:
            refused[alert.id] = error
    if refused:
        first = next(iter(refused.values()))
        raise NotNotified(str(first), alerts=refused) from first


async def post(endpoint: Endpoint, body: bytes, headers: Mapping[str, str], *, told: Callable[[bytes], str]) -> None:
    """Post once. Raises `NotifierUnavailable` when another try may help (408, 425, 429, 5xx, no answer), else `NotNotified`."""
    call = _Call(endpoint, body, headers)
    seconds = endpoint.timeout.total_seconds()
    try:
        async with asyncio.timeout(seconds):
            answer = await aside(call.made)
    except TimeoutError as error:
        raise NotifierUnavailable(f"{endpoint.name} did not answer within {seconds:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise NotNotified(f"the certificate of {endpoint.name} is not trusted: {error.verify_message}") from error
    except (OSError, http.client.HTTPException) as error:
        raise NotifierUnavailable(f"{endpoint.name} cannot be reached: {_reason(error)}") from error
    finally:
        call.cut()
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        raise NotNotified(f"{endpoint.name} answered {answer.status}; redirects are not followed, so name the place itself")
    said = _legible(told(answer.body), endpoint)
    sentence = f"{endpoint.name} answered {answer.status}" + (f": {said}" if said else "")
    if answer.status in _TRANSIENT or answer.status >= 500:
        raise NotifierUnavailable(sentence, after=_wanted_wait(answer.retry_after))
    raise NotNotified(sentence)


class _Answer(Struct, frozen=True):
    status: int
    retry_after: str | None
    body: bytes


class _Call:
    """One request, made in a thread; `cut` ends it from another."""

    def __init__(self, endpoint: Endpoint, body: bytes, headers: Mapping[str, str]) -> None:
        self._endpoint = endpoint
        self._body = body
        self._headers = {"Content-Type": "application/json", "User-Agent": f"redrive/{__version__}", "Connection": "close"}
        if endpoint.user is not None:
            pair = f"{endpoint.user}:{endpoint.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._headers |= headers
        self._socket: socket.socket | None = None

    def made(self) -> _Answer:
        connection = self._connection()
        try:
            connection.connect()
            self._socket = connection.sock
            connection.request("POST", self._endpoint.path, body=self._body, headers=self._headers)
            response = connection.getresponse()
            said = b""
            if response.status >= 400:
                # The status has said enough, whatever becomes of the words.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    said = response.read(_ANSWER_LIMIT)
            return _Answer(response.status, response.getheader("Retry-After"), said)
        finally:
            connection.close()

    def cut(self) -> None:
        """End it, if it goes on: a target that sends a byte now and then would hold its thread for ever."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _connection(self) -> http.client.HTTPConnection:
        one = self._endpoint
        seconds = one.timeout.total_seconds()
        if not one.is_tls:
            return http.client.HTTPConnection(one.host, one.port, timeout=seconds)
        try:
            context = ssl.create_default_context(cafile=one.ca)
        except OSError as error:
            raise NotNotified(f"cannot read the certificates {one.ca} for {one.name}: {_reason(error)}") from error
        return http.client.HTTPSConnection(one.host, one.port, timeout=seconds, context=context)


def _reason(error: BaseException) -> str:
    strerror = getattr(error, "strerror", None)
    return strerror or str(error) or type(error).__name__


def _legible(said: str, endpoint: Endpoint) -> str:
    """What a target said, on one line, short, and without what it may have repeated."""
    for secret in sorted(endpoint.secrets, key=len, reverse=True):
        said = said.replace(secret, "***")
    line = " ".join(said.split())
    line = "".join(sign if sign.isprintable() else "�" for sign in line)
    return line if len(line) <= _SAID_LIMIT else line[: _SAID_LIMIT - 1] + "…"


def _wanted_wait(text: str | None) -> timedelta | None:
    """How long `Retry-After` asks for, within bounds: seconds, or a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        wait = timedelta(seconds=min(int(text.strip()[:9]), _LONGEST_WAIT.total_seconds()))
    else:
        try:
            until = parsedate_to_datetime(text)
        except ValueError:
            return None
        wait = (until if until.tzinfo else until.replace(tzinfo=UTC)) - datetime.now(UTC)
    return min(max(wait, timedelta()), _LONGEST_WAIT)


class Location(Struct, frozen=True, kw_only=True):
    """The parts of `//[user[:password]@]host[:port]…`."""

    user: str | None
    password: str | None
    host: str
    port: int | None
    rest: str
    """Path, query and fragment."""


def location_of(text: str, *, example: str) -> Location:
    """What a URL says behind its scheme. One that cannot be read is not repeated, since what is wrong may be in a secret."""
    unreadable = BadSettings(f"this target of alerts cannot be read; write it like {example}, with / ? # @ : in a secret escaped")
    if not text.startswith("//") or not text.isprintable() or " " in text:
        raise unreadable
    authority = re.match(r"[^/?#]*", text[2:])
    assert authority is not None
    login, at, place = authority[0].rpartition("@")
    user, _, password = login.partition(":")
    found = _PLACE.fullmatch(place)
    if found is None or not _is_name(host := found["inner"] or found["host"]):
        raise unreadable
    return Location(
        user=unquote(user) if at else None,
        password=unquote(password) or None,
        host=host,
        port=int(found["port"]) if found["port"] else None,
        rest=text[2 + authority.end() :],
    )


def _is_name(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def shown(host: str, port: int | None) -> str:
    """A host and port for people."""
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


class Options(Struct):
    """What may be said behind an endpoint's own address."""

    timeout: timedelta = timedelta(seconds=10)
    ca: str | None = None
    secret: str | None = None
    scheme: str = "https"


def options(text: str, known: Iterable[str], *, what: str) -> Options:
    """The options in `name=value&…`; `BadSettings` for one that there is not."""
    known, found = tuple(known), Options()
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name not in known:
            raise BadSettings(f"{what} has no option '{name[:40]}'; {hint(name, known)}")
        match name:
            case "timeout":
                found.timeout = _seconds(value)
            case "scheme" if value not in ("http", "https"):
                raise BadSettings(f"scheme={value[:40]} must be http or https")
            case "secret" if not value:
                raise BadSettings(f"the secret of {what} is empty; leave it out, or give one")
            case _:
                setattr(found, name, value)
    return found


def _seconds(text: str) -> timedelta:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 60:
        raise BadSettings(f"timeout={text[:40]} must be a number of seconds from above 0 to 60, e.g. timeout=10")
    return timedelta(seconds=seconds)
