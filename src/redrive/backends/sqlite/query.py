"""Questions as SQL. Three-valued logic is kept out: a comparison with what is not there is false, never NULL."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Any, assert_never
from uuid import UUID

from msgspec import msgpack

from redrive.backends.columns import COLUMN, NULLABLE
from redrive.model.instant import micros
from redrive.model.query import And, At, Field, Has, Is, Not, Or, Query, Scalar, Text, matches
from redrive.model.status import Status
from redrive.model.stored import restored
from redrive.model.words import needle

IS_LEASED = "EXISTS (SELECT 1 FROM claims c WHERE c.id = l.id AND c.until > ?)"


AT = "redrive_at"
"""A function that every connection knows: does a stored letter match this comparison inside its documents?"""

_decode_at = lru_cache(maxsize=256)(msgpack.Decoder(At).decode)


def at(data: bytes, query: bytes) -> bool:
    """`AT` as Python does it."""
    return matches(_decode_at(query), restored(data))


def compiled(query: Query, now: datetime) -> tuple[str, list[Any]]:
    """A condition on `letters l`, and its parameters."""
    match query:
        case Is(field=Field.STATUS, value=value, op=op) if op == "=":
            if value == Status.RETRYING:
                return IS_LEASED, [micros(now)]
            return f"(l.status = ? AND NOT {IS_LEASED})", [str(value), micros(now)]
        case Is(field=Field.STATUS, value=value, op=op):
            status = f"CASE WHEN {IS_LEASED} THEN 'retrying' ELSE l.status END"
            return f"{status} {op.value} ?", [micros(now), str(value)]
        case Is(field=Field.TAG, value=value, op=op):
            return f"EXISTS (SELECT 1 FROM json_each(l.tags) WHERE value {op.value} ?)", [as_hex(value)]
        case Is(field=Field.ERROR, value=value, op=op):
            column = "l.error" if "." in value else "l.error_name"
            return f"{column} {op.value} ?", [value]
        case Is(field=field, value=value, op=op):
            plain = _plain(value)
            condition = f"{COLUMN[field]} {op.value} ?"
            if field in NULLABLE:
                condition = f"({COLUMN[field]} IS NOT NULL AND {condition})"
            return condition, [plain]
        case Text(phrase=phrase):
            return "instr(l.words, ?)", [needle(phrase)]
        case Has(field=field):
            return f"{'l.tags' if field is Field.TAG else COLUMN[field]} IS NOT NULL", []
        case At():
            return f"{AT}(l.data, ?)", [msgpack.encode(query)]
        case And(parts=parts):
            return _joined(parts, " AND ", "1", now)
        case Or(parts=parts):
            return _joined(parts, " OR ", "0", now)
        case Not(part=Not(part=part)):
            # SQLite's parser takes only so many levels.
            return compiled(part, now)
        case Not(part=part):
            condition, parameters = compiled(part, now)
            return f"NOT ({condition})", parameters
        case _:
            assert_never(query)


def as_hex(tag: str) -> str:
    """A tag as its column's JSON holds it: SQLite's JSON ends a text at a NUL, and hexadecimal sorts as the text does."""
    return tag.encode("utf-8", "surrogatepass").hex()


def _plain(value: Scalar) -> str | int | float | bytes:
    """The value as the column holds it."""
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        # Beyond what SQLite's integers hold; as a float it compares as it should.
        return float(value)
    return value.bytes if isinstance(value, UUID) else value


def _joined(parts: tuple[Query, ...], word: str, empty: str, now: datetime) -> tuple[str, list[Any]]:
    """The parts as a balanced tree: SQLite refuses a chain of more than a thousand."""
    if not parts:
        return empty, []
    if len(parts) == 1:
        return compiled(parts[0], now)
    half = len(parts) // 2
    left, first = _joined(parts[:half], word, empty, now)
    right, second = _joined(parts[half:], word, empty, now)
    return f"({left}{word}{right})", [*first, *second]
