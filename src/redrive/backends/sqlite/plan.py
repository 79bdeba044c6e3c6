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
from redrive.model.query import Field, Is, Op, Query, Text, conjuncts, last_name
from redrive.model.status import Status

_COUNTED = {
    Field.STATUS: "facet = 'all' AND status = ?",
    Field.SOURCE: "facet = 'source' AND value = ?",
    Field.ERROR: "facet = 'error' AND (value = ?1 OR substr(value, -length(?1) - 1) = '.' || ?1)",
}


class Plan(NamedTuple):
    """A condition on `letters l`, its parameters, and whether few letters meet it, so that it is best to sort these."""

    condition: str
    parameters: list[Any]
    is_few: bool


def planned(connection: sqlite3.Connection, query: Query, now: datetime) -> Plan:
    """How to find a page of the letters that match."""
    rare = texts.rare(connection, query)
    parts = list(conjuncts(query))
    is_few = any(part in rare if isinstance(part, Text) else _is_retrying(part) for part in parts)
    # Letters whose numbers are known need no index.
    driver = Field.ID if is_few else _driver(connection, parts)
    return Plan(*compiled(query, now, rare=rare, driver=driver), is_few)


def planned_among(ids: Sequence[UUID], query: Query, now: datetime) -> Plan:
    """How to find those of these letters that match."""
    keys = [id.bytes for id in ids]
    condition, parameters = compiled(query, now, driver=Field.ID)
    return Plan(f"l.id IN ({marks(len(keys))}) AND {condition}", [*filled(keys), *parameters], is_few=True)


def _driver(connection: sqlite3.Connection, parts: Iterable[Query]) -> Field | None:
    """The field whose value the fewest letters have."""
    values = {part.field: part.value for part in parts if isinstance(part, Is) and part.op is Op.EQ and part.field in INDEXED}
    if len(values) < 2:
        return None
    return min(values, key=lambda field: _letters(connection, field, str(values[field])))


def _letters(connection: sqlite3.Connection, field: Field, value: str) -> int:
    if field is Field.GROUP:
        sql = "SELECT coalesce(sum(count), 0) FROM groups WHERE fingerprint = ?"
    else:
        sql = f"SELECT coalesce(sum(count), 0) FROM counts WHERE {_COUNTED[field]}"
    (count,) = connection.execute(sql, [last_name(value) if field is Field.ERROR else value]).fetchone()
    return int(count)


def _is_retrying(part: Query) -> bool:
    return isinstance(part, Is) and part.field is Field.STATUS and part.op is Op.EQ and part.value == Status.RETRYING
