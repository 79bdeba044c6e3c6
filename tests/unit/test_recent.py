"""A group's last hours: what is known of them is what came, whatever comes and goes in which order."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from redrive.model.hours import SHOWN, growth
from redrive.model.recent import Recent, packed, recent, unpacked

HOURS = st.integers(0, 100)
CHANGES = st.lists(st.dictionaries(HOURS, st.integers(-5, 5).filter(bool), min_size=1, max_size=6), min_size=1, max_size=12)


def told(changes: list[dict[int, int]]) -> tuple[Recent, Counter[int]]:
    """What is known after these changes, each from the bytes of the one before; and all that came."""
    known, all_of_it = None, Counter[int]()
    for change in changes:
        known = packed(recent(known, change))
        all_of_it.update(change)
    assert known is not None
    return unpacked(known), all_of_it


@given(CHANGES)
def test_all_from_the_first_hour_that_is_known_is_told_and_nothing_before(changes: list[dict[int, int]]) -> None:
    known, came = told(changes)
    assert known.latest == max(hour for change in changes for hour in change)
    assert known.hours() == {hour: count for hour, count in came.items() if count and hour >= known.first}


@given(CHANGES, HOURS)
def test_the_hours_shown_are_those_that_came_or_are_not_known(changes: list[dict[int, int]], hour: int) -> None:
    known, came = told(changes)
    shown = [came[at] for at in range(hour - SHOWN + 1, hour + 1)]
    is_known = hour - SHOWN + 1 >= known.first
    assert known.until(hour) == (shown if is_known else None)
    grown = known.growth(hour)
    assert grown == growth(shown) if hour - 3 >= known.first else grown is None


def test_a_listing_of_some_hours_ago_is_known() -> None:
    known, _ = told([{hour: 1} for hour in range(100)])
    assert known.until(99) == known.until(91) == [1] * SHOWN
    assert known.until(90) is None


def test_a_group_that_comes_every_hour_takes_few_bytes() -> None:
    known, _ = told([{hour: 100} for hour in range(480_000, 490_000)])
    assert len(packed(known)) < 50
