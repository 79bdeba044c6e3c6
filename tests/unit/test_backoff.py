"""How long to wait: the four policies with the delays of the workflow document, jitter, and functions of one's own."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import custom, exponential, immediate, linear, never
from redrive.model.backoff import Backoff

MINUTE = timedelta(minutes=1)


def test_never_means_that_a_person_decides() -> None:
    assert [never().delay(count) for count in (0, 1, 1000)] == [None, None, None]


def test_immediate_waits_for_nothing() -> None:
    assert [immediate().delay(count) for count in (0, 1, 1000)] == [timedelta(0)] * 3


def test_linear_waits_five_minutes_more_each_time() -> None:
    assert [linear().delay(count) for count in range(6)] == [5 * (count + 1) * MINUTE for count in range(6)]


def test_exponential_doubles_from_a_minute_to_an_hour() -> None:
    delays = [exponential().delay(count) for count in range(10)]
    assert delays == [min(2**count, 60) * MINUTE for count in range(10)]
    assert delays[:8] == [minutes * MINUTE for minutes in (1, 2, 4, 8, 16, 32, 60, 60)]


def test_step_cap_first_and_factor_can_be_chosen() -> None:
    assert [linear(timedelta(seconds=2), cap=timedelta(seconds=5)).delay(count) for count in range(4)] == [
        timedelta(seconds=seconds) for seconds in (2, 4, 5, 5)
    ]
    tripling = exponential(timedelta(seconds=1), cap=timedelta(seconds=20), factor=3)
    assert [tripling.delay(count) for count in range(4)] == [timedelta(seconds=seconds) for seconds in (1, 3, 9, 20)]
    assert exponential(timedelta(hours=2)).delay(0) == timedelta(hours=1)
    assert exponential(timedelta(0)).delay(5000) == timedelta(0)


@pytest.mark.parametrize("count", [10, 64, 1_000, 1_100, 10**6, 10**12])
def test_a_count_beyond_all_reason_still_gives_a_delay(count: int) -> None:
    assert exponential().delay(count) == timedelta(minutes=60)
    assert exponential(jitter=0.2).delay(count, roll=0.999) is not None
    assert linear(cap=timedelta(minutes=20)).delay(count) == timedelta(minutes=20)
    assert (linear().delay(count) or timedelta(0)) >= linear().base(0)


@pytest.mark.parametrize(
    "backoff", [linear(timedelta(days=1), jitter=0.5), exponential(timedelta(days=1), cap=timedelta.max, jitter=0.5)]
)
def test_the_longest_delay_there_is_survives_jitter(backoff: Backoff) -> None:
    for roll in (0.0, 0.5, 0.999999):
        assert (backoff.delay(999_999_998, roll=roll) or timedelta(0)) > timedelta(0)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    count=st.integers(0, 40),
    roll=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
)
def test_jitter_spreads_each_delay_by_its_share_and_no_more(count: int, roll: float, jitter: float) -> None:
    for plain, spread in (
        (linear(), linear(jitter=jitter)),
        (exponential(), exponential(jitter=jitter)),
        (custom(lambda _: MINUTE), custom(lambda _: MINUTE, jitter=jitter)),
    ):
        base, delay = plain.delay(count), spread.delay(count, roll=roll)
        assert base is not None
        assert delay is not None
        assert timedelta(0) <= delay
        assert abs(delay - base) <= base * jitter + timedelta(microseconds=1)


def test_the_roll_decides_the_jitter() -> None:
    spread = exponential(jitter=0.2)
    assert spread.delay(0, roll=0.0) == 0.8 * MINUTE
    assert spread.delay(0, roll=0.5) == MINUTE
    assert 1.19 * MINUTE < (spread.delay(0, roll=0.999) or timedelta(0)) < 1.2 * MINUTE
    assert spread.delay(3) == exponential().delay(3)


def test_jitter_never_makes_a_delay_negative() -> None:
    assert linear(jitter=7.0).delay(0, roll=0.0) == timedelta(0)


def test_a_function_of_ones_own_gets_the_count_and_may_stop() -> None:
    seen = []

    def mine(count: int) -> timedelta | None:
        seen.append(count)
        return timedelta(seconds=count) if count < 2 else None

    backoff = custom(mine, jitter=0.5)
    assert [backoff.delay(count) for count in range(3)] == [timedelta(0), timedelta(seconds=1), None]
    assert seen == [0, 1, 2]


def test_a_backoff_of_ones_own_that_says_nothing_is_told_so() -> None:
    class Silent(Backoff, frozen=True, kw_only=True, tag="silent"):
        pass

    with pytest.raises(TypeError, match=r"Silent does not say how long to wait: override base\(\)"):
        Silent().delay(0)


def test_a_backoff_cannot_be_changed_after_it_was_made() -> None:
    with pytest.raises(AttributeError):
        exponential().cap = timedelta(0)  # type: ignore[misc]  # that it is refused is what is tested
