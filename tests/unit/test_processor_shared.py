"""Several processors on one store, each with a connection of its own: they share the work and never do it twice."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Pace, Status
from redrive.testing import Faulty, Opener
from tests.unit.beats import Beats, OnBeats
from tests.unit.test_processor import QUICK, SHARED, Handler, due, opened, seen, settled, tell
from tests.unit.waiting import until

pytestmark = pytest.mark.parametrize("opener", SHARED)


def test_each_letter_is_run_once_and_all_take_part(opener: Opener, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(opener(tmp_path)) as one, opened(opener(tmp_path)) as other, opened(opener(tmp_path)) as third:
            letters = [due(str(number), priority=number % 3) for number in range(300)]
            await one.letters.put(letters)
            gate = asyncio.Event()
            handlers = [Handler(gate) for _ in range(3)]
            processors = [
                dlq.processor({"orders": handler.work}, pace=QUICK)
                for dlq, handler in zip((one, other, third), handlers, strict=True)
            ]
            for processor in processors:
                await processor.start()
            await until(lambda: all(handler.now == 10 for handler in handlers))
            gate.set()
            await settled(one, *letters)
            for processor in processors:
                await processor.stop()
            counts = handlers[0].counts + handlers[1].counts + handlers[2].counts
            assert counts == {str(number): 1 for number in range(300)}

    tell(story())


def test_a_handler_that_takes_longer_than_its_lease_is_not_run_a_second_time(opener: Opener, tmp_path: Path) -> None:
    async def story() -> None:
        lease = timedelta(seconds=0.9)
        beats = Beats(lease)
        async with opened(OnBeats(opener(tmp_path), beats)) as one, opened(OnBeats(opener(tmp_path), beats)) as other:
            await one.letters.put([letter := due("a")])
            gate = asyncio.Event()
            slow, thief = Handler(gate), Handler()
            async with one.processor({"orders": slow.work}, pace=Pace(lease=lease)):
                await until(lambda: slow.now == 1)
                async with other.processor({"orders": thief.work}, pace=QUICK):
                    # Each beat is a third of the lease after the one before.
                    await until(lambda: beats.count > 4)
                    assert (await seen(one, letter)).status is Status.RETRYING
                    gate.set()
                    await settled(one, letter)
            assert (slow.calls, thief.calls) == (["a"], [])

    tell(story())


def test_what_one_gives_back_at_its_stop_another_takes_at_once(opener: Opener, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(opener(tmp_path)) as one, opened(opener(tmp_path)) as other:
            letters = [due(str(number)) for number in range(20)]
            await one.letters.put(letters)
            hanging, handler = Handler(asyncio.Event()), Handler()
            first = one.processor({"orders": hanging.work}, pace=Pace(lease=timedelta(hours=1), grace=timedelta()))
            await first.start()
            await until(lambda: hanging.now == 10)
            await first.stop()
            async with other.processor({"orders": handler.work}, pace=QUICK):
                await settled(one, *letters)
            assert handler.counts == {str(number): 1 for number in range(20)}
            assert {(await seen(one, letter)).retry.retry_count for letter in letters} == {0}

    tell(story())


def test_what_another_puts_there_is_found_while_it_waits(opener: Opener, tmp_path: Path) -> None:
    async def story() -> None:
        faulty = Faulty(opener(tmp_path))
        async with opened(faulty) as one, opened(opener(tmp_path)) as other:
            handler = Handler()
            async with one.processor({"orders": handler.work}, pace=Pace(interval=timedelta(hours=1))):
                await until(lambda: "wait" in faulty.calls)
                await other.letters.put([letter := due("a")])
                await settled(one, letter)
            assert handler.counts == {"a": 1}

    tell(story())


def test_a_dependency_is_kept_across_processors(opener: Opener, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(opener(tmp_path)) as one, opened(opener(tmp_path)) as other:
            chain = [due("0"), *(due(str(number), depends_on=(str(number - 1),), priority=number) for number in range(1, 6))]
            await one.letters.put(chain)
            order: list[str] = []

            async def handler(name: str) -> None:
                order.append(name)

            async with one.processor({"orders": handler}, pace=QUICK), other.processor({"orders": handler}, pace=QUICK):
                await settled(one, *chain)
            assert order == [str(number) for number in range(6)]

    tell(story())


def test_a_failed_retry_comes_back_by_the_stores_own_clock(opener: Opener, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(opener(tmp_path)) as dlq:
            await dlq.letters.put([letter := due("a")])
            async with dlq.processor({"orders": Handler(fails=lambda name: True).work}, pace=QUICK):

                async def has_failed() -> bool:
                    return (await seen(dlq, letter)).retry.retry_count == 1

                await until(has_failed)
            after = await seen(dlq, letter)
            assert after.retry.next_retry_at is not None
            # The store has written `updated_at` by the same clock.
            assert abs(after.retry.next_retry_at - after.updated_at - timedelta(minutes=2)) < timedelta(seconds=10)

    tell(story())
