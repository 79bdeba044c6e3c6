"""Whose turn it is: the urgent first, nobody never, and none before those it depends on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import redrive
from redrive import Act, Amendment, Field, Is, Pace, RetryPlan, Status
from redrive.engine.retry import Retried
from redrive.ports import LetterStore
from redrive.testing import START, Faulty, Moment, Opener, raising, waiting
from tests.contract.backends import sqlite_letters
from tests.unit.shell import Shell
from tests.unit.test_processor import QUICK, SHARED, Handler, due, opened, seen, settled, tell
from tests.unit.waiting import until

ALONE = Pace(concurrency=1, interval=timedelta(milliseconds=50))
HOURLY = Pace(interval=timedelta(hours=1))


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


def test_the_urgent_go_first_and_among_equals_those_that_waited_longest(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            order = [("low", -5, 0), ("high", 7, 3), ("highest", 9, 4), ("older", 7, 1), ("middle", 0, 2)]
            letters = [
                due(name, priority=priority, retry=RetryPlan(next_retry_at=START + timedelta(seconds=at)))
                for name, priority, at in order
            ]
            await dlq.letters.put(letters)
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=Pace(concurrency=5, batch=5)):
                await settled(dlq, *letters)
            assert handler.calls == ["highest", "older", "high", "middle", "low"]

    tell(story())


@pytest.mark.parametrize("opener", SHARED)
def test_one_of_low_priority_gets_its_turn_while_urgent_ones_keep_coming(opener: Opener, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(opener(tmp_path)) as dlq:
            low = due("low", priority=-9)
            # More than it ever claims ahead, and for each that goes another comes: by priority alone the low one never would.
            await dlq.letters.put([low, *(due(f"urgent {number}", priority=9) for number in range(1200))])
            handled = 0

            async def handler(name: str) -> None:
                nonlocal handled
                handled += 1
                if handled % 100 == 0:
                    more = RetryPlan(policy="exponential", next_retry_at=datetime.now(UTC))
                    await dlq.letters.put([due(f"more {handled}/{number}", priority=9, retry=more) for number in range(100)])

            async with dlq.processor({"orders": handler}, pace=ALONE):
                await settled(dlq, low)
            assert await dlq.count(Is(Field.STATUS, Status.PENDING.value)) > 300

    tell(story())


def test_a_letter_waits_until_the_one_it_depends_on_has_worked_and_then_follows_at_once(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            first, second, third = due("A"), due("B", depends_on=("A",), priority=9), due("C", depends_on=("A", "B"), priority=9)
            await dlq.letters.put([third, second, first])
            gate = asyncio.Event()
            handler = Handler(gate)
            # With an interval that no test outlives.
            async with dlq.processor({"orders": handler.work}, pace=HOURLY):
                await until(lambda: handler.now == 1)

                async def wait_for_a() -> bool:
                    return [(await seen(dlq, one)).retry.waits_for for one in (second, third)] == [
                        "'A' (retrying)",
                        "'A' (retrying), 'B' (retrying)",
                    ]

                await until(wait_for_a)
                assert (await seen(dlq, second)).status is Status.PENDING
                gate.set()
                await settled(dlq, first, second, third)
            assert handler.calls == ["A", "B", "C"]
            after = await seen(dlq, third)
            assert (after.retry.retry_count, after.attempts, after.retry.waits_for) == (0, 1, "")

    tell(story())


def test_a_letter_does_not_go_while_the_other_fails_and_goes_when_a_person_has_completed_it(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            first, second = due("A", max_retries=1), due("B", depends_on=("A",))
            await dlq.letters.put([first, second])
            handler = Handler(fails=lambda name: name == "A")
            async with dlq.processor({"orders": handler.work}, pace=QUICK):
                await settled(dlq, first, status=Status.EXHAUSTED)

                async def waits() -> bool:
                    return (await seen(dlq, second)).retry.waits_for == "'A' (exhausted)"

                await until(waits)
                assert handler.calls == ["A"]
                await dlq.retry(first.id, lambda name: None)
                await settled(dlq, second)
            assert handler.calls == ["A", "B"]

    tell(story())


def test_nobody_waits_for_what_is_not_there_nor_for_another_sources_letter(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            later = RetryPlan(policy="exponential", next_retry_at=datetime.now(UTC) + timedelta(days=1))
            other, one = due("A", source="mails", retry=later), due("B", depends_on=("A", "never heard of"))
            await dlq.letters.put([other, one])
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=HOURLY):
                await settled(dlq, one)
            assert handler.calls == ["B"]

    tell(story())


@pytest.mark.parametrize("moment", list(Moment))
def test_what_works_while_the_store_is_asked_for_it_is_not_overlooked(store: LetterStore, moment: Moment) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with opened(faulty) as dlq:
            first, second = due("A"), due("B", depends_on=("A",))
            await dlq.letters.put([first])
            gate, asked = asyncio.Event(), asyncio.Event()
            handler, told = Handler(gate), asyncio.Event()

            async def listen(retried: Sequence[Retried]) -> None:
                told.set()

            async with dlq.processor({"orders": handler.work}, pace=HOURLY, listener=listen):
                await until(lambda: handler.now == 1)
                faulty.lay("get", moment, waiting(asked))
                await dlq.letters.put([second])
                await until(lambda: faulty.calls[-1] == "get")
                # B was claimed, and the store is asked what became of A. Meanwhile A is settled.
                gate.set()
                await told.wait()
                asked.set()
                await settled(dlq, first, second)
            assert handler.calls == ["A", "B"]

    tell(story())


def test_when_the_store_cannot_be_asked_the_letters_are_given_back_and_tried_again(
    store: LetterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.engine.processor.AFTER_ERROR", timedelta(milliseconds=50))

    async def story() -> None:
        faulty = Faulty(store)
        async with opened(faulty) as dlq:
            await dlq.letters.put([first := due("A"), second := due("B", depends_on=("A",))])
            faulty.lay("get", Moment.BEFORE, raising(RuntimeError("a defect")))
            faulty.lay("amend", Moment.BEFORE, raising(RuntimeError("a defect")))
            handler = Handler()
            async with dlq.processor({"orders": handler.work}, pace=HOURLY):
                await until(lambda: not faulty.waiting_faults)
                await settled(dlq, first, second)
            assert handler.calls == ["A", "B"]

    tell(story())


def test_a_letter_that_a_person_put_away_meanwhile_is_not_planned_anew(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            first, second, third = due("A"), due("B", depends_on=("A",)), due("C", depends_on=("A",))
            await dlq.letters.put([first, second, third])
            gate = asyncio.Event()
            handler = Handler(gate)
            async with dlq.processor({"orders": handler.work}, pace=HOURLY):

                async def waits() -> bool:
                    return bool((await seen(dlq, second)).retry.waits_for)

                await until(waits)
                await dlq.amend(Amendment(id=second.id, act=Act.ARCHIVE))
                gate.set()
                await settled(dlq, first, third)
            archived = await seen(dlq, second)
            assert (archived.status, archived.retry.next_retry_at) == (Status.ARCHIVED, None)
            assert handler.calls == ["A", "C"]

    tell(story())


def test_show_says_what_a_letter_waits_for(tmp_path: Path) -> None:
    shell = Shell(tmp_path)

    async def story() -> None:
        async with redrive.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
            await dlq.letters.put([due("A", retry=RetryPlan()), one := due("B", depends_on=("A",))])
            async with dlq.processor({"orders": Handler().work}, pace=HOURLY):

                async def waits() -> bool:
                    return bool((await seen(dlq, one)).retry.waits_for)

                await until(waits)

    tell(story())
    (letter,) = [one for one in shell.letters() if one["source_id"] == "B"]
    shown = shell("show", letter["id"]).out
    assert "waits for" in shown
    assert "'A' (pending)" in shown
    assert "depends on" in shown
