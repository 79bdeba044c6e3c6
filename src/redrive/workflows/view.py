"""Asking for letters in this room's words, and counting them so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from redrive.model.query import And, Field, Is, Or, Query
from redrive.model.status import Status
from redrive.workflows.names import STATUSES, DeadLetterStatus

ACTIVE = (DeadLetterStatus.PENDING, DeadLetterStatus.RETRYING, DeadLetterStatus.EXHAUSTED)
"""What is in the queue; the others are kept in the record."""


def among(source: str, statuses: Iterable[DeadLetterStatus]) -> Query:
    """The letters of a queue that stand so."""
    wanted = set(statuses)
    known = [status for status in Status if STATUSES[status] in wanted]
    return And((Is(Field.SOURCE, source), Or(tuple(Is(Field.STATUS, status.value) for status in known))))


def summed(tally: Mapping[str, int]) -> dict[str, int]:
    """How many stand so, in this room's words; every word is there."""
    totals = {status.value: 0 for status in DeadLetterStatus}
    for status, count in tally.items():
        totals[STATUSES[Status(status)].value] += count
    return totals
