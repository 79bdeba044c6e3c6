"""Letters, questions and commands as Hypothesis draws them: whatever can be stored, asked for or done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import json

from redrive.model.amendment import Amendment
from redrive.model.category import Category
from redrive.model.lane import Lane
from redrive.model.lease import Claim, Due
from redrive.model.letter import (
    Attempt,
    BodyRef,
    Cause,
    Failure,
    Letter,
    Origin,
    Original,
    RedriveMark,
    RetryPlan,
    letter_id,
)
from redrive.model.query import EVERYTHING, And, At, Field, Has, Is, JsonScalar, Not, Op, Or, Place, Query, Text
from redrive.model.settlement import Completed, Failed, Outcome, Postponed, Redriven, Released
from redrive.model.status import Act, Status
from redrive.model.texts import Where
from redrive.testing.kit.samples import START, STORED, attempt, failure, is_chaos, letter


def effort(examples: int = 30, *, chaos: int = 2000, steps: int = 30) -> settings:
    """How hard Hypothesis tries: the same few examples every time, or thousands of new ones under `REDRIVE_CHAOS`.

    Only there is a failure shrunk: that takes minutes when each try opens a store.
    """
    phases = [Phase.explicit, Phase.generate]
    return settings(
        max_examples=chaos if is_chaos() else examples,
        stateful_step_count=steps,
        derandomize=not is_chaos(),
        database=None,
        phases=[*phases, Phase.shrink] if is_chaos() else phases,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


_AWKWARD = "a", "b", "Z", "0", ".", ",", ";", ":", "'", '"', "\\", "\n", "\t", " ", "%", "_", "*", "é", "ß", "中", "\u202e", "\U0001f4ee", "\U0010ffff"  # fmt: skip


def texts(max_size: int = 12) -> SearchStrategy[str]:
    """Text that breaks what can be broken: quotes, commas, newlines, separators, letters from every plane."""
    return st.lists(st.sampled_from(_AWKWARD), max_size=max_size).map("".join)


def instants() -> SearchStrategy[datetime]:
    """Instants around the start, to the microsecond; equal ones are likely."""
    near = st.integers(-3, 3).map(lambda hours: START + timedelta(hours=hours))
    return near | st.integers(-(10**12), 10**12).map(lambda micros: START + timedelta(microseconds=micros))


def uuids() -> SearchStrategy[UUID]:
    return st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))


def _maybe(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.none() | strategy


def attempts() -> SearchStrategy[Attempt]:
    return st.builds(
        Attempt,
        at=instants(),
        occurrence=uuids(),
        error=texts(),
        message=texts(),
        took=_maybe(st.timedeltas(timedelta(0), timedelta(days=40))),
        generation=st.integers(1, 5),
        outcome_unknown=st.booleans(),
    )


def failures() -> SearchStrategy[Failure]:
    return st.builds(
        Failure,
        type=st.sampled_from(["builtins.TimeoutError", "httpx.TimeoutError", "KeyError", "a.b.C"]) | texts(),
        message=texts(),
        category=st.sampled_from(Category),
        traceback=texts(30),
        causes=st.lists(st.builds(Cause, type=texts(), message=texts()), max_size=2).map(tuple),
        fingerprint=st.sampled_from(["f1", "f2"]) | texts(),
        fingerprint_version=st.integers(0, 3),
    )


def _headers() -> SearchStrategy[Any]:
    return st.lists(st.tuples(texts(), st.binary(max_size=8)), max_size=3).map(tuple)


def _json() -> SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts()
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3), max_leaves=5
    )


def metadata() -> SearchStrategy[dict[str, Any]]:
    """Nested objects, as JSON has them."""
    return st.dictionaries(texts(), _json(), max_size=3)


def _body_refs() -> SearchStrategy[BodyRef]:
    return st.builds(BodyRef, name=texts(), size=st.integers(0, 2**40), sha256=texts())


def letters() -> SearchStrategy[Letter]:
    """Any letter that can be stored, every field drawn."""
    return st.builds(_drawn, st.tuples(texts(), texts(), texts()), st.fixed_dictionaries(_fields()))


def _drawn(names: tuple[str, str, str], fields: dict[str, Any]) -> Letter:
    namespace, source, source_id = names
    return Letter(id=letter_id(*names), namespace=namespace, source=source, source_id=source_id, **fields)


def _fields() -> dict[str, SearchStrategy[Any]]:
    counts = st.integers(0, 2**31)
    return {
        "failure": failures(),
        "first_received_at": instants(),
        "dead_lettered_at": instants(),
        "updated_at": instants(),
        "generation": st.integers(1, 2**31),
        "body": st.binary(max_size=40),
        "body_ref": _maybe(_body_refs()),
        "content_type": texts(),
        "headers": _headers(),
        "key": _maybe(st.binary(max_size=8)),
        "target": texts(),
        "kind": _maybe(texts()),
        "reference": _maybe(texts()),
        "origin": st.builds(
            Origin,
            topic=_maybe(texts()),
            partition=_maybe(counts),
            offset=_maybe(st.integers(0, 2**63 - 1)),
            node=_maybe(texts()),
            reply_to=_maybe(texts()),
            request_id=_maybe(texts()),
            trace=_maybe(texts()),
        ),
        "history": st.lists(attempts(), max_size=3, unique_by=lambda one: one.occurrence).map(tuple),
        "history_dropped": counts,
        "expires_at": _maybe(instants()),
        "retry": st.builds(
            RetryPlan,
            policy=texts(),
            retry_count=counts,
            max_retries=_maybe(counts),
            next_retry_at=_maybe(instants()),
            waits_for=texts(),
        ),
        "status": st.sampled_from(STORED),
        "priority": st.integers(-(2**63), 2**63 - 1),
        "depends_on": st.lists(texts(), max_size=2).map(tuple),
        "tags": st.lists(texts(), max_size=3).map(tuple),
        "metadata": metadata(),
        "redrive": st.builds(RedriveMark, count=counts, last_at=_maybe(instants()), operation=_maybe(uuids())),
        "original": _maybe(
            st.builds(
                Original,
                body=st.binary(max_size=8),
                body_ref=_maybe(_body_refs()),
                content_type=texts(),
                headers=_headers(),
                target=texts(),
            )
        ),
    }


_SOURCES = "orders", "bills"
POOL = tuple(letter(name, source=source).id for source in _SOURCES for name in "abc")
"""The ids of all letters that `arrivals` makes."""


_FAILURES = (
    failure("builtins.TimeoutError", "no answer", fingerprint="f1", category=Category.NETWORK),
    failure("httpx.TimeoutError", "no answer, again", fingerprint="f1"),
    failure("KeyError", "'x'", fingerprint="f2", category=Category.VALIDATION),
    failure("a.b.C", "other", fingerprint="f3"),
)


_NEAR = st.integers(-3, 3).map(lambda hours: START + timedelta(hours=hours))


def arrivals() -> SearchStrategy[Letter]:
    """Letters of few messages that fail over and over: new, known, reopened and late ones are all likely."""
    return st.builds(
        letter,
        st.sampled_from("abc"),
        source=st.sampled_from(["orders", "bills"]),
        failed=st.integers(1, 9),
        at=_NEAR,
        due=_maybe(_NEAR),
        generation=st.sampled_from([1, 1, 2, 3]),
        status=st.sampled_from([Status.PENDING] * 8 + list(STORED)),
        priority=st.integers(0, 1),
        failure=st.sampled_from(_FAILURES),
        kind=st.sampled_from([None, "order", "bill"]),
        key=st.sampled_from([None, b"", b"\0k", b"\xff"]),
        tags=st.sampled_from([(), ("red",), ("red", "blue"), ("x,y", "blue")]),
        expires_at=_maybe(_NEAR),
        metadata=st.sampled_from([{}, {"a": 1}, {"a": [{"b": None}]}]),
        history_dropped=st.sampled_from([0, 0, 3]),
    )


_TEXT = st.sampled_from(
    ["", "default", "orders", "bills", "a", "TimeoutError", "builtins.TimeoutError", "f1", "red", "x,y", "order"]
)


_VALUES: dict[Field, SearchStrategy[Any]] = {
    Field.ID: st.sampled_from(POOL),
    Field.STATUS: st.sampled_from(Status).map(str),
    Field.CATEGORY: st.sampled_from(Category).map(str),
    Field.POLICY: st.sampled_from(["never", "linear", ""]),
    Field.KEY: st.sampled_from([b"", b"\0", b"\0k", b"\xff", b"none"]),
    Field.PRIORITY: st.integers(-2, 3),
    Field.ATTEMPTS: st.integers(0, 6),
    Field.GENERATION: st.integers(0, 4),
    Field.DEAD_LETTERED_AT: _NEAR,
    Field.UPDATED_AT: _NEAR,
    Field.NEXT_RETRY_AT: _NEAR,
    Field.EXPIRES_AT: _NEAR,
}


_PHRASES = ["timeout", "TIMEOUTERROR", "no answer", "no answer again", "answer no", "x", "nowhere", "b c", "0"]
_NAMES = st.sampled_from(["a", "b", "ä ö", ""])
_PATHS: list[tuple[str | int, ...]] = [("a",), ("b",), ("a", "b"), ("a", 0), ("a", 1, "b"), ("ä ö",), ("",), (), (0,)]
_SCALARS: list[JsonScalar] = [0, 1, -1, 1.5, 2**53 + 1, 10**15, True, False, None, "", "a", "b", "1", "ä\0", "\U0001f4ee"]


def comparisons() -> SearchStrategy[Query]:
    """One field compared with a value that fits it."""

    def with_value(field: Field) -> SearchStrategy[Query]:
        return st.builds(Is, st.just(field), _VALUES.get(field, _TEXT), st.sampled_from(Op))

    has = st.builds(Has, st.sampled_from([Field.KEY, Field.KIND, Field.TAG, Field.NEXT_RETRY_AT, Field.EXPIRES_AT]))
    return st.sampled_from(Field).flatmap(with_value) | st.builds(Text, st.sampled_from(_PHRASES), st.sampled_from(Where)) | has


def documents() -> SearchStrategy[At]:
    """A comparison inside a body or the metadata, of values that some letters of `letters_with_documents` have."""
    return st.builds(At, st.sampled_from(Place), st.sampled_from(_PATHS), st.sampled_from(_SCALARS), st.sampled_from(Op))


def letters_with_documents() -> SearchStrategy[Letter]:
    """Letters whose bodies and metadata are small documents, or bodies that are none."""
    inside = st.recursive(
        st.sampled_from(_SCALARS), lambda deeper: st.lists(deeper, max_size=2) | st.dictionaries(_NAMES, deeper)
    )
    bodies = inside.map(json.encode) | st.sampled_from([b"", b"{", b"\xff", b"[1", b"{}"])
    return st.builds(
        lambda name, body, metadata: letter(name, body=body, metadata=metadata),
        st.uuids().map(str),
        bodies,
        st.dictionaries(_NAMES, inside, max_size=3),
    )


def queries() -> SearchStrategy[Query]:
    """Any question, nested."""
    return nested(comparisons())


def nested(parts: SearchStrategy[Query]) -> SearchStrategy[Query]:
    """Any question that is made of these."""

    def around(inner: SearchStrategy[Query]) -> SearchStrategy[Query]:
        parts = st.lists(inner, max_size=3).map(tuple)
        return st.builds(Not, inner) | st.builds(And, parts) | st.builds(Or, parts)

    return st.recursive(parts, around, max_leaves=5)


def claims(ids: Sequence[UUID] = POOL) -> SearchStrategy[Claim]:
    """Claims of what is due, of ids (some of them unknown or repeated), and of questions."""
    some_ids = st.lists(st.sampled_from([*ids, UUID(int=7)]), max_size=5).map(tuple)
    lanes = st.sampled_from([Lane("default", source) for source in _SOURCES])
    common = {
        "owner": st.sampled_from(["ann", "bob"]),
        "lease": st.sampled_from([timedelta(hours=1), timedelta(hours=1), timedelta(hours=3)]),
        "limit": st.integers(0, 5),
    }
    what = st.builds(Due, lanes, st.booleans()) | some_ids | st.just(EVERYTHING) | queries()
    return st.builds(lambda what, how: Claim(what=what, **how), what, st.fixed_dictionaries(common))


_RETRIES = st.builds(lambda number: attempt(f"retry {number}"), st.integers(0, 10**6))


def outcomes() -> SearchStrategy[Outcome]:
    """Every way in which a claim can end."""
    return st.one_of(
        st.builds(Completed, operation=_maybe(uuids())),
        st.builds(Redriven, operation=_maybe(uuids()), unknown=_maybe(_RETRIES)),
        st.builds(Failed, attempt=_RETRIES, failure=_maybe(st.sampled_from(_FAILURES)), next_retry_at=_maybe(_NEAR)),
        st.builds(Released),
        st.builds(Postponed, until=_NEAR, why=texts()),
    )


def amendments(ids: Sequence[UUID] = POOL) -> SearchStrategy[Amendment]:
    """Changes of any fields, with and without an act, legal or not."""
    content: dict[str, SearchStrategy[Any]] = {
        "generation": _maybe(st.integers(1, 3)),
        "act": _maybe(st.sampled_from(Act)),
        "reason": _maybe(texts()),
        "body": st.binary(max_size=8),
        "body_ref": _maybe(_body_refs()),
        "content_type": texts(),
        "headers": _headers(),
        "target": st.sampled_from(["", "py:shop:other"]),
        "priority": st.integers(-1, 2),
        "tags": st.lists(st.sampled_from(["red", "green"]), max_size=2).map(tuple),
        "metadata": metadata(),
        "next_retry_at": _maybe(_NEAR),
        "expires_at": _maybe(_NEAR),
    }
    changes = st.fixed_dictionaries({}, optional=content)
    return st.builds(lambda which, fields: Amendment(id=which, **fields), st.sampled_from([*ids, UUID(int=7)]), changes)
