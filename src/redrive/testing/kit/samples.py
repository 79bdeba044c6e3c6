"""Letters to test with, made by hand: each by a name, and all else as a test says."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from redrive.model.lane import Lane
from redrive.model.letter import (
    Attempt,
    Failure,
    Letter,
    RetryPlan,
    letter_id,
)
from redrive.model.query import Not, Query
from redrive.model.settlement import Completed, Failed, Outcome, Postponed, Redriven, Released
from redrive.model.status import Status

START = datetime(2025, 1, 1, 12, tzinfo=UTC)
"""When tests begin: before any host's clock, so that what is written here is past for a store's own clock too."""


LANE = Lane("default", "orders")
"""Where the letters made here are, unless a test says otherwise."""

STORED = tuple(status for status in Status if status is not Status.RETRYING)
"""The statuses a letter can be stored in."""


def is_chaos() -> bool:
    """Were thousands asked for, instead of some thirty?"""
    return bool(os.environ.get("REDRIVE_CHAOS"))


def occurrence(name: str) -> UUID:
    """The occurrence id that belongs to this name."""
    return uuid5(NAMESPACE_OID, name)


def attempt(name: str, *, at: datetime = START, **changes: Any) -> Attempt:
    """A try that failed, with an occurrence id of its name."""
    return Attempt(at=at, occurrence=occurrence(name), **changes)


def failure(type: str = "builtins.TimeoutError", message: str = "no answer", **changes: Any) -> Failure:
    """A failure whose fingerprint is its type, unless one is given."""
    return Failure(type=type, message=message, **{"fingerprint": type, **changes})


def letter(
    name: str = "1",
    *,
    failed: int | str = 1,
    at: datetime = START,
    source: str = "orders",
    namespace: str = "default",
    due: datetime | None = None,
    **changes: Any,
) -> Letter:
    """A letter as a capture makes it. Its name is the message's id; `failed` tells one failure of it from another."""
    values: dict[str, Any] = {
        "id": letter_id(namespace, source, name),
        "source_id": name,
        "failure": failure(),
        "first_received_at": at,
        "dead_lettered_at": at,
        "updated_at": at,
        "body": f"body of {name}".encode(),
        "history": (attempt(f"{namespace}/{source}/{name}/{failed}", at=at),),
        "retry": RetryPlan(next_retry_at=due),
    }
    return Letter(source=source, namespace=namespace, **(values | changes))


def nested(depth: int, part: Query) -> Query:
    """The part, denied an even number of times: the same question, deep."""
    return reduce(lambda inner, _: Not(inner), range(2 * depth), part)


OPERATION = occurrence("operation")

OUTCOMES: list[Outcome] = [
    Completed(),
    Completed(operation=OPERATION),
    Redriven(),
    Redriven(operation=OPERATION, unknown=attempt("lost", outcome_unknown=True)),
    Failed(attempt=attempt("again")),
    Failed(attempt=attempt("again"), failure=failure("other.Error"), next_retry_at=START + timedelta(hours=1)),
    Released(),
    Postponed(until=START + timedelta(hours=1), why="wf_a has not succeeded yet"),
]
"""All the ways in which a claim can end."""
