"""The limits of what is asked of a mailbox."""

from __future__ import annotations

from datetime import timedelta

from redrive.mailboxes.errors import InvalidParameterError
from redrive.model.errors import QueueRefused
from redrive.queues import checks

MOST_MESSAGES = 10
LONGEST_SECONDS = 43_200
_AN_INSTANT = timedelta(microseconds=1)


def name(given: str) -> str:
    """A mailbox's name follows the rules of queues' names."""
    try:
        checks.name(given)
    except QueueRefused as error:
        raise InvalidParameterError(str(error).replace("queue name", "mailbox name")) from None
    return given


def visibility(seconds: float, what: str = "visibility_timeout") -> timedelta:
    """How long a message is invisible to others; nothing at all is the shortest there is."""
    if not seconds >= 0:
        raise InvalidParameterError(f"{what} must be non-negative, got {seconds}")
    if seconds > LONGEST_SECONDS:
        raise InvalidParameterError(f"{what} must be at most {LONGEST_SECONDS} seconds, got {seconds}")
    return max(timedelta(seconds=seconds), _AN_INSTANT)


def wait(seconds: float) -> float:
    if not seconds >= 0:
        raise InvalidParameterError(f"wait_time_seconds must be non-negative, got {seconds}")
    return seconds


def messages(count: int) -> int:
    """How many are received at once: as many as asked for, within 1 to 10."""
    return min(max(count, 1), MOST_MESSAGES)


def size(most: int | None) -> int | None:
    if most is not None and most < 1:
        raise InvalidParameterError(f"max_size must be positive, got {most}")
    return most


def ttl(seconds: float) -> timedelta | None:
    """How long a message may wait; None: for as long as a queue can keep it."""
    if not seconds >= 0:
        raise InvalidParameterError(f"default_ttl must be non-negative, got {seconds}")
    return timedelta(seconds=seconds) if seconds else None
