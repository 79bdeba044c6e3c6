"""What it means that a letter arrives: is it new, one more attempt, a reopening, or known already?"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from redrive.model.letter import Attempt, Letter, trimmed
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
    if known is None:
        return arriving, Held.NEW
    occurrences = {attempt.occurrence for attempt in known.history}
    fresh = tuple(attempt for attempt in arriving.history if attempt.occurrence not in occurrences)
    if not fresh:
        return known, Held.DUPLICATE
    was_redriven = arriving.generation > 1
    if was_redriven and arriving.generation < known.generation:
        return known, Held.DUPLICATE
    if arriving.generation > known.generation:
        return _reopened(known, arriving, fresh, arriving.generation, now), Held.REOPENED
    if known.status in OPEN:
        history, dropped = trimmed((*known.history, *fresh), known.history_dropped)
        merged = replace(known, failure=arriving.failure, history=history, history_dropped=dropped, updated_at=now)
        return merged, Held.ATTEMPT
    if was_redriven:
        return known, Held.DUPLICATE
    return _reopened(known, arriving, fresh, known.generation + 1, now), Held.REOPENED


def _reopened(known: Letter, arriving: Letter, fresh: tuple[Attempt, ...], generation: int, now: datetime) -> Letter:
    """The known letter, opened again: identity, story and repairs stay; content and failure are the latest."""
    again = tuple(replace(attempt, generation=generation) for attempt in fresh)
    history, dropped = trimmed((*known.history, *again), known.history_dropped + arriving.history_dropped)
    return replace(
        arriving,
        namespace=known.namespace,
        source=known.source,
        source_id=known.source_id,
        generation=generation,
        status=Status.PENDING if arriving.status not in OPEN else arriving.status,
        first_received_at=min(known.first_received_at, arriving.first_received_at),
        updated_at=now,
        history=history,
        history_dropped=dropped,
        tags=tuple(dict.fromkeys((*known.tags, *arriving.tags))),
        metadata={**known.metadata, **arriving.metadata},
        redrive=known.redrive,
        original=known.original,
    )
