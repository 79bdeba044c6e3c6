"""Starting and stopping a processor: nothing is left behind, whatever it was doing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic

import pytest

from redrive import Letter, Pace, Status
from redrive.backends.memory import MemoryDesk
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.retry import Retried
from redrive.model.query import Field, Is
from redrive.model.settlement import Completed, Released
from redrive.ports import LetterStore
from redrive.testing import Faulty, Moment, waiting
from tests.contract.backends import sqlite_letters
from tests.unit.test_processor import QUICK, Handler, due, opened, seen, settled, tell
from tests.unit.waiting import until

LONG = Pace(concurrency=2, grace=timedelta(milliseconds=100), interval=timedelta(hours=1))


@pytest.fixture
def store(tmp_path: Path) -> LetterStore:
    return sqlite_letters(tmp_path)


async def as_they_were(dlq: DeadLetters, letters: Sequence[Letter]) -> None:
    """None of them is held, and none has spent an attempt."""
    assert await dlq.letters.get([one.id for one in letters]) == list(letters)


def test_a_stop_gives_back_what_is_running_and_what_was_not_begun(store: LetterStore) -> None:
    async def story() -> None:
        worked: list[str] = []

        async def handler(name: str) -> None:
            # Quick at first, so that it claims ahead; then each hangs.
            if len(worked) >= 20:
                await asyncio.Event().wait()
            worked.append(name)

        async with opened(store) as dlq:

            async def are_claimed_ahead() -> bool:
                return await dlq.count(Is(Field.STATUS, Status.RETRYING.value)) > 10

            letters = [due(str(number)) for number in range(200)]
            await dlq.letters.put(letters)
            processor = dlq.processor({"orders": handler}, pace=LONG)
            await processor.start()
            await until(are_claimed_ahead)
            await until(lambda: len(worked) == 20)
            started = monotonic()
            await processor.stop()
            assert monotonic() - started < 10
            await as_they_were(dlq, [one for one in letters if one.source_id not in worked])
            assert len(worked) == 20

    tell(story())


def test_what_ends_within_the_grace_counts(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a")])
            gate = asyncio.Event()
            handler = Handler(gate)
            processor = dlq.processor({"orders": handler.work}, pace=Pace(grace=timedelta(seconds=30)))
            await processor.start()
            await until(lambda: handler.now == 1)
            stopping = asyncio.create_task(processor.stop())
            await asyncio.sleep(0)
            assert not stopping.done()
            gate.set()
            await stopping
            assert (await seen(dlq, one)).status is Status.COMPLETED

    tell(story())


@pytest.mark.parametrize("moment", list(Moment))
def test_a_stop_in_the_middle_of_a_claim_gives_back_what_it_brings(store: LetterStore, moment: Moment) -> None:
    async def story() -> None:
        faulty, gate = Faulty(store), asyncio.Event()
        async with opened(faulty) as dlq:
            letters = [due(str(number)) for number in range(5)]
            await dlq.letters.put(letters)
            faulty.lay("claim", moment, waiting(gate))
            handler = Handler()
            processor = dlq.processor({"orders": handler.work}, pace=LONG)
            await processor.start()
            await until(lambda: "claim" in faulty.calls)
            stopping = asyncio.create_task(processor.stop())
            await asyncio.wait([stopping], timeout=0.05)
            assert not stopping.done()
            gate.set()
            await stopping
            assert handler.calls == []
            await as_they_were(dlq, letters)

    tell(story())


def test_a_stop_while_it_waits_for_letters_is_at_once(store: LetterStore) -> None:
    async def story() -> None:
        faulty = Faulty(store)
        async with opened(faulty) as dlq:
            processor = dlq.processor({"orders": print}, pace=LONG)
            await processor.start()
            await until(lambda: "wait" in faulty.calls)
            started = monotonic()
            await processor.stop()
            assert monotonic() - started < 5

    tell(story())


def test_starting_and_stopping_twice_and_stopping_before_the_start_are_fine(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            handler = Handler()
            processor = dlq.processor({"orders": handler.work}, pace=QUICK)
            await processor.stop()
            assert not processor.is_running
            for name in ("a", "b"):
                await processor.start()
                await processor.start()
                assert processor.is_running
                await dlq.letters.put([one := due(name)])
                await settled(dlq, one)
                await asyncio.gather(processor.stop(), processor.stop())
                await processor.stop()
                assert not processor.is_running
            assert handler.calls == ["a", "b"]

    tell(story())


def test_a_start_while_it_is_being_stopped_starts_it_anew(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([first := due("a")])
            gate = asyncio.Event()
            handler = Handler(gate)
            processor = dlq.processor({"orders": handler.work}, pace=Pace(grace=timedelta(seconds=30)))
            await processor.start()
            await until(lambda: handler.now == 1)
            stopping = asyncio.create_task(processor.stop())
            await asyncio.sleep(0)
            starting = asyncio.create_task(processor.start())
            gate.set()
            await asyncio.gather(stopping, starting)
            assert processor.is_running
            await dlq.letters.put([second := due("b")])
            await settled(dlq, first, second)
            await processor.stop()
            assert handler.calls == ["a", "b"]

    tell(story())


def test_whoever_is_cancelled_while_they_stop_it_has_stopped_it_all_the_same(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a")])
            handler = Handler(asyncio.Event())
            processor = dlq.processor({"orders": handler.work}, pace=LONG)
            await processor.start()
            await until(lambda: handler.now == 1)
            stopping = asyncio.create_task(processor.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
            await until(lambda: not processor.is_running)
            await as_they_were(dlq, [one])
            await processor.stop()

    tell(story())


def test_a_handler_and_a_listener_may_stop_it(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:

            async def stop(name: str) -> None:
                await processor.stop()

            async def listen(retried: Sequence[Retried]) -> None:
                await listened.stop()

            await dlq.letters.put([one := due("a"), other := due("b", source="mails")])
            processor = dlq.processor({"orders": stop}, pace=LONG)
            listened = dlq.processor({"mails": Handler().work}, pace=LONG, listener=listen)
            await processor.start()
            await listened.start()
            await until(lambda: not processor.is_running and not listened.is_running)
            await as_they_were(dlq, [one])
            assert (await seen(dlq, other)).status is Status.COMPLETED

    tell(story())


def test_a_listener_that_never_ends_does_not_hold_up_a_stop(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:

            async def listen(retried: Sequence[Retried]) -> None:
                listening.set()
                await asyncio.Event().wait()

            listening = asyncio.Event()
            await dlq.letters.put([one := due("a")])
            processor = dlq.processor({"orders": Handler().work}, pace=LONG, listener=listen)
            await processor.start()
            await listening.wait()
            await processor.stop()
            assert (await seen(dlq, one)).status is Status.COMPLETED

    tell(story())


def test_a_plain_function_is_waited_for_and_its_letter_given_back_only_then(
    store: LetterStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        started, release = threading.Event(), threading.Event()

        def handler(name: str) -> None:
            started.set()
            assert release.wait(30)

        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a")])
            processor = dlq.processor({"orders": handler}, pace=Pace(grace=timedelta(milliseconds=20)))
            await processor.start()
            assert await asyncio.to_thread(started.wait, 30)
            stopping = asyncio.create_task(processor.stop())
            # It is cancelled, in vain: had it ended before, it would have worked.
            await until(lambda: "waiting for 1 handlers that do not end" in caplog.text)
            assert not stopping.done()
            assert (await seen(dlq, one)).status is Status.RETRYING
            release.set()
            await stopping
            await as_they_were(dlq, [one])

    tell(story())


def test_a_handler_that_finishes_although_it_was_cancelled_has_worked(store: LetterStore) -> None:
    async def story() -> None:
        async def handler(name: str) -> str:
            running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "done all the same"
            raise AssertionError

        running = asyncio.Event()
        async with opened(store) as dlq:
            await dlq.letters.put([one := due("a")])
            processor = dlq.processor({"orders": handler}, pace=LONG)
            await processor.start()
            await running.wait()
            await processor.stop()
            assert (await seen(dlq, one)).status is Status.COMPLETED

    tell(story())


def test_an_event_loop_that_ends_without_a_stop_leaves_nothing_held_and_another_may_go_on(store: LetterStore) -> None:
    dlq = DeadLetters(store, MemoryDesk())
    letters = [due(str(number)) for number in range(5)]
    hanging, handler = Handler(asyncio.Event()), Handler()
    processor = dlq.processor({"orders": hanging.work}, pace=LONG)

    async def forgets_to_stop() -> None:
        await dlq.letters.put(letters)
        await processor.start()
        await until(lambda: hanging.now == 2)

    async def later() -> None:
        await as_they_were(dlq, letters)
        assert not processor.is_running
        await processor.stop()
        await processor.start()
        await until(lambda: hanging.now == 2)
        await processor.stop()
        async with dlq.processor({"orders": handler.work}, pace=QUICK):
            await settled(dlq, *letters)
        await dlq.close()

    tell(forgets_to_stop())
    hanging._gate = asyncio.Event()
    tell(later())


def test_it_can_be_stopped_from_another_event_loop(store: LetterStore) -> None:
    dlq = DeadLetters(store, MemoryDesk())
    handler = Handler(asyncio.Event())
    processor = dlq.processor({"orders": handler.work}, pace=LONG)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        one = due("a")
        asyncio.run_coroutine_threadsafe(dlq.letters.put([one]), loop).result(30)
        asyncio.run_coroutine_threadsafe(processor.start(), loop).result(30)
        tell(until(lambda: handler.now == 1))
        assert processor.is_running
        tell(processor.stop())
        assert not processor.is_running
        asyncio.run_coroutine_threadsafe(as_they_were(dlq, [one]), loop).result(30)
        asyncio.run_coroutine_threadsafe(dlq.close(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def test_what_is_given_back_is_told_as_released(store: LetterStore) -> None:
    async def story() -> None:
        async with opened(store) as dlq:
            heard: list[Retried] = []

            async def listen(retried: Sequence[Retried]) -> None:
                heard.extend(retried)

            await dlq.letters.put([due("a")])
            handler = Handler(asyncio.Event())
            async with dlq.processor({"orders": handler.work}, pace=LONG, listener=listen):
                await until(lambda: handler.now == 1)
            assert [one.outcome for one in heard] == [Released()]
            assert Completed() not in [one.outcome for one in heard]

    tell(story())
