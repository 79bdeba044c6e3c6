"""What it means that a letter arrives: is it new, one more attempt, a reopening, or known already?"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from redrive.model.letter import Attempt, Letter, occurrences, original_of, with_attempts
from redrive.model.status import OPEN, Status


class Held(StrEnum):
    """How a letter was held."""

    NEW = "new"
    ATTEMPT = "attempt"
    """Added to an open letter's history."""
    REOPENED = "reopened"
    """The message failed again after it had left: same letter, next generation, every lease void."""
    DUPLICATE = "duplicate"
    """Known already; nothing was changed."""
    JOURNALED = "journaled"
    """The store is down: the letter is in the local journal and goes to the store when it is back."""


def arrive(known: Letter | None, arriving: Letter, now: datetime) -> tuple[Letter, Held]:
    """The letter as it is after `arriving` came in, and how it was held.

    A message that redrive sent carries the generation it was sent at, and arrives here one higher; a message
    without that mark arrives as generation 1, and is taken as a fresh failure whenever the letter had left.
    """
    if arriving.status is Status.RETRYING:
        # It was read while somebody held it elsewhere; that lease is not ours.
        arriving = replace(arriving, status=Status.PENDING)
    if known is None and len(arriving.history) < 2:
        return arriving, Held.NEW
    if known is None:
        return with_attempts(replace(arriving, history=()), arriving.history), Held.NEW
    seen = occurrences(known)
    fresh = [attempt for attempt in arriving.history if attempt.occurrence.bytes not in seen]
    if not fresh:
        return known, Held.DUPLICATE
    # No message was sent at a generation that this letter has not reached.
    arriving = replace(arriving, generation=min(arriving.generation, known.generation + 1))
    was_redriven = arriving.generation > 1
    if was_redriven and arriving.generation < known.generation:
        return known, Held.DUPLICATE
    if arriving.generation > known.generation:
        return _reopened(known, arriving, fresh, arriving.generation, now), Held.REOPENED
    if known.status in OPEN:
        dropped = known.history_dropped + arriving.history_dropped
        latest = replace(known, failure=arriving.failure, updated_at=now, history_dropped=dropped)
        return with_attempts(latest, fresh), Held.ATTEMPT
    if was_redriven:
        return known, Held.DUPLICATE
    return _reopened(known, arriving, fresh, known.generation + 1, now), Held.REOPENED


def _reopened(known: Letter, arriving: Letter, fresh: list[Attempt], generation: int, now: datetime) -> Letter:
    """The known letter, opened again: identity, story and repairs stay; content and failure are the latest."""
    is_same = _is_same_content(known, arriving)
    letter = replace(
        arriving,
        body_ref=known.body_ref if is_same else arriving.body_ref,
        namespace=known.namespace,
        source=known.source,
        source_id=known.source_id,
        generation=generation,
        status=arriving.status if arriving.status in OPEN else Status.PENDING,
        first_received_at=min(known.first_received_at, arriving.first_received_at),
        updated_at=now,
        history=known.history,
        history_dropped=known.history_dropped + arriving.history_dropped,
        forgotten=known.forgotten,
        target=arriving.target or known.target,
        priority=arriving.priority or known.priority,
        expires_at=arriving.expires_at or known.expires_at,
        tags=tuple(dict.fromkeys((*known.tags, *arriving.tags))),
        metadata={**known.metadata, **arriving.metadata},
        redrive=known.redrive,
        original=known.original or (None if is_same else original_of(known)),
    )
    return with_attempts(letter, [replace(attempt, generation=generation) for attempt in fresh])


def _is_same_content(known: Letter, arriving: Letter) -> bool:
    if known.body_ref is None or arriving.body_ref is None:
        return known.body_ref == arriving.body_ref and known.body == arriving.body
    return known.body_ref.sha256 == arriving.body_ref.sha256
