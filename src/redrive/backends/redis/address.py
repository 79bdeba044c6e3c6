"""Where a Redis is, and how it is to be used: what its URL says."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from redrive.backends.remote.options import named, number, timeout
from redrive.model.errors import BadSettings
from redrive.model.hint import hint

_EXAMPLE = "redis://localhost:6379/0?prefix=redrive"
_UNREADABLE = f"this Redis URL cannot be read; write / ? # @ : in a password as %2F %3F %23 %40 %3A, like {_EXAMPLE}"
_DATABASES = 2**31
MOST_SHARDS = 256
_TIMEOUT = timedelta(seconds=10)


class Durability(StrEnum):
    """What must survive when the server dies. The server has to give it; this does not switch it on."""

    ALWAYS = "always"
    """All that was confirmed: the append-only file is fsynced before each answer."""
    EVERYSEC = "everysec"
    """All but the last second or two."""
    NONE = "none"
    """Whatever happens to be there."""


class Address(Struct, frozen=True, kw_only=True):
    """A server, or any node of a cluster."""

    host: str = "localhost"
    port: int = 6379
    db: int = 0
    username: str | None = None
    password: str | None = None
    is_tls: bool = False
    ca: str | None = None
    """A file of certificates to trust, instead of the system's."""
    prefix: str = "redrive"
    """All keys begin with it; stores with different prefixes know nothing of each other."""
    durability: Durability = Durability.ALWAYS
    timeout: timedelta = _TIMEOUT
    shards: int | None = None
    """How many a new store gets; None: as many as suit the server. A store that has another number is refused."""

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def name(self) -> str:
        """For people: without the password."""
        return f"redis at {named(self.host, self.port)}"


def parsed(location: str, *, is_tls: bool) -> Address:
    """The address in `//[user[:password]@]host[:port][/db][?option=value…]`."""
    try:
        parts = urlsplit(location)
        port = parts.port
    except ValueError:
        # What was wrong may be part of a password; so it is not told.
        raise BadSettings(_UNREADABLE) from None
    if parts.scheme or not location.startswith("//") or not parts.hostname:
        raise BadSettings(f"a Redis URL names a host: {_EXAMPLE}")
    if "@" in parts.path + parts.query or parts.fragment:
        raise BadSettings(_UNREADABLE)
    options = _options(parts.query)
    return Address(
        host=unquote(parts.hostname),
        port=6379 if port is None else port,
        db=_database(parts.path),
        # A URL like redis://:secret@host gives a password without a user.
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        is_tls=is_tls,
        ca=options.ca,
        prefix=options.prefix,
        durability=options.durability,
        timeout=options.timeout,
        shards=options.shards,
    )


def _database(path: str) -> int:
    text = path.strip("/")
    if not text:
        return 0
    if not text.isdecimal() or int(text) >= _DATABASES:
        raise BadSettings(f"a Redis database is a number, not '{text}': {_EXAMPLE}")
    return int(text)


class _Options(Struct):
    prefix: str = "redrive"
    durability: Durability = Durability.ALWAYS
    timeout: timedelta = _TIMEOUT
    shards: int | None = None
    ca: str | None = None


def _options(query: str) -> _Options:
    options = _Options()
    for name, value in parse_qsl(query, keep_blank_values=True):
        match name:
            case "prefix":
                options.prefix = _prefix(value)
            case "durability":
                options.durability = _durability(value)
            case "timeout":
                options.timeout = timeout(value, usual=_TIMEOUT)
            case "shards":
                options.shards = number(name, value, least=1, most=MOST_SHARDS)
            case "ca":
                options.ca = value
            case _:
                raise BadSettings(f"a Redis URL has no option '{name}'; {hint(name, options.__struct_fields__)}")
    return options


def _prefix(text: str) -> str:
    # Braces would change which part of a key decides where it lies in a cluster.
    if not text or set(text) & set("{}") or not text.isprintable():
        raise BadSettings(f"prefix={text!r} must be printable text without braces, e.g. prefix=redrive")
    return text


def _durability(text: str) -> Durability:
    try:
        return Durability(text)
    except ValueError:
        raise BadSettings(f"there is no durability={text}; {hint(text, Durability)}") from None
