"""How fast an operation goes: canaries, rates, ramps, and the failures that make it pause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import EVERYTHING, BadSettings, Message
from redrive.engine.dead_letters import DeadLetters
from redrive.model.operation import Delivered, Delivery, Entry, OperationStatus
from redrive.model.tempo import Tempo, rate_of, share_of
from tests.unit.operation_use import FAILED, WORKED, always, counted, many
from tests.unit.targets import BAD, Target, Tell, captured, teller


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


def test_a_canary_that_fails_keeps_the_others_back_until_somebody_goes_on(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 10)
        plan = await dlq.operations.plan(always(FAILED), query=EVERYTHING, tempo=Tempo(canary=3))
        report = await dlq.operations.run(plan.operation.id, to=always(FAILED))
        assert report.entries == {Entry.FAILED: 3}
        assert report.stopped == "3 of the first 3 failed again; the others were not sent"
        assert (await dlq.operations.get(plan.operation.id)).status is OperationStatus.PAUSED
        target = always(WORKED)
        assert (await dlq.operations.run(plan.operation.id, to=target)).entries == {Entry.FAILED: 3, Entry.CONFIRMED: 7}
        assert len(target.sent) == 7

    tell(story)


def test_a_canary_that_works_lets_the_others_follow(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 10)
        target = always(WORKED)
        assert (await dlq.redrive(target, query=EVERYTHING, tempo=Tempo(canary=3))).entries == {Entry.CONFIRMED: 10}
        assert len(target.batches[0]) == 3

    tell(story)


def test_the_outcome_of_a_canary_is_waited_for_where_only_its_handler_can_tell(tell: Tell) -> None:
    """The consumer fails on the message that was sent: the letter is reopened, and the operation sees it."""

    async def story(dlq: DeadLetters) -> None:
        for number in range(5):
            await captured(dlq, Message(body=b"x", id=str(number)), source="orders")

        async def consume(messages: Sequence[Message]) -> list[Delivery]:
            for message in messages:
                consumers.append(asyncio.create_task(fail_later(message)))
            return [Delivered()] * len(messages)

        async def fail_later(message: Message) -> None:
            await asyncio.sleep(0.1)
            await dlq.capture(message, BAD, source="orders")

        consumers: list[asyncio.Task[None]] = []
        report = await dlq.redrive(Target(consume), query=EVERYTHING, tempo=Tempo(canary=2, window=timedelta(seconds=20)))
        assert report.entries == {Entry.FAILED: 2}
        assert "2 of the first 2 failed again" in report.stopped
        rows = [row async for row in dlq.operations.ledger(report.operation, entries=[Entry.FAILED])]
        assert [row.detail for row in rows] == ["failed again, as generation 2: bad"] * 2
        assert {(await dlq.get(row.letter)).generation for row in rows} == {2}

    tell(story)


def test_it_pauses_by_itself_when_too_many_fail_again(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 100)
        answers = iter([WORKED, FAILED, WORKED] * 50)

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            return [next(answers) for _ in messages]

        tempo = Tempo(batch=5, stop_on_refail=0.25)
        report = await dlq.redrive(Target(send), query=EVERYTHING, tempo=tempo)
        sent = sum(report.entries.values())
        assert 20 <= sent <= 25
        assert "failed again, more than 25%" in report.stopped
        assert (await counted(dlq, report.operation))[Entry.CHOSEN] == 100 - sent

    tell(story)


def test_a_rate_is_kept(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        await many(dlq, 30)
        at: list[float] = []

        async def send(messages: Sequence[Message]) -> list[Delivery]:
            at.extend([time.monotonic()] * len(messages))
            return [WORKED] * len(messages)

        began = time.monotonic()
        await dlq.redrive(Target(send), query=EVERYTHING, tempo=Tempo(rate=50))
        assert len(at) == 30
        assert at[-1] - began >= 0.5, "the last five go when the others have taken their time"

    tell(story)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"rate": float("inf")},
        {"batch": 0},
        {"canary": -1},
        {"ramp": timedelta(minutes=1)},
        {"rate": 5, "ramp": timedelta()},
        {"stop_on_refail": 1.0},
        {"stop_on_refail": -0.1},
        {"window": timedelta()},
        {"max_rounds": 0},
    ],
    ids=str,
)
def test_a_tempo_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        Tempo(**wrong)


def test_a_ramp_leads_from_a_tenth_of_the_rate_to_all_of_it() -> None:
    tempo = Tempo(rate=100, ramp=timedelta(seconds=10))
    rates = [tempo.rate_after(timedelta(seconds=seconds)) for seconds in (0, 5, 10, 99)]
    assert rates == [pytest.approx(10), pytest.approx(55), 100, 100]
    assert tempo.seconds_for(550) == pytest.approx(10)
    assert tempo.seconds_for(1550) == pytest.approx(20)
    assert Tempo().seconds_for(5) is None


@pytest.mark.parametrize(("text", "rate"), [("50", 50), ("50/s", 50), ("300/min", 5), (" 36 / h ", 0.01), ("0.5/s", 0.5)])
def test_rates_are_written_by_time(text: str, rate: float) -> None:
    assert rate_of(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "0", "fast", "5/d", "-1/s", "1e3"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="is not a rate"):
        rate_of(text)


def test_shares_are_written_with_and_without_percent() -> None:
    assert (share_of("5%"), share_of("0.05"), share_of("0")) == (0.05, 0.05, 0.0)
    for text in ("", "100%", "1", "-1%", "many"):
        with pytest.raises(BadSettings, match="is not a share"):
            share_of(text)
