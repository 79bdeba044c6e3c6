"""Questions about letters: one small tree. Each backend compiles it; `matches` interprets it and is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import StrEnum
from operator import eq, ge, gt, le, lt
from typing import Any, assert_never
from uuid import UUID

from msgspec import DecodeError, Struct, json

from redrive.model.errors import Unsupported
from redrive.model.hours import growth
from redrive.model.letter import Letter
from redrive.model.texts import NOWHERE, Where, distance, found_in
from redrive.model.words import needle


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
    POLICY = "policy"
    """How the letter is retried: never, linear, exponential, immediate, or one of your own."""
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


class Text(Struct, frozen=True, tag="text"):
    """These words, one after another and whole, in a text of the letter; see `redrive.model.words`."""

    phrase: str
    where: Where = Where.MESSAGE


class Has(Struct, frozen=True, tag="has"):
    """The letter has this field at all: a key, a kind, a tag, a next retry, an end."""

    field: Field


class Place(StrEnum):
    """Documents that letters carry."""

    BODY = "body"
    """The body, when it is JSON."""
    METADATA = "metadata"


JsonScalar = str | int | float | bool | None


class At(Struct, frozen=True, tag="at"):
    """Compare a value inside a document; numbers with numbers, texts with texts, else only whether they are the same.

    A letter without such a value, or with one of another kind, matches no comparison.
    """

    place: Place
    path: tuple[str | int, ...]
    """Names of members and numbers of elements, from the outside in."""
    value: JsonScalar
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


Query = Is | Text | Has | At | And | Or | Not

EVERYTHING = And()
NOTHING = Or()


class Order(StrEnum):
    """The orders a listing can have; the id breaks ties."""

    NEWEST = "newest"
    OLDEST = "oldest"
    UPDATED = "updated"
    """The latest change first."""
    NEAREST = "nearest"
    """The nearest to the question's words first, then the newest; see `redrive.model.texts.distance`."""


class Page(Struct, frozen=True, kw_only=True):
    """Some letters, and where to go on (None: that was all)."""

    letters: tuple[Letter, ...]
    next: str | None = None
    unsearched: int = 0
    """Letters whose body and traceback are not indexed yet, when the question looks into these: more may match. See `Backlog.texts`."""


class GroupOrder(StrEnum):
    """The orders that groups can have; the fingerprint breaks ties."""

    LAST_SEEN = "last-seen"
    COUNT = "count"
    GROWTH = "growth"
    """The fastest growing first; see `redrive.model.hours.growth`."""


class Group(Struct, frozen=True, kw_only=True):
    """Letters that failed in the same way."""

    fingerprint: str
    error: str
    message: str
    category: str
    count: int
    first_seen: datetime
    last_seen: datetime
    statuses: dict[str, int]
    """How many letters there are of each status; one of which there is none is left out."""
    hours: tuple[int, ...]
    """How many came in each of the last hours, `redrive.model.hours.SHOWN` of them; the last is the one now."""

    @property
    def growth(self) -> int:
        return growth(self.hours)


class GroupPage(Struct, frozen=True, kw_only=True):
    """Some groups, and where to go on."""

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
    Field.POLICY: lambda letter: letter.retry.policy,
    Field.PRIORITY: lambda letter: letter.priority,
    Field.ATTEMPTS: lambda letter: letter.attempts,
    Field.GENERATION: lambda letter: letter.generation,
    Field.DEAD_LETTERED_AT: lambda letter: letter.dead_lettered_at,
    Field.UPDATED_AT: lambda letter: letter.updated_at,
    Field.NEXT_RETRY_AT: lambda letter: letter.retry.next_retry_at,
    Field.EXPIRES_AT: lambda letter: letter.expires_at,
}


TALLIED = frozenset({Field.NAMESPACE, Field.SOURCE, Field.STATUS, Field.CATEGORY, Field.ERROR, Field.GROUP, Field.POLICY})
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
        case Text(phrase=phrase, where=where):
            return found_in(needle(phrase), where, letter)
        case Has(field=Field.TAG):
            return bool(letter.tags)
        case Has(field=field):
            return _READ[field](letter) is not None
        case At():
            return _compares(query, letter)
        case And(parts=parts):
            return all(matches(part, letter) for part in parts)
        case Or(parts=parts):
            return any(matches(part, letter) for part in parts)
        case Not(part=part):
            return not matches(part, letter)
        case _:
            assert_never(query)


def is_deep(query: Query) -> bool:
    """Does the question look at more than a letter's fields: at texts, or into documents?"""
    match query:
        case Text() | At():
            return True
        case And(parts=parts) | Or(parts=parts):
            return any(map(is_deep, parts))
        case Not(part=part):
            return is_deep(part)
        case _:
            return False


def conjuncts(query: Query) -> Iterator[Query]:
    """The parts of a question that must all hold."""
    if isinstance(query, And):
        for part in query.parts:
            yield from conjuncts(part)
    else:
        yield query


def looks_behind(query: Query) -> bool:
    """Does the question look for words in bodies or tracebacks, which some stores index a little later?"""
    match query:
        case Text(where=where):
            return where is not Where.MESSAGE
        case And(parts=parts) | Or(parts=parts):
            return any(map(looks_behind, parts))
        case Not(part=part):
            return looks_behind(part)
        case _:
            return False


def phrases(query: Query) -> tuple[Text, ...]:
    """What the question wants to be found, and so what a letter can be near to; what it wants not to be found is no part."""
    match query:
        case Text():
            return (query,)
        case And(parts=parts) | Or(parts=parts):
            return tuple(text for part in parts for text in phrases(part))
        case _:
            return ()


def distance_of(query: Query, letter: Letter) -> int:
    """How far the letter is from the nearest of the question's phrases."""
    return min((distance(needle(text.phrase), text.where, letter) for text in phrases(query)), default=NOWHERE)


def _compares(query: At, letter: Letter) -> bool:
    found: Any = _document(query.place, letter)
    for step in query.path:
        is_member = isinstance(step, str) and isinstance(found, dict) and step in found
        is_element = isinstance(step, int) and isinstance(found, list) and 0 <= step < len(found)
        if not (is_member or is_element):
            return False
        found = found[step]
    value = query.value
    if (_is_number(found) and _is_number(value)) or (isinstance(found, str) and isinstance(value, str)):
        return _COMPARE[query.op](found, value)
    return query.op is Op.EQ and type(found) is type(value) and found == value


def _document(place: Place, letter: Letter) -> Any:
    if place is Place.METADATA:
        return letter.metadata
    try:
        return json.decode(letter.body)
    except (DecodeError, RecursionError):
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
