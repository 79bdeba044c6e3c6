"""A bucket lets no more pass than its rate, whatever the clock does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.model.bucket import Bucket

SECOND_US = 1_000_000
NOW_US = 1_735_732_800 * SECOND_US


@pytest.mark.parametrize(("rate", "held"), [(5.0, 5), (1.0, 1), (2.7, 2), (0.1, 1)])
def test_a_new_bucket_holds_one_seconds_worth_and_at_least_one(rate: float, held: int) -> None:
    assert Bucket().filled(rate, NOW_US).whole == held


def test_what_is_taken_comes_back_at_the_rate() -> None:
    bucket = Bucket().filled(4.0, NOW_US).less(4)
    assert bucket.whole == 0
    assert [bucket.filled(4.0, NOW_US + quarter * SECOND_US // 4).whole for quarter in range(7)] == [0, 1, 2, 3, 4, 4, 4]


def test_one_that_is_looked_at_often_fills_no_slower() -> None:
    bucket = Bucket().filled(3.0, NOW_US).less(3)
    for step in range(1, 1001):
        bucket = bucket.filled(3.0, NOW_US + step * 1000)
    assert bucket.whole == 3


def test_a_clock_that_goes_back_adds_nothing_and_takes_nothing() -> None:
    bucket = Bucket().filled(2.0, NOW_US).less(1)
    back = bucket.filled(2.0, NOW_US - 60 * SECOND_US)
    assert back == bucket
    assert back.filled(2.0, NOW_US).whole == 1


@pytest.mark.parametrize(("rate", "left", "wait_us"), [(2.0, 0.0, 500_000), (0.1, 0.0, 10_000_000), (4.0, 0.5, 125_000)])
def test_the_wait_is_until_one_more_is_there(rate: float, left: float, wait_us: int) -> None:
    bucket = Bucket(left, NOW_US)
    assert bucket.wait_us(rate) == wait_us
    assert bucket.filled(rate, NOW_US + wait_us - 2).whole == 0
    assert bucket.filled(rate, NOW_US + wait_us).whole == 1


def test_nobody_waits_for_less_than_a_microsecond() -> None:
    assert Bucket(0.999_999_999_9, NOW_US).wait_us(1e6) == 1


@given(
    rate=st.floats(0.01, 1000),
    steps=st.lists(st.tuples(st.integers(-SECOND_US, 2 * SECOND_US), st.integers(1, 50)), min_size=1, max_size=40),
)
@settings(derandomize=True, database=None, deadline=None, max_examples=50)
def test_no_more_is_ever_taken_than_the_rate_allows(rate: float, steps: list[tuple[int, int]]) -> None:
    bucket, now_us, taken, latest_us = Bucket(), NOW_US, 0, NOW_US
    for passed_us, wanted in steps:
        now_us += passed_us
        latest_us = max(latest_us, now_us)
        bucket = bucket.filled(rate, now_us)
        count = min(wanted, bucket.whole)
        bucket = bucket.less(count)
        taken += count
        assert taken <= max(rate, 1.0) + rate * (latest_us - NOW_US) / SECOND_US + 1e-3
