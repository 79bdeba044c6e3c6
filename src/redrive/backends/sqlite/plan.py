"""Which way to the letters that match is the shortest: what SQLite cannot know, the counts and the indexes of words tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from redrive.backends.sqlite import texts
from redrive.backends.sqlite.query import INDEXED, compiled
from redrive.backends.sqlite.rows import filled, marks
from redrive.model.query import Field, Is, Op, Or, Query, Text, conjuncts, last_name
from redrive.model.status import Status

_COUNTED = {
    Field.GROUP: "groups WHERE fingerprint = {value}",
    Field.STATUS: "counts WHERE facet = 'all' AND status = {value}",
    Field.SOURCE: "counts WHERE facet = 'source' AND value = {value}",
    Field.ERROR: "counts WHERE facet = 'error' AND (value = {value} OR substr(value, -length({value}) - 1) = '.' || {value})",
}
"""Where it is known how many letters have a value of a field."""
_AT_ONCE = 32


Key = tuple[int, bytes]
"""Where a letter stands in an order: an instant, and its id."""


class Plan(NamedTuple):
    """A condition on `letters l`, its parameters, and whether few letters meet it, so that it is best to sort these."""

    condition: str
    parameters: list[Any]
    is_few: bool


class Along(NamedTuple):
    """The letters that a plan finds, along a column of instants that there is an index of, and their ids."""

    plan: Plan
    column: str
    way: str
    """ASC or DESC."""

    def numbers(self, last: Key | None, limit: int) -> tuple[str, list[Any]]:
        """A statement that gives the numbers of those that come next behind the last one."""
        condition, parameters, is_few = self.plan
        if last is not None:
            condition = f"{condition} AND ({self.column}, l.id) {'<' if self.way == 'DESC' else '>'} (?, ?)"
            parameters = [*parameters, *last]
        ordered = f"{'+' if is_few else ''}{self.column} {self.way}, l.id {self.way}"
        return f"SELECT l.seq AS seq FROM letters l WHERE {condition} ORDER BY {ordered} LIMIT {limit}", parameters

    def key(self, connection: sqlite3.Connection, number: int) -> Key:
        """Where a letter stands."""
        at, id = connection.execute(f"SELECT {self.column}, l.id FROM letters l WHERE l.seq = ?", [number]).fetchone()
        return at, id


def planned(connection: sqlite3.Connection, query: Query, now: datetime) -> Plan:
    """How to find a page of the letters that match."""
    rare = texts.rare(connection, query)
    parts = list(conjuncts(query))
    if any(part in rare if isinstance(part, Text) else _is_retrying(part) for part in parts):
        # Letters whose numbers are known need no index.
        return Plan(*compiled(query, now, rare=rare, driver=Field.ID), is_few=True)
    for part in parts:
        if (field := _either(connection, part)) is not None:
            return Plan(*compiled(query, now, rare=rare, driver=Field.ID, either=field), is_few=True)
    return Plan(*compiled(query, now, rare=rare, driver=_driver(connection, parts)), is_few=False)


def planned_among(ids: Sequence[UUID], query: Query, now: datetime) -> Plan:
    """How to find those of these letters that match."""
    keys = [id.bytes for id in ids]
    condition, parameters = compiled(query, now, driver=Field.ID)
    return Plan(f"l.id IN ({marks(len(keys))}) AND {condition}", [*filled(keys), *parameters], is_few=True)


def _either(connection: sqlite3.Connection, part: Query) -> Field | None:
    """The field of which several values are meant that few letters have, all taken together."""
    if not isinstance(part, Or) or not part.parts:
        return None
    values = [one for one in part.parts if isinstance(one, Is) and one.op is Op.EQ and one.field in INDEXED]
    fields = {one.field for one in values}
    if len(values) < len(part.parts) or len(fields) > 1 or any(map(_is_retrying, values)):
        return None
    (field,) = fields
    count = sum(_letters(connection, [(field, str(one.value)) for one in values]))
    return field if count <= texts.few(connection) else None


def _driver(connection: sqlite3.Connection, parts: Iterable[Query]) -> Field | None:
    """The field whose value the fewest letters have."""
    values = {
        part.field: str(part.value) for part in parts if isinstance(part, Is) and part.op is Op.EQ and part.field in INDEXED
    }
    if len(values) < 2:
        return None
    return min(zip(_letters(connection, list(values.items())), values, strict=True))[1]


def _letters(connection: sqlite3.Connection, wanted: Sequence[tuple[Field, str]]) -> list[int]:
    """How many letters have each of these values of a field."""
    found: list[int] = []
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        counted = [
            f"SELECT coalesce(sum(count), 0) FROM {_COUNTED[field].format(value=f'?{n}')}" for n, (field, _) in enumerate(some, 1)
        ]
        values = [last_name(value) if field is Field.ERROR else value for field, value in some]
        found += connection.execute(f"SELECT ({'), ('.join(counted)})", values).fetchone()
    return found


def _is_retrying(part: Query) -> bool:
    return isinstance(part, Is) and part.field is Field.STATUS and part.op is Op.EQ and part.value == Status.RETRYING
