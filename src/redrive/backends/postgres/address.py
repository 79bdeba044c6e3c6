"""What a PostgreSQL URL says: where the server is, and how this store uses it."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from redrive.model.errors import BadSettings
from redrive.model.hint import hint

_OURS = ("schema", "pool", "timeout", "listen", "partitions")
_DRIVERS = (
    "host", "port", "user", "password", "dbname", "passfile", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl",
    "sslpassword", "target_session_attrs", "krbsrvname", "gsslib",
)  # fmt: skip
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class Address(Struct, frozen=True, kw_only=True):
    """Where, and how."""

    dsn: str
    """For the driver; may hold a password."""
    name: str
    """For people: `host:port/database`, never with a password."""
    schema: str
    pool: int
    """How many connections an event loop opens at most."""
    timeout_seconds: float
    """How long an answer may take."""
    listen: str | None = None
    """A server to hear from when letters come due, past any pooler; None: nobody is woken."""
    is_parted: bool = False
    """`partitions=month`: letters lie in a partition for each month that they came in. Chosen when the schema is made."""


def address(location: str) -> Address:
    """The address in what follows `postgres:`; `BadSettings` in one sentence when it is none."""
    try:
        parts = urlsplit(f"postgres:{location}")
        port = parts.port or 5432
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise BadSettings(f"this is no PostgreSQL URL ({error}); it looks like postgres://user@host:5432/database") from error
    if not parts.netloc and "host" not in options:
        raise BadSettings("postgres: needs a server, e.g. postgres://user@host:5432/database")
    for option in options:
        if option not in _OURS + _DRIVERS:
            raise BadSettings(f"a PostgreSQL URL has no option '{option}'; {hint(option, _OURS + _DRIVERS)}")
    theirs = {name: value for name, value in options.items() if name in _DRIVERS}
    schema = options.get("schema", "redrive")
    if not _SCHEMA.fullmatch(schema):
        raise BadSettings(f"the schema '{schema}' must be small letters, digits and underscores, at most 63 of them")
    database = parts.path.lstrip("/") or options.get("dbname", "")
    return Address(
        dsn=urlunsplit(("postgres", parts.netloc, parts.path, urlencode(theirs), "")),
        name=f"{parts.hostname or options.get('host')}:{port}/{database}",
        schema=schema,
        pool=int(_number(options, "pool", 10, 1, 1000)),
        timeout_seconds=_number(options, "timeout", 30, 0.1, 3600),
        is_parted=_is_parted(options.get("partitions", "no")),
        listen=_listener(parts.username, parts.password, parts.path, theirs, options, parts.netloc),
    )


def _is_parted(partitions: str) -> bool:
    if partitions not in ("no", "month"):
        raise BadSettings(f"partitions={partitions} must be no or month")
    return partitions == "month"


def _number(options: dict[str, str], name: str, default: float, least: float, most: float) -> float:
    try:
        number = float(options.get(name, default))
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise BadSettings(f"{name}={options[name]} must be a number from {least:g} to {most:g}")
    return number


def _listener(
    user: str | None, password: str | None, path: str, theirs: dict[str, str], options: dict[str, str], netloc: str
) -> str | None:
    """`listen=yes` hears at the same server, `listen=host:port` at another that is no pooler."""
    match options.get("listen", "no"):
        case "no":
            return None
        case "yes":
            where = netloc
        case other:
            login = quote(user or "", safe="") + (f":{quote(password, safe='')}" if password else "")
            where = f"{login}@{other}" if login else other
    return urlunsplit(("postgres", where, path, urlencode(theirs), ""))
