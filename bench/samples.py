"""Letters to measure with: a body of 1 KB, one attempt, a short traceback."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from redrive.model.category import Category
from redrive.model.lane import Lane
from redrive.model.letter import Attempt, Failure, Letter, RetryPlan, letter_id

BODY = b'{"order": 4711, "note": "' + b"x" * 997 + b'"}'
"""1 KB of JSON."""


LANE = Lane("default", "orders")
_START = datetime(2025, 1, 1, tzinfo=UTC)
_NEVER = RetryPlan()
_FAILURE = Failure(
    type="builtins.TimeoutError",
    message="connection to stock.internal:5432 timed out after 3 s",
    category=Category.TRANSIENT,
    traceback='Traceback (most recent call last):\n  File "shop/orders.py", line 42, in handle\n    stock.reserve(order)\n',
    fingerprint="5f2b8c1e9a7d4036",
    fingerprint_version=1,
)


def letters(count: int, *, source: str = "orders", is_due: bool = False, first: int = 0) -> list[Letter]:
    """So many different letters, each a second younger than the one before; due for a retry, or waiting for a person."""
    return [_letter(number, source, is_due) for number in range(first, first + count)]


def _letter(number: int, source: str, is_due: bool) -> Letter:
    at = _START + timedelta(seconds=number)
    source_id = f"order-{number}"
    return Letter(
        id=letter_id("default", source, source_id),
        source=source,
        source_id=source_id,
        body=BODY,
        content_type="application/json",
        failure=_FAILURE,
        history=(Attempt(at=at, occurrence=UUID(int=number + 1), error=_FAILURE.type, message=_FAILURE.message),),
        first_received_at=at,
        dead_lettered_at=at,
        updated_at=at,
        retry=RetryPlan(policy="exponential", max_retries=5, next_retry_at=at) if is_due else _NEVER,
    )
