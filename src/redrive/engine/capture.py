"""Capture: from a message and its failure to a letter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.engine.describe import clean
from redrive.engine.mint import minted
from redrive.model.backoff import named
from redrive.model.letter import Attempt, Failure, Letter, RetryPlan, letter_id
from redrive.model.message import Message
from redrive.model.status import Status


class Try(Struct, frozen=True, kw_only=True):
    """One failed try, before it belongs to a letter."""

    at: datetime
    failure: Failure
    took: timedelta | None = None


class Labels(Struct, frozen=True, kw_only=True):
    """What every letter of one guard carries."""

    namespace: str = "default"
    source: str
    retry: RetryPlan = RetryPlan()
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}


def captured(message: Message, tries: Sequence[Try], labels: Labels, *, now: datetime, occurrence: UUID | None = None) -> Letter:
    """The letter for a message whose tries all failed.

    A message that redrive had sent back becomes the same letter again, one generation on; a mark that names a letter of
    another source is not believed. A message without an id of its own gets the occurrence's id, so that two of them are
    never taken for one. `occurrence` is given by who may capture the same failure twice, and must not count it twice.
    """
    occurrence = occurrence or minted()
    own_id, generation = _identified(message, labels, str(occurrence))
    history = [
        Attempt(
            at=one.at,
            occurrence=occurrence,
            error=one.failure.type,
            message=one.failure.message,
            took=one.took,
            generation=generation,
        )
        for one in tries
    ]
    plan = _begun(labels.retry, now)
    is_exhausted = plan.max_retries is not None and plan.retry_count >= plan.max_retries
    first_at = tries[0].at - (tries[0].took or timedelta())
    return Letter(
        id=letter_id(labels.namespace, labels.source, own_id),
        namespace=labels.namespace,
        source=labels.source,
        source_id=own_id,
        generation=generation,
        body=message.body,
        content_type=message.content_type,
        headers=tuple([(clean(name), value) for name, value in message.headers]) if message.headers else (),
        key=message.key,
        kind=message.kind,
        reference=message.reference,
        origin=message.origin,
        failure=tries[-1].failure,
        history=tuple(history),
        first_received_at=first_at if message.received_at is None else aware(message.received_at),
        dead_lettered_at=now,
        updated_at=now,
        retry=plan,
        status=Status.EXHAUSTED if is_exhausted else Status.PENDING,
        tags=labels.tags,
        metadata=labels.metadata,
    )


def _identified(message: Message, labels: Labels, minted: str) -> tuple[str, int]:
    """The message's id at its source, and the generation that its failure opens."""
    own = clean(message.id) if message.id is not None else None
    if not message.headers:  # where redrive's marks would be
        return own if own is not None else minted, 1
    for candidate in (own, message.redrive_source_id):
        if candidate is not None and letter_id(labels.namespace, labels.source, candidate) == message.redrive_id:
            return candidate, message.generation + 1
    return own if own is not None else minted, 1


def source_id(message: Message, labels: Labels) -> str | None:
    """The message's id at its source, also when redrive sent it back under another; None: it has none."""
    return _identified(message, labels, "")[0] or None


def is_own(message: Message, labels: Labels) -> bool:
    """Was this message a letter of this very guard's before redrive sent it? A mark that a consumer passed on with all other
    headers is not."""
    return message.generation > 0 and _identified(message, labels, "")[1] > 1


def aware(moment: datetime) -> datetime:
    """An instant without a zone is taken as UTC, which is what brokers mean by it."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _begun(plan: RetryPlan, now: datetime) -> RetryPlan:
    """The plan with its first retry set, unless it has one or is used up from the start."""
    delay = named(plan.policy).delay(plan.retry_count)
    if plan.next_retry_at is not None or delay is None or plan.max_retries == plan.retry_count:
        return plan
    return replace(plan, next_retry_at=now + delay)
