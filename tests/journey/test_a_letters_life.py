"""A letter's life, from the first failure to the redelivery that works, on one SQLite file."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import redrive
from redrive import EVERYTHING, Bury, Message, Policy, Retry, Status, exponential
from redrive.backends.memory import MemoryTransport
from redrive.model.lease import Claim
from redrive.model.operation import Entry, OperationStatus
from redrive.model.query import Field, Is
from redrive.model.settlement import Completed, Released, Settled, Settlement


class Warehouse:
    """Ships orders, except while it is on fire."""

    def __init__(self) -> None:
        self.is_on_fire = True
        self.shipped: list[bytes] = []

    def ship(self, order: bytes) -> None:
        if self.is_on_fire:
            raise ConnectionError("warehouse 7 does not answer")
        self.shipped.append(order)


def test_a_letters_life(tmp_path: Path) -> None:
    assert asyncio.run(life(f"sqlite:{tmp_path}/redrive.db")) == [b'{"pizza": 1}']


async def life(url: str) -> list[bytes]:
    """Live it; what was shipped in the end?"""
    warehouse = Warehouse()
    orders = MemoryTransport("orders")
    await orders.send([Message(body=b'{"pizza": 1}', id="order-1", headers=(("tenant", b"acme"),))])

    # The warehouse burns. The consumer is given the order twice; then redrive gives up on it and holds it as a letter.
    async with redrive.open(url) as dlq:

        @dlq.guard(source="orders", policy=Policy(max_attempts=2, backoff=exponential(timedelta(seconds=1))), tags=["food"])
        async def consume(message: Message) -> None:
            warehouse.ship(message.body)

        (first,) = await orders.receive()
        assert await consume(first.message) == Retry(timedelta(seconds=1))
        assert await dlq.letters.count() == 0
        await orders.settle([first.handle], done=False)

        (second,) = await orders.receive()
        assert await consume(second.message) == Bury()
        await orders.settle([second.handle], done=True)
        assert await orders.peek() == []

    # Another day, another process: the letter is still there, with its whole story.
    async with redrive.open(url) as dlq:
        (letter,) = [letter async for letter in dlq.find(Is(Field.ERROR, "ConnectionError"))]
        assert (letter.source, letter.source_id, letter.generation, letter.status) == ("orders", "order-1", 1, Status.PENDING)
        assert (letter.body, letter.header("tenant"), letter.tags) == (b'{"pizza": 1}', "acme", ("food",))
        assert letter.failure.message == "warehouse 7 does not answer"
        assert "in Warehouse.ship" in letter.failure.traceback
        assert (await dlq.letters.groups()).groups[0].count == 1

        # Somebody thinks that the fire is out and sends it back. It is on its way, marked with the letter it was.
        report = await dlq.redrive(orders, ids=[letter.id], by="ann")
        assert report.entries == {Entry.SENT: 1}
        assert (await dlq.get(letter.id)).status is Status.REDRIVEN
        (sent,) = await orders.receive()
        assert (sent.message.redrive_id, sent.message.generation) == (letter.id, 1)

        # It is not out. The same letter is opened again, one generation on, instead of a second one beside it.
        @dlq.guard(source="orders", policy=Policy(max_attempts=1))
        async def consume_again(message: Message) -> None:
            warehouse.ship(message.body)

        assert await consume_again(sent.message) == Bury()
        await orders.settle([sent.handle], done=True)
        again = await dlq.get(letter.id)
        assert (again.generation, again.status, again.attempts, again.redrive.count) == (2, Status.PENDING, 2, 1)
        assert [attempt.generation for attempt in again.history] == [1, 2]
        assert await dlq.letters.count() == 1

        # A late echo of the first sending changes nothing that matters: it is one more failure of the letter that is open.
        assert await consume_again(sent.message) == Bury()
        assert (await dlq.get(letter.id)).generation == 2

        # A slow worker claims it, falls asleep, and its lease ends; whoever comes next takes over, and the sleeper is told.
        now = again.updated_at + timedelta(hours=1)
        minute = timedelta(minutes=1)
        (asleep,) = await dlq.letters.claim(Claim(owner="asleep", lease=minute, what=(letter.id,)), now=now)
        later = now + 2 * minute
        (awake,) = await dlq.letters.claim(Claim(owner="awake", lease=minute, what=(letter.id,)), now=later)
        assert await dlq.letters.settle([Settlement.of(asleep.lease, Completed())], now=later) == [Settled.LEASE_LOST]
        assert awake.lease.token > asleep.lease.token
        assert await dlq.letters.settle([Settlement.of(awake.lease, Released())], now=later) == [Settled.DONE]
        assert (await dlq.get(letter.id)).status is Status.PENDING

    # The fire is out. The letter goes straight to the handler, which says that it worked: the letter is done.
    warehouse.is_on_fire = False
    async with redrive.open(url) as dlq:
        report = await dlq.redrive(warehouse.ship, by="ann", query=EVERYTHING)
        assert report.entries == {Entry.CONFIRMED: 1}
        operations = await dlq.desk.operations()
        assert [operation.status for operation in operations] == [OperationStatus.FINISHED] * 2
        assert {operation.by for operation in operations} == {"ann"}
        done = await dlq.get(letter.id)
        assert (done.status, done.generation, done.redrive.count) == (Status.COMPLETED, 2, 2)
        assert await dlq.letters.tally(Field.STATUS) == {"completed": 1}
    return warehouse.shipped
