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
    count = sum(_letters(connection, field, str(one.value)) for one in values)
    return field if count <= texts.FEW else None


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
