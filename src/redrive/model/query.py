"""Questions about letters: one small tree. Each backend compiles it; `matches` interprets it and is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from operator import eq, ge, gt, le, lt
from typing import Any, assert_never
from uuid import UUID

from msgspec import Struct

from redrive.model.errors import Unsupported
from redrive.model.letter import Letter


class Field(StrEnum):
    """What can be asked about."""

    ID = "id"
    NAMESPACE = "namespace"
    SOURCE = "source"
    SOURCE_ID = "source_id"
    STATUS = "status"
    CATEGORY = "category"
    ERROR = "error"
    """The error's type: its last name (`TimeoutError`), or fully qualified when the value has a dot."""
    GROUP = "group"
    """The failure's fingerprint."""
    KEY = "key"
    KIND = "kind"
    TAG = "tag"
    PRIORITY = "priority"
    ATTEMPTS = "attempts"
    GENERATION = "generation"
    DEAD_LETTERED_AT = "dead_lettered_at"
    UPDATED_AT = "updated_at"
    NEXT_RETRY_AT = "next_retry_at"
    EXPIRES_AT = "expires_at"


class Op(StrEnum):
    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


Scalar = str | int | datetime | bytes | UUID


class Is(Struct, frozen=True, tag="is"):
    """Compare one field; a letter without that field matches no comparison."""

    field: Field
    value: Any
    """A `Scalar` that fits the field."""
    op: Op = Op.EQ


class And(Struct, frozen=True, tag="and"):
    """All parts match; without parts: every letter."""

    parts: tuple[Query, ...] = ()


class Or(Struct, frozen=True, tag="or"):
    """Any part matches; without parts: no letter."""

    parts: tuple[Query, ...] = ()


class Not(Struct, frozen=True, tag="not"):
    """The part does not match."""

    part: Query


Query = Is | And | Or | Not

EVERYTHING = And()


class Order(StrEnum):
    """The orders a listing can have; the id breaks ties."""

    NEWEST = "newest"
    OLDEST = "oldest"
    UPDATED = "updated"
    """The latest change first."""


class Page(Struct, frozen=True, kw_only=True):
    """Some letters, and where to go on (None: that was all)."""

    letters: tuple[Letter, ...]
    next: str | None = None


class Group(Struct, frozen=True, kw_only=True):
    """Letters that failed in the same way."""

    fingerprint: str
    error: str
    message: str
    category: str
    count: int
    first_seen: datetime
    last_seen: datetime


class GroupPage(Struct, frozen=True, kw_only=True):
    """Some groups, the last seen first, and where to go on."""

    groups: tuple[Group, ...]
    next: str | None = None


_COMPARE: dict[Op, Callable[[Any, Any], bool]] = {Op.EQ: eq, Op.LT: lt, Op.LE: le, Op.GT: gt, Op.GE: ge}

_READ: dict[Field, Callable[[Letter], Any]] = {
    Field.ID: lambda letter: letter.id,
    Field.NAMESPACE: lambda letter: letter.namespace,
    Field.SOURCE: lambda letter: letter.source,
    Field.SOURCE_ID: lambda letter: letter.source_id,
    Field.STATUS: lambda letter: letter.status.value,
    Field.CATEGORY: lambda letter: letter.failure.category.value,
    Field.ERROR: lambda letter: letter.failure.type,
    Field.GROUP: lambda letter: letter.failure.fingerprint,
    Field.KEY: lambda letter: letter.key,
    Field.KIND: lambda letter: letter.kind,
    Field.PRIORITY: lambda letter: letter.priority,
    Field.ATTEMPTS: lambda letter: letter.attempts,
    Field.GENERATION: lambda letter: letter.generation,
    Field.DEAD_LETTERED_AT: lambda letter: letter.dead_lettered_at,
    Field.UPDATED_AT: lambda letter: letter.updated_at,
    Field.NEXT_RETRY_AT: lambda letter: letter.retry.next_retry_at,
    Field.EXPIRES_AT: lambda letter: letter.expires_at,
}


TALLIED = frozenset({Field.NAMESPACE, Field.SOURCE, Field.STATUS, Field.CATEGORY, Field.ERROR, Field.GROUP})
"""Fields that every letter has one text of, so that counting by them is cheap and means something."""


def tally_key(by: Field) -> Callable[[Letter], str]:
    """How to read the value that letters are tallied by."""
    if by not in TALLIED:
        raise Unsupported(f"cannot count by {by}; choose one of {', '.join(sorted(TALLIED))}")
    return _READ[by]


def bounded(limit: int) -> int:
    """A limit that every engine takes: none below 0 and none beyond what a page could ever hold."""
    return max(0, min(limit, 2**31))


def last_name(qualified: str) -> str:
    """`httpx.ConnectTimeout` → `ConnectTimeout`."""
    return qualified.rpartition(".")[2]


def matches(query: Query, letter: Letter) -> bool:
    """Does this letter answer the question?"""
    match query:
        case Is(field=Field.TAG, value=value, op=op):
            return any(_COMPARE[op](tag, value) for tag in letter.tags)
        case Is(field=Field.ERROR, value=value, op=op):
            name = letter.failure.type if "." in value else last_name(letter.failure.type)
            return _COMPARE[op](name, value)
        case Is(field=field, value=value, op=op):
            actual = _READ[field](letter)
            return actual is not None and _COMPARE[op](actual, value)
        case And(parts=parts):
            return all(matches(part, letter) for part in parts)
        case Or(parts=parts):
            return any(matches(part, letter) for part in parts)
        case Not(part=part):
            return not matches(part, letter)
        case _:
            assert_never(query)
