"""The query language, written: a tree becomes the text that asks the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, assert_never

from msgspec import DecodeError, json

from redrive.model.category import Category
from redrive.model.language import ALL, HAS, NONE
from redrive.model.query import And, At, Field, Has, Is, JsonScalar, Not, Op, Or, Query, Text
from redrive.model.status import Status
from redrive.model.texts import Where

_PLAIN = re.compile(r"[^\s()\"\\]+")
_PLAIN_STEP = re.compile(r"[\w-]+")


def spelled(query: Query) -> str:
    """The text that asks this question. Read again, it gives the same tree, but for parts that say nothing."""
    return _written(query, is_inside=False)


def _written(query: Query, *, is_inside: bool) -> str:
    match query:
        case Is(field=Field.DEAD_LETTERED_AT, value=value, op=Op.GE):
            return f"since:{_iso(value)}"
        case Is(field=Field.DEAD_LETTERED_AT, value=value, op=Op.LT):
            return f"until:{_iso(value)}"
        case Is(field=field, value=value, op=op):
            return f"{field}{_sign(op)}{_WRITE.get(type(value), str)(value)}"
        case Text(phrase=phrase, where=Where.MESSAGE):
            return _quoted(phrase)
        case Text(phrase=phrase, where=where):
            return f"{where}~{_text(phrase)}"
        case Has(field=field):
            return f"has:{next(name for name, known in HAS.items() if known is field)}"
        case At(place=place, path=path, value=value, op=op):
            return f"{place}{''.join(map(_step, path))}{_sign(op)}{_scalar(value)}"
        case And(parts=()):
            return ALL
        case Or(parts=()):
            return NONE
        case And(parts=(only,)) | Or(parts=(only,)):
            return _written(only, is_inside=is_inside)
        case And(parts=parts):
            return _bracketed(" ".join(_written(part, is_inside=True) for part in parts), is_inside)
        case Or(parts=parts):
            return _bracketed(" or ".join(_written(part, is_inside=True) for part in parts), is_inside)
        case Not(part=part):
            return f"not {_written(part, is_inside=True)}"
        case _:
            assert_never(query)


def _bracketed(text: str, is_inside: bool) -> str:
    return f"({text})" if is_inside else text


def _sign(op: Op) -> str:
    return ":" if op is Op.EQ else op.value


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_STEP.fullmatch(step) else f".{_quoted(step)}"


def _scalar(value: JsonScalar) -> str:
    return _text(value) if isinstance(value, str) and not _looks_like_json(value) else json.encode(value).decode()


def _looks_like_json(text: str) -> bool:
    try:
        json.decode(text)
    except DecodeError:
        return False
    return True


def _text(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    return json.encode(text).decode()


def _bytes(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return _quoted(text) if text.startswith("0x") else _text(text)


def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


_WRITE: dict[type, Callable[[Any], str]] = {str: _text, Status: _text, Category: _text, bytes: _bytes, datetime: _iso}
