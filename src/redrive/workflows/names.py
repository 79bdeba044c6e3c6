"""The words of the workflow DLQ, and what they are here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from redrive.model.category import Category
from redrive.model.errors import BadSettings
from redrive.model.hint import hint
from redrive.model.status import Status

ErrorCategory = Category


class RetryPolicy(StrEnum):
    """How a task is retried. A backoff of your own goes by the name it was registered with (`redrive.register_backoff`)."""

    NEVER = "never"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"
    IMMEDIATE = "immediate"


class DeadLetterStatus(StrEnum):
    PENDING = "pending"
    RETRYING = "retrying"
    EXHAUSTED = "exhausted"
    COMPLETED = "completed"
    ARCHIVED = "archived"


class DLQIntegrationStrategy(StrEnum):
    AUTOMATIC = "automatic"
    """Every workflow that failed is enqueued."""
    SELECTIVE = "selective"
    """Only those that a retry could mend: transient, network and resource errors."""
    MANUAL = "manual"
    """Only those that somebody enqueues."""
    DISABLED = "disabled"
    """None."""


STATUSES: Mapping[Status, DeadLetterStatus] = MappingProxyType(
    {
        Status.PENDING: DeadLetterStatus.PENDING,
        Status.RETRYING: DeadLetterStatus.RETRYING,
        Status.EXHAUSTED: DeadLetterStatus.EXHAUSTED,
        Status.QUARANTINED: DeadLetterStatus.EXHAUSTED,
        Status.REDRIVEN: DeadLetterStatus.COMPLETED,
        Status.COMPLETED: DeadLetterStatus.COMPLETED,
        Status.ARCHIVED: DeadLetterStatus.ARCHIVED,
        Status.DISCARDED: DeadLetterStatus.ARCHIVED,
    }
)
"""Where a letter stands, in this room's words."""

Word = TypeVar("Word", bound=StrEnum)


def chosen(kind: type[Word], given: str, what: str) -> Word:
    """The word that is meant; `BadSettings` with the nearest one when there is no such."""
    if given not in list(kind):
        raise BadSettings(f"'{given}' is no {what}; {hint(str(given), kind)}")
    return kind(given)


PRIORITIES: Mapping[str, int] = MappingProxyType({"high": 10, "medium": 0, "low": -10})
_FURTHEST = 2**31 - 1


def priority_of(given: int | str | None, metadata: Mapping[str, Any]) -> int:
    """A priority as a number: as given, else as the metadata say, else in the middle."""
    if given is None:
        told = metadata.get("priority")
        if isinstance(told, int):
            return _within(told)
        return PRIORITIES.get(told.lower(), 0) if isinstance(told, str) else 0
    if isinstance(given, int):
        return _within(given)
    if given.lower() not in PRIORITIES:
        raise BadSettings(f"'{given}' is no priority; {hint(given, PRIORITIES)}, or a number")
    return PRIORITIES[given.lower()]


def _within(priority: int) -> int:
    """The number, or the nearest one that every store can hold."""
    return max(-_FURTHEST, min(priority, _FURTHEST))
