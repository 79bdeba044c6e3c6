"""A consumer whose PostgreSQL is killed: its letters wait on the local disk, and go to the store by themselves when it is back."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

import redrive
from redrive import Bury, Message, Policy, Status
from redrive.backends.memory import MemoryTransport
from redrive.engine.dead_letters import DeadLetters
from redrive.engine.journal import pending
from redrive.model.arrival import Held
from redrive.testing.kit.lines import until
from redrive.testing.servers import Server
from tests.engines import OwnEngine

pytestmark = pytest.mark.engine("postgres", own=True)

PATIENCE_SECONDS = 60
BEFORE, DURING, AFTER = 5, 8, 5


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDRIVE_JOURNAL", str(tmp_path / "journal"))
    return tmp_path / "journal"


@pytest.fixture
def server(own_engine: OwnEngine) -> Server:
    server = own_engine("postgres")
    assert isinstance(server, Server)
    return server


def test_a_guarded_consumer_goes_on_while_its_store_is_down(server: Server, journal: Path) -> None:
    assert asyncio.run(held_through_an_outage(server, journal)) == BEFORE + DURING + AFTER + 1


async def held_through_an_outage(server: Server, journal: Path) -> int:
    """How many letters there are in the end; what must hold on the way is asserted on the way."""
    orders = MemoryTransport("orders")
    await orders.send([Message(body=b"pizza %d" % number, id=str(number)) for number in range(BEFORE + DURING + AFTER)])
    async with asyncio.timeout(PATIENCE_SECONDS), redrive.open(f"{server.url}?timeout=5") as dlq:

        @dlq.guard(source="orders", policy=Policy(max_attempts=1))
        async def ship(message: Message) -> None:
            raise ConnectionError("the oven does not answer")

        async def consume(count: int) -> None:
            """Each order fails, is held somewhere durable, and only then acknowledged."""
            for parcel in await orders.receive(limit=count):
                assert await ship(parcel.message) == Bury()
                assert await orders.settle([parcel.handle], done=True) == [True]

        await consume(BEFORE)
        assert await dlq.count() == BEFORE
        assert waiting(journal) == 0

        # kill -9. The consumer does not stop, and nothing that it acknowledges is anywhere but safe.
        await asyncio.to_thread(server.kill)
        await consume(DURING - 1)
        by_hand = await dlq.capture(b"by hand", ValueError("bad"), source="counter", id="by hand")
        await consume(1)
        assert by_hand.held is Held.JOURNALED
        assert waiting(journal) == DURING + 1

        # It is back. Nobody captures anything, and still they go to where they belong.
        await asyncio.to_thread(server.start)
        await until(lambda: waiting(journal) == 0)
        assert await dlq.count() == BEFORE + DURING + 1
        await consume(AFTER)
        await all_are_there_once(dlq)
        held = await dlq.count()
    assert await orders.peek() == []
    assert waiting(journal) == 0
    return held


async def all_are_there_once(dlq: DeadLetters) -> None:
    letters = [letter async for letter in dlq.find()]
    names = [str(number) for number in range(BEFORE + DURING + AFTER)]
    assert sorted(letter.source_id for letter in letters) == sorted([*names, "by hand"])
    for letter in letters:
        assert (letter.status, letter.generation, letter.attempts) == (Status.PENDING, 1, 1)
        assert letter.body == (b"by hand" if letter.source == "counter" else b"pizza %d" % int(letter.source_id))


def test_letters_of_a_consumer_that_died_meanwhile_are_taken_along_by_the_next(server: Server, journal: Path) -> None:
    async def first_life() -> None:
        async with redrive.open(f"{server.url}?timeout=5") as dlq:
            await dlq.capture("a", ValueError("bad"), source="orders", id="before")
            await asyncio.to_thread(server.kill)
            held = await dlq.capture("b", ValueError("bad"), source="orders", id="during")
            assert held.held is Held.JOURNALED

    async def next_life() -> list[str]:
        async with redrive.open(f"{server.url}?timeout=5") as dlq:
            await dlq.capture("c", ValueError("bad"), source="orders", id="after")
            return sorted([letter.source_id async for letter in dlq.find()])

    asyncio.run(first_life())
    assert waiting(journal) == 1
    server.start()
    assert asyncio.run(next_life()) == ["after", "before", "during"]
    assert waiting(journal) == 0


def test_what_was_lost_on_the_way_to_the_store_and_journaled_is_there_once(server: Server, journal: Path) -> None:
    """The engine is killed in the middle of captures: whatever each was told, in the end each is there once."""

    async def scene() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), redrive.open(f"{server.url}?timeout=5") as dlq:
            told: list[Held] = []

            async def capture(number: int) -> None:
                captured = await dlq.capture(f"{number}", ValueError("bad"), source="orders", id=str(number))
                told.append(captured.held)

            numbers = count()

            async def captures() -> None:
                """One after another, until the engine is gone."""
                while Held.JOURNALED not in told:
                    await capture(next(numbers))

            crowd = [asyncio.ensure_future(captures()) for _ in range(20)]
            await until(lambda: len(told) >= 40)
            await asyncio.to_thread(server.kill)
            await asyncio.gather(*crowd)
            await asyncio.to_thread(server.start)
            await until(lambda: waiting(journal) == 0)
            letters = [letter async for letter in dlq.find()]
            assert sorted(int(letter.source_id) for letter in letters) == list(range(next(numbers)))
            assert {letter.attempts for letter in letters} == {1}

    asyncio.run(scene())


def waiting(journal: Path) -> int:
    """How many letters wait on the disk."""
    return sum(one.letters or 0 for one in pending(journal)) if journal.exists() else 0
