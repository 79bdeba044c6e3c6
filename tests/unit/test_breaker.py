"""Circuit breakers: by themselves, and before a source whose letters are retried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import BadSettings, Lane, Message, Pace, Status
from redrive.engine.retry import Breakers, Retried
from redrive.model.breaker import DENIED, Breaker, BreakerState
from redrive.model.operation import Delivered, Delivery, Unknown
from redrive.ports import LetterStore
from tests.contract.backends import sqlite_letters
from tests.unit.targets import Target
from tests.unit.test_processor import Handler, due, opened, seen, settled, tell
from tests.unit.waiting import until

ORDERS = Lane("default", "orders")
SHORT = Pace(concurrency=1, interval=timedelta(milliseconds=20))


def tripped(failures: int = 5, *, at: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(failures):
        breaker.failed(breaker.passes(at), at)
    return breaker


def test_it_opens_at_the_fifth_failure_in_a_row_and_rests_for_a_minute() -> None:
    assert tripped(4).state(0) is BreakerState.CLOSED
    breaker = tripped(5, at=100)
    assert (breaker.state(100), breaker.passes(100), breaker.can_pass(159.9)) == (BreakerState.OPEN, 0, False)
    assert breaker.rest_left(130) == timedelta(seconds=30)
    assert (breaker.state(160), breaker.can_pass(160), breaker.rest_left(160)) == (BreakerState.HALF_OPEN, True, timedelta())


def test_a_success_in_between_begins_the_count_anew() -> None:
    breaker = tripped(4)
    breaker.succeeded(breaker.passes(0))
    for _ in range(4):
        breaker.failed(breaker.passes(0), 0)
    assert breaker.state(0) is BreakerState.CLOSED


def test_one_trial_at_a_time_decides() -> None:
    breaker = tripped()
    trial = breaker.passes(60)
    assert trial
    assert (breaker.passes(60), breaker.can_pass(1000)) == (0, False)
    breaker.failed(trial, 70)
    assert (breaker.state(129), breaker.state(130)) == (BreakerState.OPEN, BreakerState.HALF_OPEN)
    breaker.succeeded(breaker.passes(130))
    assert breaker.state(130) is BreakerState.CLOSED
    for _ in range(4):
        breaker.failed(breaker.passes(131), 131)
    assert breaker.state(131) is BreakerState.CLOSED


def test_a_trial_that_was_given_up_leaves_its_place_to_another() -> None:
    breaker = tripped()
    breaker.gave_up(breaker.passes(60))
    assert breaker.passes(60)


def test_what_a_slow_one_from_before_has_to_tell_neither_ends_a_trial_nor_makes_room_for_a_second() -> None:
    for tell_it in (Breaker.gave_up, Breaker.succeeded, lambda breaker, number: breaker.failed(number, 61)):
        breaker = Breaker()
        slow = breaker.passes(0)
        for _ in range(5):
            breaker.failed(breaker.passes(0), 0)
        tell_it(breaker, slow)
        assert breaker.state(1) is BreakerState.OPEN
        trial = breaker.passes(60)
        tell_it(breaker, slow)
        assert (breaker.state(62), breaker.passes(62)) == (BreakerState.HALF_OPEN, 0)
        breaker.succeeded(trial)
        assert breaker.state(62) is BreakerState.CLOSED


@pytest.mark.parametrize("mistake", [{"failures": 0}, {"rest": timedelta()}])
def test_a_breaker_that_makes_no_sense_is_refused(mistake: dict[str, int]) -> None:
    with pytest.raises(BadSettings):
        Breaker(**mistake)  # type: ignore[arg-type]  # what a user might give


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


def test_an_open_breaker_is_asked_before_an_attempt_is_spent_and_other_sources_go_on(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            dlq.breakers = Breakers(clock=Clock())
            letters = [due(str(number)) for number in range(12)]
            mails = [due(str(number), source="mails") for number in range(12)]
            await dlq.letters.put([*letters, *mails])
            down, up = Handler(fails=lambda name: True), Handler()
            async with dlq.processor({"orders": down.work, "mails": up.work}, pace=Pace(concurrency=1, batch=1)):
                await settled(dlq, *mails)
                await until(lambda: len(down.calls) == 5)
            assert dlq.breakers.of(ORDERS).state(0) is BreakerState.OPEN
            untried = [one for one in letters if one.source_id not in down.calls]
            assert len(untried) == 7
            for one in untried:
                after = await seen(dlq, one)
                assert (after.status, after.retry.retry_count, after.history) == (Status.PENDING, 0, one.history)

    tell(story())


def test_after_the_rest_one_trial_passes_and_its_success_lets_the_others_go(store: LetterStore) -> None:
    async def story() -> None:
        clock = Clock()
        async with opened(store) as dlq:
            dlq.breakers = Breakers(lambda: tripped(5), clock=clock)
            letters = [due(str(number)) for number in range(8)]
            await dlq.letters.put(letters)
            gate = asyncio.Event()
            handler = Handler(gate)
            async with dlq.processor({"orders": handler.work}, pace=Pace(concurrency=5, interval=timedelta(milliseconds=20))):
                clock.now = 59.9
                assert dlq.breakers.of(ORDERS).state(clock.now) is BreakerState.OPEN
                clock.now = 60
                await until(lambda: handler.now == 1)
                assert dlq.breakers.of(ORDERS).state(clock.now) is BreakerState.HALF_OPEN
                # Long enough for a second one, if there were any.
                await dlq.letters.put([more := due("more", source="mails")])
                async with dlq.processor({"mails": Handler().work}, pace=SHORT):
                    await settled(dlq, more)
                assert handler.most == 1
                gate.set()
                await settled(dlq, *letters)
            assert set(handler.counts.values()) == {1}
            assert dlq.breakers.of(ORDERS).state(clock.now) is BreakerState.CLOSED

    tell(story())


def test_a_trial_that_fails_opens_it_for_another_minute(store: LetterStore) -> None:
    async def story() -> None:
        clock = Clock()
        async with opened(store) as dlq:
            dlq.breakers = Breakers(lambda: tripped(5), clock=clock)
            letters = [due(str(number)) for number in range(4)]
            await dlq.letters.put(letters)
            handler = Handler(fails=lambda name: len(handler.calls) <= 2)
            breaker = dlq.breakers.of(ORDERS)
            async with dlq.processor({"orders": handler.work}, pace=Pace(concurrency=4, interval=timedelta(milliseconds=20))):
                for trials in (1, 2):
                    clock.now = 61 * trials
                    await until(lambda: len(handler.calls) == clock.now / 61)
                    await until(lambda: breaker.state(clock.now) is BreakerState.OPEN)
                    assert breaker.rest_left(clock.now) == timedelta(seconds=60)
                    assert handler.most == 1
                clock.now = 61 * 3

                async def others_are_done() -> bool:
                    found = await dlq.letters.get([one.id for one in letters])
                    return sum(one is not None and one.status is Status.COMPLETED for one in found) == 2

                await until(others_are_done)
            retries = sorted([(await seen(dlq, one)).retry.retry_count for one in letters])
            assert retries == [0, 0, 1, 1]

    tell(story())


def test_a_trial_that_was_never_made_leaves_its_place_to_the_next(store: LetterStore) -> None:
    async def story() -> None:
        clock = Clock()
        clock.now = 60
        async with opened(store) as dlq:
            dlq.breakers = Breakers(lambda: tripped(5), clock=clock)
            await dlq.letters.put([due("a", priority=9, redacted=("body",)), good := due("b")])
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=SHORT):
                await settled(dlq, good)
            assert handler.calls == ["b"]

    tell(story())


def test_what_was_claimed_before_it_opened_is_put_off_until_its_rest_is_over(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            dlq.breakers = Breakers(clock=Clock())
            letters = [due(str(number)) for number in range(9)]
            await dlq.letters.put(letters)
            heard = list[Retried]()

            async def listen(retried: Sequence[Retried]) -> None:
                heard.extend(retried)

            sizes: list[int] = []

            async def fail(messages: Sequence[Message]) -> list[Delivery]:
                sizes.append(len(messages))
                raise OSError("no route")

            # Nine are claimed at once; the fifth failure is the last.
            pace = Pace(concurrency=9, batch=1, interval=timedelta(hours=1))
            async with dlq.processor({"orders": Target(fail)}, pace=pace, listener=listen):
                await until(lambda: len(heard) == 9)
            assert sizes == [1] * 5
            waiting = [(await seen(dlq, one)).retry.waits_for for one in letters]
            assert sorted(waiting) == [DENIED] * 4 + ["no route"] * 5

    tell(story())


def test_an_unknown_answer_neither_opens_nor_closes_it(store: LetterStore) -> None:
    async def story() -> None:
        clock = Clock()
        async with opened(store) as dlq:
            dlq.breakers = Breakers(clock=clock)
            letters = [due(str(number)) for number in range(10)]
            await dlq.letters.put(letters)

            async def lose(messages: Sequence[Message]) -> list[Delivery]:
                return [Unknown(reason="cut off")] * len(messages)

            async with dlq.processor({"orders": Target(lose)}, pace=SHORT):
                await settled(dlq, *letters, status=Status.REDRIVEN)
            assert dlq.breakers.of(ORDERS).state(0) is BreakerState.CLOSED

    tell(story())


def test_automatic_and_manual_retries_share_a_breaker(store: LetterStore) -> None:
    async def story() -> None:
        clock = Clock()
        async with opened(store) as dlq:
            dlq.breakers = Breakers(clock=clock)
            letters = [due(str(number)) for number in range(7)]
            await dlq.letters.put(letters)
            handler = Handler(fails=lambda name: True)
            for one in letters[:5]:
                await dlq.retry(one.id, handler.work)
            denied = await dlq.retry(letters[5].id, handler.work)
            assert (denied.delivery, len(handler.calls)) == (None, 5)
            after = await seen(dlq, letters[5])
            assert (after.retry.retry_count, after.attempts, after.retry.waits_for) == (0, 1, DENIED)
            clock.now = 60
            worked = await dlq.retry(letters[6].id, lambda name: None)
            assert worked.has_worked
            assert dlq.breakers.of(ORDERS).state(60) is BreakerState.CLOSED

    tell(story())


def test_a_batch_reports_for_each_of_its_letters(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            dlq.breakers = Breakers(clock=Clock())
            letters = [due(str(number)) for number in range(4)]
            await dlq.letters.put(letters)

            async def take(messages: Sequence[Message]) -> list[Delivery]:
                return [Delivered(confirmed=True)] * len(messages)

            target = Target(take)
            async with dlq.processor({"orders": target}, pace=Pace(concurrency=4, batch=4)):
                await settled(dlq, *letters)
            assert len(target.sent) == 4

    tell(story())
