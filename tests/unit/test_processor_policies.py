"""When the next retry comes: at once, by a backoff of one's own, or when a person decides."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import redrive
from redrive import Pace, RetryPlan, Status
from redrive.ports import LetterStore
from redrive.testing import START
from tests.contract.backends import sqlite_letters
from tests.unit.test_processor import Handler, due, opened, seen, settled, tell
from tests.unit.test_processor_outcomes import Heard, put_off, raising
from tests.unit.waiting import until

HOURLY = Pace(interval=timedelta(hours=1))


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


def test_an_unknown_retry_policy_is_put_off_and_says_so(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            handler = Handler()
            (after,) = await put_off(dlq, handler.work, due("a", policy="of tomorrow"))
            assert after.retry.waits_for == "the retry policy 'of tomorrow', which this process does not know"
            assert handler.calls == []

    tell(story())


def at_zero(retries: int) -> timedelta:
    return timedelta()


@pytest.mark.parametrize("policy", ["immediate", "test-zero"])
def test_a_retry_at_once_respects_the_interval(policy: str, store: LetterStore) -> None:
    redrive.register_backoff("test-zero", at_zero)

    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a", policy=policy, max_retries=None)])
            heard, handler = Heard(), Handler(fails=lambda name: True)
            before = datetime.now(UTC)
            async with dlq.processor({"orders": handler.work}, pace=HOURLY, listener=heard):
                await until(lambda: bool(heard.all))
            after = (await seen(dlq, one)).retry.next_retry_at
            assert after is not None
            assert after - before >= timedelta(hours=1)
            assert handler.calls == ["a"]

    tell(story())


def weekly(retries: int) -> timedelta | None:
    return timedelta(weeks=retries) if retries < 3 else None


def broken(retries: int) -> timedelta:
    raise ZeroDivisionError("a mistake in a backoff")


def wrong(retries: int) -> Any:
    return 60


def endless(retries: int) -> timedelta:
    return timedelta.max


def test_a_backoff_of_ones_own_decides_by_its_name(store: LetterStore) -> None:
    redrive.register_backoff("test-weekly", weekly)

    async def story() -> None:
        async with opened(store) as dlq:
            plan = RetryPlan(policy="test-weekly", retry_count=2, next_retry_at=START)
            letters = [due("a", policy="test-weekly"), due("b", retry=plan)]
            await dlq.letters.put(letters)
            heard, before = Heard(), datetime.now(UTC)
            async with dlq.processor({"orders": raising}, pace=HOURLY, listener=heard):
                await until(lambda: len(heard.all) == 2)
            first, second = [(await seen(dlq, one)).retry for one in letters]
            assert first.next_retry_at is not None
            assert timedelta(weeks=1) <= first.next_retry_at - before < timedelta(weeks=1, minutes=5)
            assert (second.next_retry_at, second.retry_count) == (None, 3)

    tell(story())


@pytest.mark.parametrize("function", [broken, wrong, endless])
def test_a_backoff_that_is_broken_leaves_the_letter_to_a_person_with_its_failure_counted(
    function: Callable[[int], Any], store: LetterStore
) -> None:
    redrive.register_backoff(f"test-{function.__name__}", function)

    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a", policy=f"test-{function.__name__}"), good := due("b", source="mails")])
            heard = Heard()
            async with dlq.processor({"orders": raising, "mails": Handler().work}, pace=HOURLY, listener=heard):
                await until(lambda: len(heard.all) == 2)
                await settled(dlq, good)
            letter = await seen(dlq, one)
            assert (letter.status, letter.retry.retry_count, letter.retry.next_retry_at) == (Status.PENDING, 1, None)

    tell(story())


def test_an_interval_beyond_the_calendar_is_no_error(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            (after,) = await put_off(dlq, raising, due("a", policy="of tomorrow"), pace=Pace(interval=timedelta.max))
            assert after.retry.next_retry_at is not None
            assert after.retry.next_retry_at.year > 9000

    tell(story())
