"""Instants as whole microseconds since 1970: exact, ordered, small."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(instant: datetime) -> int:
    return (instant - EPOCH) // _MICROSECOND


def instant(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
