"""What a redrive holds while it sends: leases, a frozen choice, and an intent that is written first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from redrive import EVERYTHING, BadSettings, Message, Status, blocking
from redrive.backends.memory import MemoryDesk, MemoryLetters
from redrive.engine.dead_letters import DeadLetters, Limits
from redrive.model.lease import Claim
from redrive.model.operation import Delivered, Delivery, Entry, OperationStatus
from redrive.model.query import Field, Is
from redrive.model.tempo import Tempo
from tests.unit.beats import Beats, OnBeats
from tests.unit.targets import BAD, Target, Tell, answering, captured, entries, teller
from tests.unit.waiting import until


@pytest.fixture(params=["memory", "sqlite"])
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    return teller("memory:" if request.param == "memory" else f"sqlite:{tmp_path}/redrive.db")


LEASE = timedelta(seconds=0.6)


@asynccontextmanager
async def short_leases(lease: timedelta) -> AsyncIterator[DeadLetters]:
    dlq = DeadLetters(MemoryLetters(), MemoryDesk(), limits=Limits(lease=lease))
    try:
        yield dlq
    finally:
        await dlq.close()


@asynccontextmanager
async def on_beats() -> AsyncIterator[tuple[DeadLetters, Beats]]:
    """Such leases, which end when no heart beats for them, and not because a busy machine lets a beat through too late."""
    beats = Beats(LEASE)
    dlq = DeadLetters(OnBeats(MemoryLetters(), beats), MemoryDesk(), limits=Limits(lease=LEASE))
    try:
        yield dlq, beats
    finally:
        await dlq.close()


async def thefts(dlq: DeadLetters, beats: Beats, id: UUID) -> list[Any]:
    """What a thief gets who tries again and again, until the first lease would be well over."""
    stolen: list[Any] = []

    async def is_over() -> bool:
        stolen.extend(await dlq.letters.claim(Claim(owner="thief", lease=LEASE, what=(id,))))
        return bool(stolen) or beats.count > 4

    await until(is_over)
    return stolen


def test_heartbeats_keep_the_leases_of_a_long_send_alive() -> None:
    async def story() -> None:
        async with on_beats() as (dlq, beats):
            id = await captured(dlq, "a")
            stolen: list[Any] = []

            async def slow(messages: Sequence[Message]) -> list[Delivery]:
                stolen.extend(await thefts(dlq, beats, id))
                return [Delivered()]

            report = await dlq.redrive(Target(slow), query=EVERYTHING)
            assert stolen == []
            assert (report.entries, report.overtaken) == ({Entry.SENT: 1}, 0)
            assert (await dlq.get(id)).status is Status.REDRIVEN

    asyncio.run(story())


def test_heartbeats_go_on_while_a_plain_function_works() -> None:
    async def story() -> None:
        async with on_beats() as (dlq, beats):
            id = await captured(dlq, "a")
            started, release = threading.Event(), threading.Event()

            def slow(order: Any) -> None:
                started.set()
                assert release.wait(60)

            task = asyncio.create_task(dlq.redrive(slow, query=EVERYTHING))
            assert await asyncio.to_thread(started.wait, 60)
            stolen = await thefts(dlq, beats, id)
            release.set()
            report = await task
            assert stolen == []
            assert report.overtaken == 0

    asyncio.run(story())


def test_an_owner_that_lost_its_lease_settles_nothing() -> None:
    async def story() -> None:
        async with short_leases(timedelta(milliseconds=200)) as dlq:
            id = await captured(dlq, "a")

            async def blocks_the_loop(messages: Sequence[Message]) -> list[Delivery]:
                stolen: list[Any] = []
                while not stolen:
                    # No await that lets a heartbeat run: the loop is blocked, as a busy handler would.
                    stolen = await dlq.letters.claim(Claim(owner="other", lease=timedelta(hours=1), what=(id,)))
                return [Delivered(confirmed=True)]

            report = await dlq.redrive(Target(blocks_the_loop), query=EVERYTHING)
            assert (report.entries, report.overtaken) == ({Entry.CONFIRMED: 1}, 1)
            assert (await dlq.get(id)).status is Status.RETRYING

    asyncio.run(story())


def test_what_is_not_open_is_skipped_and_what_is_unknown_too(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        done, held, free = [await captured(dlq, text) for text in ("done", "held", "free")]
        await dlq.redrive(answering(Delivered(confirmed=True)), ids=[done])
        await dlq.letters.claim(Claim(owner="other", lease=timedelta(hours=1), what=(held,)))
        target = answering(Delivered())
        report = await dlq.redrive(target, ids=[done, held, free, free, uuid4()])
        assert (report.entries, report.skipped) == ({Entry.SENT: 1}, 3)
        assert [message.body for message in target.sent] == [b"free"]

    tell(story)


def test_a_query_chooses_and_the_choice_is_frozen_when_it_begins(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        for number in range(5):
            await captured(dlq, str(number), source="orders" if number % 2 else "others")
        received: list[Any] = []

        async def handle(order: str) -> None:
            received.append(order)
            await captured(dlq, f"again {order}")

        report = await dlq.redrive(handle, query=Is(Field.SOURCE, "orders"), tempo=Tempo(batch=1))
        assert received == ["1", "3"]
        assert report.entries == {Entry.CONFIRMED: 2}

    tell(story)


def test_nothing_to_send_is_an_operation_all_the_same(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        target = answering()
        report = await dlq.redrive(target, query=EVERYTHING)
        assert (report.entries, target.sent) == ({}, [])
        assert [operation.status for operation in await dlq.desk.operations()] == [OperationStatus.FINISHED]

    tell(story)


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_of_none_is_refused(batch: int) -> None:
    with blocking.open("memory:") as dlq:
        dlq.capture("a", BAD, source="orders")
        with pytest.raises((BadSettings, ValueError)):
            dlq.redrive(print, tempo=Tempo(batch=batch), query=EVERYTHING)


def test_the_intent_is_written_before_anything_is_sent(tell: Tell) -> None:
    async def story(dlq: DeadLetters) -> None:
        seen: list[Any] = []

        async def look(messages: Sequence[Message]) -> list[Delivery]:
            (operation,) = await dlq.desk.operations()
            seen.append((operation.status, list((await entries(dlq, operation.id)).values())))
            return [Delivered()]

        await captured(dlq, "a")
        await dlq.redrive(Target(look), query=EVERYTHING)
        assert seen == [(OperationStatus.RUNNING, [Entry.INTENDED])]

    tell(story)
