"""Which way to the letters that match is the shortest: what SQLite cannot know, the counts and the indexes of words tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeGuard
from uuid import UUID

from redrive.backends.sqlite import texts
from redrive.backends.sqlite.query import INDEXED, compiled, compiled_for_few
from redrive.backends.sqlite.rows import filled, marks
from redrive.model.query import And, Field, Is, Op, Or, Query, Text, conjuncts, last_name
from redrive.model.status import Status

_COUNTED = {
    Field.GROUP: "(SELECT 1 AS count FROM letters WHERE fingerprint = {value} LIMIT {most})",
    Field.STATUS: "counts WHERE facet = 'all' AND status = {value}",
    Field.SOURCE: "counts WHERE facet = 'source' AND value = {value}",
    Field.ERROR: "counts WHERE facet = 'error' AND (value = {value} OR substr(value, -length({value}) - 1) = '.' || {value})",
}
"""Where it is known how many letters have a value of a field, or that many have it."""
_AT_ONCE = 32
_INDEX = {
    Field.STATUS: "letters_by_status",
    Field.SOURCE: "letters_by_source",
    Field.ERROR: "letters_by_error",
    Field.GROUP: "letters_by_group",
    Field.DEAD_LETTERED_AT: "letters_by_age",
    Field.UPDATED_AT: "letters_by_change",
    Field.ID: "sqlite_autoindex_letters_1",
}
"""Those of fields have the letters of each value by their age."""

Key = tuple[int, bytes]
"""Where a letter stands in an order: an instant, and its id."""


class Plan(NamedTuple):
    """A condition on `letters l`, its parameters, and the way to those that meet it."""

    condition: str
    parameters: list[Any]
    through: str | None
    """The index that has them in their order. None: they are few, so that it is best to sort them. Left to itself, SQLite would rather go through all
    letters and sort what it finds, if only one is wanted."""

    @property
    def source(self) -> str:
        return "letters l" if self.through is None else f"letters l INDEXED BY {self.through}"

    def ordered(self, column: str, way: str) -> str:
        """What they are sorted by."""
        return f"{'+' if self.through is None else ''}{column} {way}, l.id {way}"


class Along(NamedTuple):
    """The letters that a plan finds, along a column of instants that there is an index of, and their ids."""

    plan: Plan
    column: str
    way: str
    """ASC or DESC."""

    def numbers(self, last: Key | None, limit: int) -> tuple[str, list[Any]]:
        """A statement that gives the numbers of those that come next behind the last one."""
        condition, parameters = self.plan.condition, self.plan.parameters
        if last is not None:
            condition = f"{condition} AND ({self.column}, l.id) {'<' if self.way == 'DESC' else '>'} (?, ?)"
            parameters = [*parameters, *last]
        ordered = self.plan.ordered(self.column, self.way)
        return f"SELECT l.seq AS seq FROM {self.plan.source} WHERE {condition} ORDER BY {ordered} LIMIT {limit}", parameters

    def key(self, connection: sqlite3.Connection, number: int) -> Key:
        """Where a letter stands."""
        at, id = connection.execute(f"SELECT {self.column}, l.id FROM letters l WHERE l.seq = ?", [number]).fetchone()
        return at, id


def planned(connection: sqlite3.Connection, query: Query, now: datetime, along: Field | None = Field.DEAD_LETTERED_AT) -> Plan:
    """How to find a page of the letters that match, along an instant; None: they are sorted by something else."""
    rare, few = texts.rare(connection, query), texts.few(connection)
    parts = list(conjuncts(query))
    numbers = _Numbers(connection, query, rare)
    known = [(number, place) for place, part in enumerate(parts) if (number := numbers.of(part)) is not None]
    number, place = min(known, default=(few + 1, 0))
    if along is None and number > few:
        # Whoever goes through many letters looks for a phrase once, and not in each.
        rare |= texts.behind(query)
    if known and along is not Field.UPDATED_AT and _is_value(part := parts[place]):
        return Plan(*compiled(query, now, rare=rare), _INDEX[part.field])
    if number <= few:
        fields = {one.field for one in _values(parts[place])}
        return Plan(*compiled(query, now, rare=rare, by=fields, either=fields), None)
    if along is None or _is_short(connection, parts, now, along, few):
        return Plan(*compiled(query, now, rare=rare, by=()), None)
    return Plan(*compiled(query, now, rare=rare), _INDEX[along])


def planned_among(ids: Sequence[UUID], query: Query, now: datetime) -> Plan:
    """How to find those of these letters that match."""
    keys = [id.bytes for id in ids]
    condition, parameters = compiled_for_few(query, now)
    return Plan(f"l.id IN ({marks(len(keys))}) AND {condition}", [*filled(keys), *parameters], None)


class _Numbers:
    """How many letters meet parts of a question, as far as that is known."""

    def __init__(self, connection: sqlite3.Connection, query: Query, rare: Collection[Text]) -> None:
        self._rare = rare
        wanted = list(dict.fromkeys((one.field, str(one.value)) for one in _values(query)))
        self._of_values = dict(zip(wanted, _letters(connection, wanted), strict=True))

    def of(self, part: Query) -> int | None:
        """At most so many; None: perhaps many. Those that are looked up before all others are few, and count for nothing."""
        match part:
            case Text():
                return 0 if part in self._rare else None
            case Is(field=Field.ID, op=Op.EQ):
                return 0
            case Is() if _is_retrying(part):
                return 0
            case Is() if _is_value(part):
                return self._of_values[part.field, str(part.value)]
            case Or(parts=parts):
                numbers = [self.of(one) for one in parts]
                return None if None in numbers else sum(number for number in numbers if number is not None)
            case _:
                return None


def _values(query: Query) -> Iterator[Is]:
    """The values of indexed fields that letters may be found by."""
    match query:
        case Is() if _is_value(query):
            yield query
        case And(parts=parts) | Or(parts=parts):
            for part in parts:
                yield from _values(part)
        case _:
            return


def _is_value(part: Query) -> TypeGuard[Is]:
    return isinstance(part, Is) and part.op is Op.EQ and part.field in INDEXED and not _is_retrying(part)


def _is_retrying(part: Query) -> bool:
    return isinstance(part, Is) and part.field is Field.STATUS and part.op is Op.EQ and part.value == Status.RETRYING


def _letters(connection: sqlite3.Connection, wanted: Sequence[tuple[Field, str]]) -> list[int]:
    """How many letters have each of these values of a field."""
    found: list[int] = []
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        counted = [
            f"SELECT coalesce(sum(count), 0) FROM {_COUNTED[field].format(value=f'?{n}', most=texts.FEW + 1)}"
            for n, (field, _) in enumerate(some, 1)
        ]
        values = [last_name(value) if field is Field.ERROR else value for field, value in some]
        found += connection.execute(f"SELECT ({'), ('.join(counted)})", values).fetchone()
    return found


def _is_short(connection: sqlite3.Connection, parts: Sequence[Query], now: datetime, along: Field, few: int) -> bool:
    """Does the question ask for a short time by the other clock than the one that the letters are listed by, or for few ids?"""
    other = Field.UPDATED_AT if along is Field.DEAD_LETTERED_AT else Field.DEAD_LETTERED_AT
    return any(_are_few_within(connection, parts, now, field, few) for field in (Field.ID, other))


def _are_few_within(connection: sqlite3.Connection, parts: Sequence[Query], now: datetime, field: Field, few: int) -> bool:
    """Do few letters lie between the ends that the question names?"""
    ends = tuple(part for part in parts if isinstance(part, Is) and part.field is field)
    if not ends:
        return False
    condition, parameters = compiled(And(ends), now)
    within = f"SELECT 1 FROM letters l INDEXED BY {_INDEX[field]} WHERE {condition} LIMIT {few + 1}"
    (count,) = connection.execute(f"SELECT count(*) FROM ({within})", parameters).fetchone()
    return bool(count <= few)
