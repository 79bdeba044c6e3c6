"""A person retries one letter now: `dlq.retry`, beside processors that would do so too."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from redrive import AnswerLost, IllegalTransition, LetterLeased, RetryPlan, Status, UnknownLetter, blocking
from redrive.engine.retry import Retried
from redrive.model.operation import Delivered, Refused
from redrive.model.settlement import Settled
from redrive.ports import LetterStore
from redrive.testing import Faulty, Moment, Opener, raising
from tests.contract.backends import sqlite_letters
from tests.unit.beats import Beats, OnBeats
from tests.unit.test_processor import QUICK, SHARED, Handler, due, opened, seen, settled, tell
from tests.unit.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


def test_a_letter_is_retried_whatever_its_time_and_settled_by_what_became_of_it(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            tomorrow = RetryPlan(policy="exponential", max_retries=3, next_retry_at=datetime.now(UTC) + timedelta(days=1))
            letters = [due("a", retry=tomorrow), due("b", retry=RetryPlan()), due("c", status=Status.EXHAUSTED)]
            await dlq.letters.put(letters)
            for one in letters:
                failed = await dlq.retry(one.id, Handler(fails=lambda name: True).work)
                assert isinstance(failed.delivery, Refused)
                assert (failed.has_failed, failed.answer) == (True, Settled.DONE)
                assert (await seen(dlq, one)).retry.retry_count == 1

                async def answer(name: str) -> str:
                    return f"did {name}"

                worked = await dlq.retry(str(one.id)[:13], answer)
                assert worked.delivery == Delivered(confirmed=True, result=f"did {one.source_id}")
                assert (await seen(dlq, one)).status is Status.COMPLETED

    tell(story())


def test_what_is_in_the_way_is_raised_and_no_attempt_is_spent(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            first, second, done = due("A"), due("B", depends_on=("A",)), due("C", status=Status.COMPLETED)
            await dlq.letters.put([first, second, done])
            handler = Handler()
            with pytest.raises(UnknownLetter):
                await dlq.retry(uuid4(), handler.work)
            with pytest.raises(IllegalTransition, match=r"waits for 'A' \(pending\); retry that first"):
                await dlq.retry(second.id, handler.work)
            with pytest.raises(IllegalTransition, match="cannot claim a letter that is completed"):
                await dlq.retry(done.id, handler.work)
            assert (handler.calls, await seen(dlq, second)) == ([], second)
            await dlq.retry(first.id, handler.work)
            await dlq.retry(second.id, handler.work)
            assert handler.calls == ["A", "B"]

    tell(story())


@pytest.mark.parametrize("opener", SHARED)
def test_a_letter_that_a_processor_has_in_hand_cannot_be_retried_by_hand_nor_the_other_way_round(
    opener: Opener, tmp_path: Path
) -> None:
    async def story() -> None:
        async with opened(opener(tmp_path)) as dlq:
            await dlq.letters.put([one := due("a")])
            gate, by_hand = asyncio.Event(), asyncio.Event()
            handler, person = Handler(gate), Handler(by_hand)
            async with dlq.processor({"orders": handler.work}, pace=QUICK):
                await until(lambda: handler.now == 1)
                with pytest.raises(LetterLeased, match="held by somebody"):
                    await dlq.retry(one.id, person.work)
                gate.set()
                await settled(dlq, one)
                await dlq.letters.put([other := due("b", retry=RetryPlan())])
                retrying = asyncio.create_task(dlq.retry(other.id, person.work))
                await until(lambda: person.now == 1)
                # Due by now, as it would be after an amendment: and yet it is the person's.
                await dlq.letters.put([third := due("c")])
                await settled(dlq, third)
                by_hand.set()
                await retrying
            assert (handler.calls, person.calls) == (["a", "c"], ["b"])

    tell(story())


@pytest.mark.parametrize("opener", SHARED)
def test_however_people_and_processors_race_each_letter_runs_once(opener: Opener, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(opener(tmp_path)) as dlq:
            letters = [due(str(number)) for number in range(100)]
            await dlq.letters.put(letters)
            runs: Counter[str] = Counter()

            async def handler(name: str) -> None:
                runs[name] += 1
                await asyncio.sleep(0)

            async def person() -> None:
                for one in reversed(letters):
                    try:
                        await dlq.retry(one.id, handler)
                    except (LetterLeased, IllegalTransition):
                        continue

            async with dlq.processor({"orders": handler}, pace=QUICK):
                await asyncio.gather(person(), person())
                await settled(dlq, *letters)
            assert runs == {one.source_id: 1 for one in letters}

    tell(story())


def test_a_retry_that_is_cancelled_gives_the_letter_back(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a")])
            handler = Handler(asyncio.Event())
            task = asyncio.create_task(dlq.retry(one.id, handler.work))
            await until(lambda: handler.now == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await seen(dlq, one) == one

    tell(story())


def test_a_retry_longer_than_its_lease_keeps_the_letter(store: LetterStore) -> None:
    async def story() -> None:
        lease = timedelta(seconds=0.9)
        beating = OnBeats(store, Beats(lease))
        async with opened(beating, lease=lease) as dlq:
            await dlq.letters.put([one := due("a")])
            gate = asyncio.Event()
            handler, other = Handler(gate), Handler()
            task = asyncio.create_task(dlq.retry(one.id, handler.work))
            await until(lambda: handler.now == 1)
            async with dlq.processor({"orders": other.work}, pace=QUICK):
                await until(lambda: beating.beats.count > 4)
                gate.set()
                assert (await task).answer is Settled.DONE
            assert other.calls == []

    tell(story())


def test_an_answer_of_the_store_that_was_lost_is_found_out(store: LetterStore) -> None:

    async def story() -> None:
        faulty = Faulty(store)
        async with opened(faulty) as dlq:
            await dlq.letters.put([one := due("a")])
            faulty.lay("settle", Moment.AFTER, raising(AnswerLost("cut off")))
            retried: Retried = await dlq.retry(one.id, Handler().work)
            assert retried.answer is Settled.DONE

    tell(story())


def test_blocking_code_retries_by_hand(tmp_path: Path) -> None:
    with blocking.open(f"sqlite:{tmp_path}/redrive.db") as dlq:
        id = dlq.capture({"order": 1}, ValueError("bad"), source="orders").letter.id
        assert dlq.retry(id, lambda order: {"status": "failed", "error": "no stock"}).has_failed
        assert dlq.get(id).failure.message == "no stock"
        assert dlq.retry(id, lambda order: order["order"]).has_worked
        assert dlq.get(id).status is Status.COMPLETED
