"""Clock hours: what counts by time are kept in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from redrive.model.instant import EPOCH, instant, micros

HOUR = 3_600_000_000
"""An hour in microseconds."""

_EPOCH_DAY = EPOCH.toordinal()

SHOWN = 24
"""Hours that a group's sparkline shows."""


def hour_of(moment: datetime) -> int:
    """The number of the hour that an instant lies in, counted from 1970."""
    if moment.tzinfo is UTC:  # as stores have it: twice as fast
        return (moment.toordinal() - _EPOCH_DAY) * 24 + moment.hour
    return micros(moment) // HOUR


def start_of(hour: int) -> datetime:
    """When an hour begins."""
    return instant(hour * HOUR)


def growth(hours: Sequence[int]) -> int:
    """How much faster letters come: those of the last two hours, less those of the two before them."""
    return sum(hours[-2:]) - sum(hours[-4:-2])
