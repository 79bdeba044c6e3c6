"""Send: a held letter goes out as a message again, and the target's answer says how the claim on it ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import assert_never
from uuid import UUID

from msgspec.structs import replace

from redrive.engine.bounded import clean
from redrive.engine.describe import describe
from redrive.engine.hold import Holder
from redrive.engine.mint import minted
from redrive.engine.redact import Redactor, unsendable, without_marks
from redrive.model.backoff import named
from redrive.model.errors import BadSettings, StoreError
from redrive.model.lease import Claimed
from redrive.model.letter import Attempt, Failure, Letter
from redrive.model.message import Message, outgoing
from redrive.model.operation import Delivered, Delivery, Refused, Unknown
from redrive.model.settlement import Completed, Failed, Outcome, Redriven, Released
from redrive.ports.aside import giving_way
from redrive.ports.transport import Transport

log = logging.getLogger("redrive.send")

_NOTHING = timedelta()
_LAST = datetime.max.replace(tzinfo=UTC)


class Sender:
    """Makes messages of letters, and sends them."""

    def __init__(self, holder: Holder, redactor: Redactor | None = None) -> None:
        self._holder = holder
        self._redactor = redactor

    async def prepared(self, claimed: Sequence[Claimed]) -> list[Message | Refused]:
        """The messages to send, or why a letter cannot be sent; the others of its batch go all the same."""
        return [
            outgoing(letter, letter.body)
            if (letter := one.letter).body_ref is None and not letter.redacted
            else await self._prepared(letter)
            for one in giving_way(claimed)
        ]

    async def _prepared(self, letter: Letter) -> Message | Refused:
        if (reason := unsendable(letter)) is not None:
            return Refused(failure=Failure(type="redrive.Redacted", message=reason), was_reached=False)
        try:
            return outgoing(without_marks(letter), await self._holder.body_of(letter))
        except StoreError as error:
            return Refused(failure=describe(error), was_reached=False)

    async def sent(self, prepared: Sequence[Message | Refused], transport: Transport) -> list[Delivery]:
        """What became of each; what could not be prepared was not sent. Nothing is told that must not be."""
        messages = [one for one in prepared if isinstance(one, Message)]
        answers = await transport.send(messages) if messages else []
        if len(answers) != len(messages):
            raise TypeError(f"{transport.name} answered for {len(answers)} of {len(messages)} messages; none can be believed")
        remaining = iter(answers)
        deliveries = [_writable(next(remaining)) if isinstance(one, Message) else one for one in prepared]
        return deliveries if self._redactor is None else [self._redactor.delivery(one) for one in deliveries]

    def refused(self, error: Exception) -> Refused:
        """What is told of letters whose target cannot be sent to."""
        failure = describe(error)
        return Refused(failure=failure if self._redactor is None else self._redactor.failure(failure), was_reached=False)


def ending(
    letter: Letter,
    delivery: Delivery,
    now: datetime,
    took: timedelta,
    *,
    operation: UUID | None = None,
    at_once: timedelta = _NOTHING,
) -> Outcome:
    """How the claim on a letter ends when this became of its sending. A retry that is to come at once comes so much later."""
    match delivery:
        case Delivered(confirmed=True):
            return Completed(operation=operation)
        case Delivered():
            return Redriven(operation=operation)
        case Refused(was_reached=False):
            return Released()
        case Refused(failure=failure):
            attempt = _attempt(letter, now, took, failure.type, failure.message)
            return Failed(attempt=attempt, failure=failure, next_retry_at=_next_retry(letter, now, at_once))
        case Unknown(reason=reason):
            attempt = replace(_attempt(letter, now, took, "unknown", reason), outcome_unknown=True)
            return Redriven(operation=operation, unknown=attempt)
        case _:
            assert_never(delivery)


def _writable(delivery: Delivery) -> Delivery:
    """What a target told, in text that every store can write."""
    match delivery:
        case Refused(failure=failure):
            texts = {name: clean(getattr(failure, name)) for name in ("type", "message", "traceback")}
            return replace(delivery, failure=replace(failure, **texts))
        case Unknown(reason=reason):
            return Unknown(reason=clean(reason))
        case _:
            return delivery


def _attempt(letter: Letter, now: datetime, took: timedelta, error: str, message: str) -> Attempt:
    return Attempt(at=now, occurrence=minted(), error=error, message=message, took=took, generation=letter.generation)


def later(now: datetime, by: timedelta) -> datetime:
    """So much later, or at the end of the calendar."""
    try:
        return now + by
    except OverflowError:
        return _LAST


def _next_retry(letter: Letter, now: datetime, at_once: timedelta) -> datetime | None:
    try:
        delay = named(letter.retry.policy).delay(letter.retry.retry_count + 1)
        return None if delay is None else now + (delay or at_once)
    except (BadSettings, OverflowError):
        # Another release's policy, or a time beyond the calendar: a person decides.
        return None
    except Exception:
        log.exception("the retry policy '%s' failed; letter %s waits for a person", letter.retry.policy, letter.id)
        return None
