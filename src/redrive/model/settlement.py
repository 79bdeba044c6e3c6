"""Settling: how a claim ends."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from redrive.model.lease import Claimed, Lease
from redrive.model.letter import Attempt, Failure, Letter, RedriveMark, RetryPlan, with_attempts
from redrive.model.status import Status


class Completed(Struct, frozen=True, kw_only=True, gc=False, tag="completed"):
    """It worked: its handler said so."""

    operation: UUID | None = None


class Redriven(Struct, frozen=True, kw_only=True, gc=False, tag="redriven"):
    """It was sent back; whether it works is still open. With `unknown`, even the sending's answer was lost."""

    operation: UUID | None = None
    unknown: Attempt | None = None


class Failed(Struct, frozen=True, kw_only=True, gc=False, tag="failed"):
    """It failed again."""

    attempt: Attempt
    failure: Failure | None = None
    next_retry_at: datetime | None = None


class Released(Struct, frozen=True, kw_only=True, gc=False, tag="released"):
    """Given back untouched."""


class Postponed(Struct, frozen=True, kw_only=True, gc=False, tag="postponed"):
    """Given back untried: there is no use in trying before `until`, and `why` says why."""

    until: datetime
    why: str


Outcome = Completed | Redriven | Failed | Released | Postponed


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """The end of one claim. Id, token and generation must all still hold, else nothing is changed."""

    id: UUID
    token: int
    generation: int
    outcome: Outcome
    known: tuple[int, Letter] | None = None
    """The letter as it was when it was claimed, with its number, for a store that made these known then. It looks whether that still
    holds."""

    @classmethod
    def of(cls, lease: Lease, outcome: Outcome) -> Settlement:
        return cls(id=lease.id, token=lease.token, generation=lease.generation, outcome=outcome)

    @classmethod
    def ending(cls, claimed: Claimed, outcome: Outcome) -> Settlement:
        """The end of this claim."""
        lease = claimed.lease
        return cls(id=lease.id, token=lease.token, generation=lease.generation, outcome=outcome, known=claimed.known)


class Settled(StrEnum):
    """What became of one settlement."""

    DONE = "done"
    LEASE_LOST = "lease_lost"
    """The lease is over, was never this one's, or the letter was reopened meanwhile."""
    MISSING = "missing"


def settled(letter: Letter, outcome: Outcome, now: datetime) -> Letter:
    """The letter after its claim ended this way. The caller has checked the lease."""
    match outcome:
        case Completed(operation=operation):
            return replace(
                letter,
                status=Status.COMPLETED,
                updated_at=now,
                retry=_planned(letter, None),
                redrive=_marked(letter, operation, now),
            )
        case Redriven(operation=operation, unknown=unknown):
            return replace(
                with_attempts(letter, [unknown] if unknown else []),
                status=Status.REDRIVEN,
                updated_at=now,
                retry=_planned(letter, None),
                redrive=_marked(letter, operation, now),
            )
        case Failed(attempt=attempt, failure=failure, next_retry_at=next_retry_at):
            count = letter.retry.retry_count + 1
            limit = letter.retry.max_retries
            exhausted = limit is not None and count >= limit
            return replace(
                with_attempts(letter, [attempt]),
                status=Status.EXHAUSTED if exhausted else letter.status,
                updated_at=now,
                failure=failure or letter.failure,
                retry=replace(_planned(letter, None if exhausted else next_retry_at), retry_count=count),
            )
        case Released():
            return letter
        case Postponed(until=until, why=why):
            # For a letter that is not retried by itself there is nothing to put off.
            is_planned = letter.status is Status.PENDING and letter.retry.next_retry_at is not None
            return replace(letter, retry=_planned(letter, until if is_planned else None, why))
        case _:
            assert_never(outcome)


def _planned(letter: Letter, at: datetime | None, why: str = "") -> RetryPlan:
    retry = letter.retry
    is_so = retry.next_retry_at is at is None and retry.waits_for == why
    return retry if is_so else replace(retry, next_retry_at=at, waits_for=why)


def _marked(letter: Letter, operation: UUID | None, now: datetime) -> RedriveMark:
    return RedriveMark(count=letter.redrive.count + 1, last_at=now, operation=operation or letter.redrive.operation)
