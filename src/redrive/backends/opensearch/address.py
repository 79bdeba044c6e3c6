"""Where an OpenSearch is, and how it is to be used: what its URL says."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from redrive.backends.remote.options import named, number, timeout
from redrive.model.errors import BadSettings
from redrive.model.hint import hint

INDEX = "redrive"
PORT = 9200
_TIMEOUT = timedelta(seconds=30)
_EXAMPLE = "opensearch://localhost:9200/redrive"
_UNREADABLE = f"this OpenSearch URL cannot be read; write / ? # @ : , in a password as %2F %3F %23 %40 %3A %2C, like {_EXAMPLE}"
_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:]+)(?::(\d{1,5}))?")
_MOST_SHARDS = 1024


class Address(Struct, frozen=True, kw_only=True):
    """A cluster, by some of its nodes, and the index in it."""

    hosts: tuple[tuple[str, int], ...] = (("localhost", PORT),)
    index: str = INDEX
    username: str | None = None
    password: str | None = None
    is_tls: bool = False
    ca: str | None = None
    """A file of certificates to trust, instead of the system's."""
    timeout: timedelta = _TIMEOUT
    shards: int = 1
    """Of a new index."""
    replicas: int | None = None
    """Of a new index; None: one where the cluster has several nodes, else none."""

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def name(self) -> str:
        """For people: without the password."""
        return f"index '{self.index}' of OpenSearch at {', '.join(named(*place) for place in self.hosts)}"


def parsed(location: str, *, is_tls: bool) -> Address:
    """The address in `//[user:password@]host[:port][,host2…][/index][?option=value…]`."""
    try:
        parts = urlsplit(location)
    except ValueError:
        # What was wrong may be part of a password; so it is not told.
        raise BadSettings(_UNREADABLE) from None
    if parts.scheme or not location.startswith("//") or not parts.netloc.rpartition("@")[2]:
        raise BadSettings(f"an OpenSearch URL names a host: {_EXAMPLE}")
    if "@" in parts.path + parts.query or parts.fragment:
        raise BadSettings(_UNREADABLE)
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    options = _options(parts.query)
    return Address(
        hosts=tuple(_place(host) for host in hosts.split(",")),
        index=index_name(unquote(parts.path.strip("/")) or INDEX),
        username=unquote(username) if username else None,
        password=unquote(password) if username else None,
        is_tls=is_tls,
        ca=options.ca,
        timeout=options.timeout,
        shards=options.shards,
        replicas=options.replicas,
    )


def index_name(text: str) -> str:
    """A name that OpenSearch takes for an index."""
    if not _INDEX.fullmatch(text):
        raise BadSettings(
            f"'{text}' cannot be an index; its name has small letters, digits, - _ and ., and begins with none of these signs"
        )
    return text


def _place(text: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None or not 0 < int(found[2] or PORT) < 65_536:
        raise BadSettings(_UNREADABLE)
    return unquote(found[1].strip("[]")), int(found[2] or PORT)


class _Options(Struct):
    timeout: timedelta = _TIMEOUT
    shards: int = 1
    replicas: int | None = None
    ca: str | None = None


def _options(query: str) -> _Options:
    options = _Options()
    for name, value in parse_qsl(query, keep_blank_values=True):
        match name:
            case "timeout":
                options.timeout = timeout(value, usual=_TIMEOUT)
            case "shards":
                options.shards = number(name, value, least=1, most=_MOST_SHARDS)
            case "replicas":
                options.replicas = number(name, value, least=0, most=100)
            case "ca":
                options.ca = value
            case _:
                raise BadSettings(f"an OpenSearch URL has no option '{name}'; {hint(name, options.__struct_fields__)}")
    return options
