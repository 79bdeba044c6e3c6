"""Questions in OpenSearch's language. They only ever filter; nothing is scored."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, assert_never
from uuid import UUID

from redrive.backends.opensearch.terms import phrase, term
from redrive.model.instant import micros
from redrive.model.query import And, At, Field, Has, Is, Not, Op, Or, Query, Text
from redrive.model.status import Status
from redrive.model.texts import Where

Clause = dict[str, Any]

EVERY_LETTER: Clause = {"exists": {"field": "redrive.dead_lettered_at"}}
"""In the index lies one document that is no letter."""
_NOTHING: Clause = {"match_none": {}}
_EVERYTHING: Clause = {"match_all": {}}

FIELD: dict[Field, str] = {
    **{field: f"redrive.{field.value}" for field in Field},
    Field.CATEGORY: "error_category",
    Field.STATUS: "status",
    Field.GROUP: "redrive.fingerprint",
    Field.ERROR: "redrive.error_type",
    Field.TAG: "redrive.tags",
}
_RANGE = {Op.LT: "lt", Op.LE: "lte", Op.GT: "gt", Op.GE: "gte"}
_LONG = 2**63


def leased(now: int) -> Clause:
    """Somebody holds it."""
    return {"range": {"redrive.until": {"gt": now}}}


def asked(query: Query, now: int | None, *more: Clause) -> Clause:
    """Letters that match at this instant, and all else that must hold of them; those that may, if it is documentary.

    Without an instant: letters are told by the status they are stored with, also those that somebody holds.
    """
    return {"bool": {"filter": [EVERY_LETTER, compiled(_relaxed(query), now), *more]}}


def is_documentary(query: Query) -> bool:
    """Does the question look into documents, or for words in bodies and tracebacks, which the engine cannot?"""
    match query:
        case Text(where=where):
            return where is not Where.MESSAGE
        case And(parts=parts) | Or(parts=parts):
            return any(map(is_documentary, parts))
        case Not(part=part):
            return is_documentary(part)
        case _:
            return isinstance(query, At)


def is_of_statuses(query: Query) -> bool:
    """Can only letters answer the question that are stored with a status which it names? Then who holds what need not be asked
    of the engine, which cannot remember the answer: it changes with every instant.
    """
    match query:
        case Is(field=Field.STATUS, value=value, op=op):
            return op is Op.EQ and value != Status.RETRYING
        case And(parts=parts):
            return any(map(is_of_statuses, parts)) and all(is_of_statuses(part) or not _names_status(part) for part in parts)
        case Or(parts=parts):
            return bool(parts) and all(map(is_of_statuses, parts))
        case _:
            return False


def _names_status(query: Query) -> bool:
    match query:
        case And(parts=parts) | Or(parts=parts):
            return any(map(_names_status, parts))
        case Not(part=part):
            return _names_status(part)
        case _:
            return isinstance(query, Is) and query.field is Field.STATUS


def _relaxed(query: Query) -> Query:
    """A question that the engine can answer, and that all letters match which match this one."""
    match query:
        case _ if not is_documentary(query):
            return query
        case And(parts=parts):
            return And(tuple(map(_relaxed, parts)))
        case Or(parts=parts):
            return Or(tuple(map(_relaxed, parts)))
        case _:
            return And()


def compiled(query: Query, now: int | None) -> Clause:
    """The question as a filter."""
    match query:
        case Is(field=Field.STATUS, value=value, op=op):
            return _status({status for status in Status if _holds(status.value, op, str(value))}, now)
        case Is():
            return _comparison(query)
        case Text(phrase=text, where=Where.MESSAGE):
            words = phrase(text)
            if words is None:
                return {"bool": {"must_not": [{"exists": {"field": "redrive.words"}}]}}
            return {"match_phrase": {"redrive.words": words}}
        case Has(field=field):
            return {"exists": {"field": FIELD[field]}}
        case At() | Text():
            raise AssertionError(f"the engine cannot look into documents: {query}")
        case And(parts=parts):
            return _all(parts, now)
        case Or(parts=parts):
            return _any(parts, now)
        case Not(part=Not(part=part)):
            return compiled(part, now)
        case Not(part=part):
            return {"bool": {"must_not": [compiled(part, now)]}}
        case _:
            assert_never(query)


def _all(parts: Iterable[Query], now: int | None) -> Clause:
    # Those denied are taken together: however many values a field must not have, they are one clause.
    denied = tuple(part.part for part in parts if isinstance(part, Not))
    clauses = [compiled(part, now) for part in parts if not isinstance(part, Not)]
    if denied:
        clauses.append({"bool": {"must_not": [_any(denied, now)]}})
    return {"bool": {"filter": clauses}} if clauses else _EVERYTHING


def _any(parts: Iterable[Query], now: int | None) -> Clause:
    values: dict[str, list[Any]] = {}
    clauses: list[Clause] = []
    for part in parts:
        clause = compiled(part, now)
        if set(clause) == {"term"}:
            ((name, value),) = clause["term"].items()
            values.setdefault(name, []).append(value)
        else:
            clauses.append(clause)
    clauses += [{"terms": {name: some}} for name, some in values.items()]
    if not clauses:
        return _NOTHING
    return clauses[0] if len(clauses) == 1 else {"bool": {"should": clauses, "minimum_should_match": 1}}


def _status(statuses: set[Status], now: int | None) -> Clause:
    """The status as it is seen is one of these."""
    stored: Clause = {"terms": {"status": sorted(status.value for status in statuses - {Status.RETRYING})}}
    if now is None:
        return stored
    free: Clause = {"bool": {"filter": [stored], "must_not": [leased(now)]}}
    if Status.RETRYING not in statuses:
        return free
    return {"bool": {"should": [leased(now), free], "minimum_should_match": 1}}


def _comparison(query: Is) -> Clause:
    name, value = FIELD[query.field], query.value
    if query.field is Field.ERROR and "." not in value:
        name = "redrive.error_name"
    if isinstance(value, int) and not -_LONG <= value < _LONG:
        return _beyond(name, query.op, is_high=value > 0)
    if query.op is Op.EQ:
        return {"term": {name: _plain(value)}}
    return {"range": {name: {_RANGE[query.op]: _plain(value)}}}


def _beyond(name: str, op: Op, *, is_high: bool) -> Clause:
    """Compared with a number that is higher or lower than any that a field can hold."""
    if op in ((Op.LT, Op.LE) if is_high else (Op.GT, Op.GE)):
        return {"exists": {"field": name}}
    return _NOTHING


def _plain(value: Any) -> Any:
    """A value as its field holds it."""
    match value:
        case datetime():
            return micros(value)
        case bytes():
            return term(value.hex())
        case UUID():
            return str(value)
        case str():
            return term(value)
        case _:
            return value


def _holds(one: str, op: Op, other: str) -> bool:
    match op:
        case Op.EQ:
            return one == other
        case Op.LT:
            return one < other
        case Op.LE:
            return one <= other
        case Op.GT:
            return one > other
        case Op.GE:
            return one >= other
        case _:
            assert_never(op)
