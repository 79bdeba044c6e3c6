"""Judgement: how often to try, and what the verdict is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive import BadSettings, Bury, Policy, Retry, custom, exponential, never

ERROR = ValueError("bad")


def test_max_attempts_counts_the_first_try() -> None:
    policy = Policy(max_attempts=3)
    assert [policy.judge(ERROR, attempts) for attempts in (1, 2, 3, 4)] == [
        Retry(timedelta(0)),
        Retry(timedelta(0)),
        Bury(),
        Bury(),
    ]


def test_one_attempt_means_no_retry() -> None:
    assert Policy(max_attempts=1).judge(ERROR, 1) == Bury()


def test_by_default_there_are_three_tries_without_a_wait() -> None:
    assert [Policy().judge(ERROR, attempts) for attempts in (1, 2, 3)] == [Retry(timedelta(0)), Retry(timedelta(0)), Bury()]


@pytest.mark.parametrize("attempts", [0, -1])
def test_fewer_than_one_attempt_is_refused_in_one_sentence(attempts: int) -> None:
    with pytest.raises(BadSettings, match=rf"max_attempts must be at least 1, got {attempts}; 1 means: no retry"):
        Policy(max_attempts=attempts)


def test_the_first_retry_waits_the_first_delay() -> None:
    policy = Policy(max_attempts=5, backoff=exponential(timedelta(seconds=1), cap=timedelta(seconds=3)))
    assert [policy.judge(ERROR, attempts) for attempts in (1, 2, 3, 4)] == [
        Retry(timedelta(seconds=seconds)) for seconds in (1, 2, 3, 3)
    ]


def test_a_backoff_that_stops_buries() -> None:
    assert Policy(max_attempts=9, backoff=never()).judge(ERROR, 1) == Bury()
    until_two = custom(lambda count: None if count else timedelta(seconds=1))
    assert [Policy(max_attempts=9, backoff=until_two).judge(ERROR, attempts) for attempts in (1, 2)] == [
        Retry(timedelta(seconds=1)),
        Bury(),
    ]


def test_the_roll_reaches_the_backoff() -> None:
    policy = Policy(backoff=exponential(timedelta(seconds=10), jitter=0.5))
    assert policy.judge(ERROR, 1, roll=0.0) == Retry(timedelta(seconds=5))
    assert policy.judge(ERROR, 1) == Retry(timedelta(seconds=10))
