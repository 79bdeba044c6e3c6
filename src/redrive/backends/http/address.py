"""The address of an endpoint: `http[s]://[user:password@]host[:port]/path?query#timeout=30&ca=…`."""

from __future__ import annotations

import base64
import re
from datetime import timedelta
from urllib.parse import parse_qsl, quote, unquote

from redrive.backends.posting import Endpoint, Location, location_of, options
from redrive.model.errors import BadSettings

TIMEOUT = timedelta(seconds=30)
EXAMPLE = "http://127.0.0.1:9000/orders"
_MASK = "***"
_SECRET = re.compile(
    r"((?:^|[?&;])[\w.-]*(?:password|passwd|pwd|token|secret|signature|api_?key)[\w.-]*=)([^&;]+)", re.IGNORECASE
)


def endpoint_of(url: str) -> Endpoint:
    """Where to post, and how. What is behind the # stays here; all else goes over the wire as it is written."""
    scheme, _, location = url.partition(":")
    place = _place(location)
    wire, hash, given = place.rest.partition("#")
    said = options(given, ("timeout", "ca"), what="a target's URL")
    path = wire if wire.startswith("/") else f"/{wire}"
    return Endpoint(
        host=place.host,
        port=place.port,
        # What is escaped stays so; what is not ASCII becomes so.
        path=quote(path, safe="%/?:@!$&'()*+,;=~-._[]|^`{}\\\"<>"),
        is_tls=scheme == "https",
        name=_name(url.removesuffix(place.rest), wire) + hash + given,
        user=place.user,
        password=place.password,
        timeout=said.timeout if "timeout" in dict(parse_qsl(given)) else TIMEOUT,
        ca=said.ca,
        secrets=_secrets(place, wire),
    )


def _place(location: str) -> Location:
    if _MASK in location:
        raise BadSettings("this target's login was not kept, only where it is; name the target again as it was first given")
    try:
        place = location_of(location, example=EXAMPLE)
    except BadSettings:
        # It is not repeated: what is wrong may be in a secret.
        raise BadSettings(f"this target cannot be read; write it like {EXAMPLE}, with / ? # @ : in a login escaped") from None
    if not place.host:
        raise BadSettings(f"a target's URL names a host: {EXAMPLE}")
    return place


def _name(server: str, wire: str) -> str:
    """The URL as people may see it: without its login, and without parameters that are named like a secret."""
    scheme, _, authority = server.partition("//")
    login, at, host = authority.rpartition("@")
    return f"{scheme}//{_MASK if login else ''}{at}{host}{without_secrets(wire)}"


def without_secrets(url: str) -> str:
    """A URL without the values of parameters that are named like a secret."""
    return _SECRET.sub(lambda found: found[1] + _MASK, url)


def _secrets(place: Location, wire: str) -> tuple[str, ...]:
    """What the endpoint may repeat and nobody must read: the login, also as it is sent, and what the query holds."""
    found = [value for _, raw in _SECRET.findall(wire) for value in (raw, unquote(raw))]
    if place.user is not None:
        # A user without a password is a key.
        found += [place.password or place.user, login_of(place.user, place.password)]
    return tuple(one for one in dict.fromkeys(found) if one)


def login_of(user: str, password: str | None) -> str:
    """A login as `Authorization: Basic` has it."""
    return base64.b64encode(f"{user}:{password or ''}".encode()).decode()
