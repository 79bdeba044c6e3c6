"""Clock hours: the same for an instant however it is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from redrive.model.hours import HOUR, hour_of, start_of
from redrive.model.instant import instant, micros

ZONES = [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-8))]
INSTANTS = st.integers(micros(datetime(2, 1, 1, tzinfo=UTC)), micros(datetime(9998, 1, 1, tzinfo=UTC))).map(instant)


@given(INSTANTS, st.sampled_from(ZONES))
def test_an_hour_is_the_same_in_every_zone(at: datetime, zone: timezone) -> None:
    assert hour_of(at) == hour_of(at.astimezone(zone)) == micros(at) // HOUR


@given(INSTANTS)
def test_an_hour_begins_less_than_an_hour_before_what_lies_in_it(at: datetime) -> None:
    assert timedelta() <= at - start_of(hour_of(at)) < timedelta(hours=1)
