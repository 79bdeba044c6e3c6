"""A processor in trouble: stores that fail, leases that are lost, clocks that are off, listeners that raise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from redrive import AnswerLost, Failed, Pace, Status, StoreUnavailable
from redrive.engine import processor as module
from redrive.engine.retry import Breakers, Retried
from redrive.model.breaker import Breaker
from redrive.model.lease import Claim, Claimed
from redrive.model.settlement import Settled, Settlement
from redrive.ports import LetterStore
from redrive.testing import Faulty, Moment, Outage, raising
from tests.contract.backends import sqlite_letters
from tests.unit.test_processor import QUICK, Handler, due, opened, seen, settled, tell
from tests.unit.waiting import until

DOWN = StoreUnavailable("gone for lunch")


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


@pytest.fixture(autouse=True)
def a_short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timedelta(seconds=10) == module.AFTER_ERROR
    monkeypatch.setattr(module, "AFTER_ERROR", timedelta(milliseconds=50))


@pytest.mark.parametrize("verb", ["claim", "wait"])
@pytest.mark.parametrize("error", [DOWN, RuntimeError("a defect")], ids=["store", "defect"])
def test_an_error_is_logged_and_it_goes_on(
    store: LetterStore, verb: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with opened(faulty) as dlq:
            # More often than the store's own retries would bear.
            faulty.lay(verb, Moment.BEFORE, raising(error), times=4)
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=QUICK):
                await until(lambda: not faulty.waiting_faults)
                await dlq.letters.put([one := due("a")])
                await settled(dlq, one)

    with caplog.at_level(logging.ERROR, "redrive.processor"):
        tell(story())
    assert "retry processor could not claim; it goes on in 0.05 s" in caplog.text
    assert str(error) in caplog.text


def test_a_store_that_fails_does_not_cut_short_what_is_being_tried(store: LetterStore) -> None:
    async def story() -> None:
        outage, gate = Outage(store), asyncio.Event()
        async with opened(outage) as dlq:
            await dlq.letters.put([one := due("a"), other := due("b")])
            handler = Handler(gate)
            pace = Pace(concurrency=5, grace=timedelta(), interval=timedelta(milliseconds=20))
            async with dlq.processor({"orders": handler.work}, pace=pace):
                await until(lambda: handler.now == 2)
                outage.down()
                await _logged("redrive.processor")
                assert handler.now == 2
                gate.set()
                await until(lambda: handler.now == 0)
                outage.up()
                await settled(dlq, one, other)
            assert handler.counts == {"a": 1, "b": 1}

    tell(story())


async def _logged(name: str) -> None:
    """Return when something was logged there."""
    heard = asyncio.Event()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.set()

    ear = Ear()
    logging.getLogger(name).addHandler(ear)
    try:
        await heard.wait()
    finally:
        logging.getLogger(name).removeHandler(ear)


def test_an_outcome_is_settled_when_the_store_is_back_and_its_handler_does_not_run_again(store: LetterStore) -> None:
    async def story() -> None:
        outage = Outage(store)
        async with opened(outage) as dlq:
            letters = [due(str(number)) for number in range(20)]
            await dlq.letters.put(letters)

            async def last_before_the_outage(name: str) -> None:
                await handler.work(name)
                outage.down()

            handler = Handler()
            async with dlq.processor({"orders": last_before_the_outage}, pace=QUICK):
                await until(lambda: len(handler.done) >= 10)
                await _logged("redrive.processor")
                outage.up()
                # Back again, and down after each: so that settling fails more than once.
                while len(handler.done) < 20:
                    await asyncio.sleep(0.01)
                    outage.up()
                outage.up()
                await settled(dlq, *letters)
            assert set(handler.counts.values()) == {1}

    tell(story())


@pytest.mark.parametrize("moment", list(Moment))
def test_a_settlement_whose_answer_was_lost_is_not_tried_a_second_time(store: LetterStore, moment: Moment) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with opened(faulty) as dlq:
            await dlq.letters.put([one := due("a")])
            faulty.lay("settle", moment, raising(AnswerLost("cut off")), times=2)
            handler, heard = Handler(), list[Retried]()

            async def listen(retried: Sequence[Retried]) -> None:
                heard.extend(retried)

            async with dlq.processor({"orders": handler.work}, pace=QUICK, listener=listen):
                await settled(dlq, one)
                await until(lambda: bool(heard))
            assert handler.calls == ["a"]

    tell(story())


class SecondClaimFails(Faulty):
    async def claim(self, claim: Claim, *, now: datetime | None = None) -> list[Claimed]:
        if self.calls.count("claim") == 1:
            self.calls.append("claim")
            raise RuntimeError("a defect")
        return await super().claim(claim, now=now)


def test_when_one_source_cannot_be_claimed_those_claimed_before_are_worked_on(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(SecondClaimFails(store)) as dlq:
            await dlq.letters.put([one := due("a"), other := due("b", source="mails")])
            handler, mails = Handler(), Handler()
            pace = Pace(lease=timedelta(hours=1), interval=timedelta(milliseconds=20))
            async with dlq.processor({"orders": handler.work, "mails": mails.work}, pace=pace):
                await settled(dlq, one, other)
            assert (handler.calls, mails.calls) == (["a"], ["b"])

    tell(story())


def test_a_stop_while_the_store_is_down_ends_and_another_goes_on_when_the_leases_are_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        outage = Outage(sqlite_letters(tmp_path))
        lease = timedelta(seconds=0.5)
        async with opened(outage) as dlq, opened(sqlite_letters(tmp_path)) as elsewhere:
            await dlq.letters.put([one := due("a")])
            handler, other = Handler(asyncio.Event()), Handler()
            # One at a time: it cannot take the same letter once more, should its heart beat too late on a busy machine.
            pace = Pace(concurrency=1, lease=lease, grace=timedelta())
            processor = dlq.processor({"orders": handler.work}, pace=pace)
            await processor.start()
            await until(lambda: handler.now == 1)
            outage.down()
            await processor.stop()
            async with elsewhere.processor({"orders": other.work}, pace=QUICK):
                await settled(elsewhere, one)
            assert other.calls == ["a"]

    with caplog.at_level(logging.WARNING, "redrive.processor"):
        tell(story())
    assert "1 letters could not be settled; their leases end by themselves" in caplog.text


def test_a_listener_that_raises_changes_nothing(store: LetterStore, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async def listen(retried: Sequence[Retried]) -> None:
            raise RuntimeError("a defect of a listener")

        async with opened(store) as dlq:
            letters = [due(str(number)) for number in range(30)]
            await dlq.letters.put(letters)
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=QUICK, listener=listen):
                await settled(dlq, *letters)
            assert set(handler.counts.values()) == {1}

    with caplog.at_level(logging.ERROR, "redrive.processor"):
        tell(story())
    assert "a defect of a listener" in caplog.text


def test_a_letter_that_cannot_even_be_tried_is_put_off_and_the_others_go_on(store: LetterStore) -> None:
    class Broken(Breaker):
        def passes(self, now: float) -> int:
            raise RuntimeError("a defect of a breaker")

    async def story() -> None:
        async with opened(store) as dlq:
            made = iter([Broken, Breaker])
            dlq.breakers = Breakers(lambda: next(made)())
            await dlq.letters.put([bad := due("a"), good := due("b", source="mails")])
            handler = Handler()
            pace = Pace(interval=timedelta(hours=1))
            async with dlq.processor({"orders": handler.work, "mails": handler.work}, pace=pace):
                await settled(dlq, good)

                async def is_put_off() -> bool:
                    return (await seen(dlq, bad)).retry.waits_for == "a defect of a breaker"

                await until(is_put_off)
            letter = await seen(dlq, bad)
            assert (letter.status, letter.retry.retry_count, handler.calls) == (Status.PENDING, 0, ["b"])

    tell(story())


class Squeamish(Faulty):
    """A store that cannot write some words."""

    async def settle(self, settlements: Sequence[Settlement], *, now: datetime | None = None) -> list[Settled]:
        if any("unspeakable" in repr(one.outcome) and isinstance(one.outcome, Failed) for one in settlements):
            raise ValueError("cannot be written")
        return await super().settle(settlements, now=now)


@pytest.mark.parametrize("others", [0, 5])
def test_an_outcome_that_the_store_cannot_take_holds_up_no_other_and_its_letter_is_put_off(
    store: LetterStore, others: int
) -> None:
    async def story() -> None:
        async with opened(Squeamish(store)) as dlq:
            good = [due(str(number)) for number in range(others)]
            await dlq.letters.put([bad := due("unspeakable"), *good])
            handler = Handler(fails=lambda name: name == "unspeakable")
            pace = Pace(interval=timedelta(hours=1), concurrency=6, batch=6)
            async with dlq.processor({"orders": handler.work}, pace=pace):
                await settled(dlq, *good)

                async def is_put_off() -> bool:
                    return (await seen(dlq, bad)).retry.waits_for == "cannot be written"

                await until(is_put_off)
            after = await seen(dlq, bad)
            assert (after.status, after.retry.retry_count) == (Status.PENDING, 0)
            assert set(handler.counts.values()) == {1}

    tell(story())


def test_a_store_that_was_closed_under_a_processor_is_an_error_like_any_other(
    store: LetterStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([due("a")])
            handler = Handler(asyncio.Event())
            processor = dlq.processor({"orders": handler.work}, pace=Pace(grace=timedelta()))
            await processor.start()
            await until(lambda: handler.now == 1)
        # Nobody stopped it: the end of the event loop does.

    with caplog.at_level(logging.WARNING):
        tell(story())
    assert "1 letters could not be settled; their leases end by themselves" in caplog.text
    assert "unhandled exception" not in caplog.text


def test_thousands_of_letters_of_a_poisoned_source_do_not_hold_up_a_good_one(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            poisoned = [due(str(number), source="poison", priority=9) for number in range(3000)]
            good = [due(str(number)) for number in range(300)]
            await dlq.letters.put([*poisoned, *good])
            poison, handler = Handler(fails=lambda name: True), Handler()
            async with dlq.processor({"poison": poison.work, "orders": handler.work}, pace=Pace(concurrency=4)):
                await settled(dlq, *good)
            assert set(handler.counts.values()) == {1}
            # Those in flight when the breaker opened, at most.
            assert 5 <= len(poison.calls) < 5 + 4
            counts = [one.retry.retry_count for one in await dlq.letters.get([one.id for one in poisoned]) if one is not None]
            assert sum(counts) == len(poison.calls)

    tell(story())
