"""What an exception tells about itself, read off it without trusting it: `read` is what `model.classify` decides on."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from redrive.model.classify import CAUSES_READ, Evidence

_MESSAGE_READ = 8_192
_NOTES_READ = 20
_BASES_READ = 64
_TEXT_READ = 200
"""Characters kept of a name or a code."""

_OWN_NUMBERS = ("pymongo.", "smtplib.", "websockets.", "redrive.")
"""Libraries whose integer `code` is no HTTP status."""

_CONFLUENT = re.compile(r"KafkaError\{code=(\w{1,60}),")

_Kind = TypeVar("_Kind")


def read(error: BaseException) -> Evidence:
    """The evidence that an exception and what it came from give.

    Never raises, whatever the exception's own methods do (only a `KeyboardInterrupt` or `SystemExit` that comes in the
    middle goes through). Of a group, the first member counts as what it came from.
    """
    evidence: Evidence | None = None
    for link in reversed(_chain(error)):
        evidence = _read_one(link, evidence)
    assert evidence is not None
    return evidence


def _read_one(error: BaseException, cause: Evidence | None) -> Evidence:
    names = _names(error)
    message = _message(error)
    if _is_plain(error):
        number = _integer(_peek(error, "errno")) if issubclass(type(error), OSError) else None
        return Evidence(names=names, message=message, errno=number, cause=cause)
    response = _peek(error, "response")
    return Evidence(
        names=names,
        message=message,
        http_status=_http_status(error, response, names),
        grpc_status=_grpc_status(error, names),
        errno=_integer(_peek(error, "errno")) if issubclass(type(error), OSError) else None,
        code=_code(error, response, names, message),
        cause=cause,
    )


_TELLING = frozenset(
    [
        "response",
        "status_code",
        "status",
        "http_status",
        "resp",
        "code",
        "grpc_status_code",
        "sqlstate",
        "pgcode",
        "sqlite_errorname",
        "smtp_code",
        "orig",
        "reason",
    ]
)
_dict_of = BaseException.__dict__["__dict__"].__get__
_HEAP_TYPE = 1 << 9


def _is_plain(error: BaseException) -> bool:
    """Has the error none of the attributes that are asked for? Most have none, and asking for each is what costs."""
    try:
        return _is_plain_kind(type(error)) and _TELLING.isdisjoint(_dict_of(error))  # type: ignore[arg-type]  # as in _names
    except Exception:
        return False


@lru_cache(maxsize=512)
def _is_plain_kind(kind: type) -> bool:
    for base in type.__dict__["__mro__"].__get__(kind):
        own = type.__dict__["__dict__"].__get__(base)
        has_own_ways = base.__flags__ & _HEAP_TYPE and not {"__getattr__", "__getattribute__"}.isdisjoint(own)
        if has_own_ways or not _TELLING.isdisjoint(own):
            return False
    return not _name_of(kind).startswith(("cimpl.", "confluent_kafka."))


def _chain(error: BaseException) -> list[BaseException]:
    """The error, then what it came from; a circle ends where it began."""
    chain: list[BaseException] = []
    seen = set[int]()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(chain) < CAUSES_READ:
        seen.add(id(current))
        chain.append(current)
        current = _behind(current)
    return chain


def _behind(error: BaseException) -> BaseException | None:
    if issubclass(type(error), BaseExceptionGroup):
        members = _peek(error, "exceptions")
        if type(members) in (tuple, list) and members and (first := _as(members[0], BaseException)) is not None:
            return first
    if (cause := _as(_peek(error, "__cause__"), BaseException)) is not None:
        return cause
    if _peek(error, "__suppress_context__") is not True:
        context = _as(_peek(error, "__context__"), BaseException)
        if context is not None:
            return context
    if _is_plain(error):
        return None
    # SQLAlchemy and urllib keep what they wrap here as well, also when they were not raised.
    return _as(_peek(error, "orig"), BaseException) or _as(_peek(error, "reason"), BaseException)


def _names(error: BaseException) -> tuple[str, ...]:
    try:
        return names_of(type(error))
    except Exception:
        # A metaclass of its own can refuse even to be hashed.
        return ("builtins.BaseException",)


def names_of(kind: type) -> tuple[str, ...]:
    """The qualified names of a type and its bases, nearest first."""
    return _names_of(kind)


@lru_cache(maxsize=512)
def _names_of(kind: Any) -> tuple[str, ...]:
    bases = type.__dict__["__mro__"].__get__(kind)
    return tuple(_name_of(base) for base in bases[:_BASES_READ] if base is not object)


def _name_of(kind: type) -> str:
    module = _text(_peek(kind, "__module__")) or "?"
    name = _text(_peek(kind, "__qualname__")) or "?"
    return f"{module}.{name}"


def _message(error: BaseException) -> str:
    try:
        text = str.__getitem__(str(error), slice(0, _MESSAGE_READ))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        text = ""
    notes = _peek(error, "__notes__")
    if type(notes) is not list:
        return text
    told = [str.__getitem__(note, slice(0, _MESSAGE_READ)) for note in notes[:_NOTES_READ] if issubclass(type(note), str)]
    return "\n".join([text, *told])[:_MESSAGE_READ]


def _http_status(error: BaseException, response: object, names: tuple[str, ...]) -> int | None:
    for holder, attributes in (
        (error, ("status_code", "status", "http_status")),
        (response, ("status_code", "status")),
        (_peek(error, "resp"), ("status",)),
    ):
        if holder is None:
            continue
        for attribute in attributes:
            if (status := _status(_peek(holder, attribute))) is not None:
                return status
    if (status := _status(_entry(response, "ResponseMetadata", "HTTPStatusCode"))) is not None:
        return status
    if names[0].startswith(_OWN_NUMBERS):
        return None
    number = _status(_peek(error, "code"))
    return number if number is not None and number >= 400 else None


def _grpc_status(error: BaseException, names: tuple[str, ...]) -> str | None:
    if "grpc.RpcError" in names:
        try:
            status = error.code()  # type: ignore[attr-defined]  # gRPC tells its status only when it is called
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            return None
    else:
        status = _peek(error, "grpc_status_code")
    return _text(_peek(status, "name")) if issubclass(type(status), Enum) else None


def _code(error: BaseException, response: object, names: tuple[str, ...], message: str) -> str | None:
    for attribute in ("sqlstate", "pgcode", "sqlite_errorname"):
        if (code := _text(_peek(error, attribute))) is not None:
            return code
    if (code := _text(_entry(response, "Error", "Code"))) is not None:
        return code
    own = names[0]
    if own.startswith("sqlalchemy."):
        # There it names a page of the documentation.
        return None
    if own.startswith("smtplib.") and (number := _integer(_peek(error, "smtp_code"))) is not None:
        return str(number)
    if own.startswith(("cimpl.", "confluent_kafka.")):
        # Its error tells the name of its code in text, or when it is called.
        found = _CONFLUENT.search(message)
        return found[1] if found else None
    code = _peek(error, "code")
    if own.startswith("pymongo.") and (number := _integer(code)) is not None:
        return str(number)
    return _text(code)


def _entry(holder: object, *path: str) -> object:
    """What lies at this path of nested dictionaries; None when there is nothing."""
    for key in path:
        mapping = _as(holder, dict)
        if mapping is None:
            return None
        try:
            holder = dict.get(mapping, key)
        except Exception:
            return None
    return holder


def _peek(holder: object, name: str) -> Any:
    """An attribute; None when it is not there or does not let itself be read."""
    try:
        return getattr(holder, name, None)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def _as(value: object, kind: type[_Kind]) -> _Kind | None:
    # Not isinstance(): that asks the object for its `__class__`, which may lie or raise.
    return value if issubclass(type(value), kind) else None  # type: ignore[return-value]  # its type was just looked at


def _integer(value: object) -> int | None:
    number = _as(value, int)
    return None if number is None or number is True or number is False else int.__index__(number)


def _status(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and 100 <= number <= 599 else None


def _text(value: object) -> str | None:
    """The start of a text that is not empty, as any store can write it."""
    text = _as(value, str)
    if text is None:
        return None
    start = str.__getitem__(text, slice(0, _TEXT_READ))
    if not start.isascii():
        start = start.encode("utf-8", "backslashreplace").decode()
    return start or None
